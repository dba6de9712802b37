"""The query service, PostgreSQL and a broker killed while the log is being read into rows.

Nothing is lost, nothing is there twice, and answers meanwhile say what is wrong.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from random import Random, SystemRandom

import httpx
import pytest

import eruca
from eruca.contract.errors import ErucaError, TransportError
from eruca_postgres.embedded import EmbeddedServer
from support.query_stage import QueryStage, query_stage
from support.waiting import until_told

pytestmark = pytest.mark.anyio

MESSAGES = 20_000
KILLS = 4


@pytest.fixture(scope="module")
async def stage(shared_server: EmbeddedServer) -> AsyncIterator[QueryStage]:
    shared_server.start()
    async with query_stage(shared_server, brokers=2) as stage:
        yield stage


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201  # pytest shows it when the test fails
    return Random(seed)


async def test_a_service_that_is_killed_again_and_again_loses_and_doubles_nothing(
    stage: QueryStage, topic: str, random: Random
) -> None:
    await stage.client.admin.create_topic(topic, queue_count=2)
    sent = await stage.send(MESSAGES // 2, topic=topic)
    await stage.caught_up()
    await stage.cluster.kill("query")
    sent += await stage.send(MESSAGES // 2, topic=topic)

    for _ in range(KILLS):
        await stage.cluster.restart("query")
        await stage.until_read(random.uniform(0.05, 0.6))
        await stage.cluster.kill("query")
    await stage.cluster.restart("query")

    await stage.check(sent, topic=topic)


async def test_while_the_service_is_away_a_client_says_so_and_goes_on_when_it_is_back(
    stage: QueryStage, topic: str
) -> None:
    await stage.client.admin.create_topic(topic, queue_count=2)
    [message_id] = await stage.send(1, topic=topic)
    await stage.client.query.message(message_id)
    await stage.cluster.kill("query")

    with pytest.raises(TransportError, match="eruca_query") as refused:
        await stage.client.query.message(message_id)
    await stage.cluster.restart("query")
    found = await stage.client.query.message(message_id)

    assert refused.value.retryable
    assert found.message.message_id == message_id


async def test_postgres_killed_in_mid_projection_is_waited_for_and_everything_is_there(
    stage: QueryStage, topic: str, random: Random
) -> None:
    await stage.client.admin.create_topic(topic, queue_count=2)
    sending = asyncio.create_task(_send_in_parts(stage, topic))

    for _ in range(2):
        await stage.until_read(random.uniform(0.1, 0.9))
        await stage.kill_postgres()
        not_ready = await until_told(
            lambda: stage.query.get("/readyz"), lambda answer: answer.status_code == 503
        )
        asked = [
            await stage.query.get(path, params={"topic": topic})
            for path in ("/v1/messages", "/v1/messages/no-such-id", "/v1/status")
        ]
        plan = await stage.query.get(f"/v1/exports/{topic}/plan")
        await stage.start_postgres()
        await until_told(
            lambda: stage.query.get("/readyz"), lambda answer: answer.status_code == 200
        )

        assert "PostgreSQL" in not_ready.json()["detail"]
        for answer in asked:
            assert answer.status_code == 503, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["code"] in ("not-ready", "database-unavailable")
            assert answer.json()["retryable"]
            assert "DATABASE_URL" in answer.json()["fix"]
            assert int(answer.headers["retry-after"]) > 0
        assert plan.status_code == httpx.codes.OK  # exports need no rows

    await stage.check(await sending, topic=topic)


async def _send_in_parts(stage: QueryStage, topic: str) -> list[str]:
    """Send so that there is always something to read, whatever is killed meanwhile."""
    sent: list[str] = []
    for _ in range(10):
        sent += await stage.send(MESSAGES // 10, topic=topic)
    return sent


async def test_a_broker_that_is_killed_is_named_and_read_on_when_it_is_back(
    stage: QueryStage, topic: str, random: Random
) -> None:
    await stage.client.admin.create_topic(topic, queue_count=2)
    attempted: list[str] = []
    sent = await stage.send(MESSAGES // 4, topic=topic)
    sending = asyncio.create_task(_send_to(stage, "broker-b", topic, attempted))
    await stage.until_read(random.uniform(0.1, 0.9))

    await stage.cluster.kill("broker-b")
    acknowledged = await sending
    page = await until_told(
        lambda: stage.get("/v1/messages", topic=topic), lambda page: page["incomplete"]
    )
    unknown = await stage.query.get("/v1/messages/no-such-id")
    status = await until_told(lambda: stage.get("/v1/status"), lambda status: status["faults"])
    ready = await stage.query.get("/readyz")
    more = await stage.send(100, topic=topic)  # to the other broker
    await stage.cluster.restart("broker-b")

    await until_told(
        lambda: stage.get("/v1/messages", topic=topic), lambda page: not page["incomplete"]
    )
    await stage.caught_up()
    found = await stage.ids(topic=topic)
    assert [(its["broker_name"], its["reason"]) for its in page["incomplete"]] == [
        ("broker-b", "broker_unreachable")
    ]
    assert page["messages"]
    assert (unknown.status_code, unknown.json()["code"]) == (503, "search-incomplete")
    assert "broker-b" in unknown.json()["detail"]
    assert [*status["faults"]] == ["broker-b"]
    assert ready.status_code == httpx.codes.OK
    known = {*sent, *acknowledged, *more}
    assert len(found) == len(set(found))
    assert known <= set(found)
    assert set(found) - known <= set(attempted)
    await stage.check(found, topic=topic)


async def _send_to(
    stage: QueryStage, broker_name: str, topic: str, attempted: list[str]
) -> list[str]:
    """Send to one broker until it is gone; return what it acknowledged."""
    acknowledged: list[str] = []
    queue = eruca.MessageQueue(topic, broker_name, 0)
    async with stage.client.producer(retries_max=0) as producer:
        while True:
            ids = [f"{topic}-{len(attempted) + number}" for number in range(20)]
            attempted += ids
            messages = [eruca.Message(topic, "x" * 200, message_id=one) for one in ids]
            try:
                await producer.send_many(messages, queue=queue)
            except ErucaError:
                return acknowledged
            acknowledged += ids
