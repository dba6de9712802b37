"""``eruca query forget``, and ``rebuild`` where a broker was taken away; a whole cluster each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import anyio.to_thread
import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.command_line import Eruca
from support.waiting import until_told

pytestmark = pytest.mark.anyio
QUICK = {**SMALL_STORE, "ERUCA_QUERY_CLAIM_SECONDS": "2", "ERUCA_TXN_CHECKER_CLAIM_SECONDS": "2"}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(
        brokers=2, queries=1, txn_checkers=1, settings=QUICK, restarts=False
    ) as cluster:
        yield cluster


async def send(cluster: LocalCluster) -> None:
    """Send to both brokers, and wait until the read model has it."""
    async with (
        eruca.AsyncClient(cluster.namesrv_urls) as client,
        client.producer() as producer,
    ):
        await client.admin.create_topic("t", queue_count=1)
        for name in ("broker-a", "broker-b"):
            await producer.send(eruca.Message("t", "x"), queue=eruca.MessageQueue("t", name, 0))
        await until_told(
            client.query.status,
            lambda status: [log.rows for log in status.followed] == [1, 1],
        )


async def run(call: Callable[[], str]) -> str:
    return await anyio.to_thread.run_sync(call)


async def test_a_broker_that_was_taken_away_is_forgotten_by_both_services(
    cluster: LocalCluster,
) -> None:
    command = Eruca(cluster.namesrv_urls[0])
    await send(cluster)
    too_early = await run(lambda: command("query", "forget", "broker-b", "--yes", code=1).stderr)
    await cluster.stop_one("broker-b")

    rebuilt = await run(lambda: command("query", "rebuild", "--yes").stderr)
    document = await run(lambda: command("query", "rebuild", "--yes", "-ojson").stdout)
    asked = await run(lambda: command("query", "forget", "broker-b", code=2).stderr)
    said = await run(lambda: command("query", "forget", "broker-b", "--yes").stderr)
    status = await run(lambda: command("query", "status", "-ojson").stdout)
    unknown = await run(lambda: command("query", "id", "no-such-id", code=1).stderr)
    again = await run(lambda: command("query", "forget", "broker-b", "--yes", code=1).stderr)

    assert "is registered at" in too_early
    assert "stop it first" in too_early
    assert rebuilt.splitlines()[0].startswith(
        "not waiting for broker-b, which no name server knows"
    )
    assert "eruca query forget" in rebuilt
    assert "rebuilt: broker-a; 1 row\n" in rebuilt
    assert "started: broker-b; to see the progress: eruca query status" in rebuilt
    assert json.loads(document)["away"] == ["broker-b"]
    assert "give --yes" in asked
    assert said.splitlines() == [
        "query service: broker-b is forgotten",
        "transaction checker: broker-b is forgotten",
    ]
    assert [log["broker_name"] for log in json.loads(status)["followed"]] == ["broker-a"]
    assert "not everything could be searched" not in unknown
    assert "no-such-id" in unknown
    assert "was never followed, or is already forgotten" in again


async def test_until_it_is_forgotten_whatever_is_listed_says_that_a_broker_is_away(
    cluster: LocalCluster,
) -> None:
    command = Eruca(cluster.namesrv_urls[0])
    await send(cluster)
    await run(lambda: command("group", "create", "g", "--start=earliest").stdout)
    await cluster.stop_one("broker-b")

    def listed(*arguments: str, code: int) -> str:
        return command(*arguments, code=code).stderr

    commands = [
        ("topic", "show", "t"),
        ("group", "list"),
        ("group", "show", "g"),
        ("group", "lag", "g", "--topic=t"),
        ("dlq", "list", "g"),
        ("scheduled", "list"),
        ("txn", "list"),
        ("message", "find", "--topic=t", "--key=k"),
        ("tail", "t", "--no-follow", "--start=earliest"),
    ]
    of_one = [
        ("scheduled", "recall", "no-such-id"),
        ("txn", "show", "no-such-id"),
        ("txn", "rollback", "no-such-id", "--reason=none", "-ojson"),
    ]
    said = [await run(lambda c=c: listed(*c, code=1)) for c in commands]  # type: ignore[misc]
    said_of_one = [await run(lambda c=c: listed(*c, code=1)) for c in of_one]  # type: ignore[misc]
    status = json.loads(await run(lambda: command("status", "-ojson", code=1).stdout))
    lag = json.loads(await run(lambda: command("group", "lag", "g", "-ojson", code=1).stdout))
    await run(lambda: command("query", "forget", "broker-b", "--yes").stdout)
    said_later = [await run(lambda c=c: listed(*c, code=0)) for c in commands]  # type: ignore[misc]
    status_later = json.loads(await run(lambda: command("status", "-ojson").stdout))

    away = "broker-b does not answer: no name server knows it now. To fix it: start it; "
    assert [c for c, told in zip(commands, said, strict=True) if away not in told] == []
    assert "eruca query forget broker-b" in said[0]
    may_know = "; broker-b is away, and may have it"
    assert [text for text in said_of_one if may_know not in text] == []
    assert "no name server" in status["brokers"]["broker-b"]["error"]["detail"]
    assert (lag["lag"], list(lag["unanswered"])) == (None, ["broker-b"])
    assert [told for told in said_later if "broker-b" in told] == []
    assert list(status_later["brokers"]) == ["broker-a"]


async def test_what_is_to_be_done_on_every_broker_says_which_has_not_been_told(
    cluster: LocalCluster,
) -> None:
    command = Eruca(cluster.namesrv_urls[0])
    await send(cluster)
    await cluster.stop_one("broker-b")

    def said(*arguments: str, code: int) -> str:
        return command(*arguments, code=code).stderr

    commands = [
        ("topic", "create", "u", "-ojson"),
        ("group", "create", "h"),
        ("group", "delete", "h", "--yes"),
        ("topic", "delete", "u", "--yes"),
    ]
    told = [await run(lambda c=c: said(*c, code=1)) for c in commands]  # type: ignore[misc]
    of_one = await run(lambda: said("topic", "create", "u", "--broker=broker-a", code=0))
    reset = ("group", "reset", "g", "--topic=t", "--to=earliest", "--yes")
    await run(lambda: said("group", "create", "g", code=1))
    moved = await run(lambda: said(*reset, code=1))
    await run(lambda: said("query", "forget", "broker-b", "--yes", code=0))
    told_later = [await run(lambda c=c: said(*c, code=0)) for c in commands]  # type: ignore[misc]

    moved_later = await run(lambda: said(*reset, code=0))

    assert (
        "broker-b is away (registered at no name server): the offsets of g there do not change"
        in moved
    )
    assert "broker-b" not in moved_later
    unchanged = "broker-b was not changed: no name server knows it now. To fix it: start it, and "
    assert [c for c, text in zip(commands, told, strict=True) if unchanged not in text] == []
    assert [text for text in (of_one, *told_later) if "broker-b" in text] == []


async def test_where_only_one_of_the_services_runs_it_is_told_there() -> None:
    async with LocalCluster(brokers=2, queries=1, settings=QUICK, restarts=False) as cluster:
        command = Eruca(cluster.namesrv_urls[0])
        await send(cluster)
        await cluster.stop_one("broker-b")

        document = await run(lambda: command("query", "forget", "broker-b", "-y", "-ojson").stdout)

    assert json.loads(document) == {
        "broker": "broker-b",
        "query_service": "forgotten",
        "transaction_checker": "none runs",
    }
