"""A broker that was taken away for good is forgotten when somebody says so, by all instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

import eruca
from eruca_broker.app import create_app
from eruca_query.projection.upkeep import Upkeep
from support.in_process_cluster import InProcessCluster, small_broker
from support.query_services import Queried, queried_by
from support.services import serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio
TOPIC = "flights"
GONE = "/v1/brokers/broker-b"


async def send(queried: Queried, broker: str) -> eruca.SendResult:
    queue = eruca.MessageQueue(TOPIC, broker, 0)
    async with queried.client.producer() as producer:
        return await producer.send(eruca.Message(TOPIC, broker), queue=queue)


async def stopped(cluster: InProcessCluster, queried: Queried) -> None:
    """Stop a broker, and wait until answers say so."""
    await cluster.take_broker_away("broker-b")
    await until_told(
        lambda: queried.get("/v1/messages", topic=TOPIC),
        lambda page: page["incomplete"],
    )


async def followed(queried: Queried) -> list[str]:
    return [its["broker_name"] for its in (await queried.get("/v1/status"))["followed"]]


async def kept_rows(queried: Queried) -> int | None:
    """Return how many rows of messages there are, whether or not they answer."""
    async with queried.database.transaction() as connection:
        count: int | None = await connection.scalar(text("SELECT count(*) FROM messages"))
    return count


async def test_nothing_is_missing_any_more_and_no_instance_follows_it(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with (
        queried_by(cluster, database_url, claim_seconds=1) as one,
        queried_by(cluster, database_url, claim_seconds=1) as other,
    ):
        await one.client.admin.create_topic(TOPIC, queue_count=1)
        kept, lost = await send(one, "broker-a"), await send(one, "broker-b")
        await one.caught_up()
        refused = await one.http.delete(GONE)
        await stopped(cluster, one)

        forgotten = await one.http.delete(GONE)
        page = await one.get("/v1/messages", topic=TOPIC)
        plan = await one.get(f"/v1/exports/{TOPIC}/plan")
        unknown = await one.http.get(f"/v1/messages/{lost.message_id}")
        again = await other.http.delete(GONE)

        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert cluster.namesrv_urls[0] in refused.json()["detail"]
        assert forgotten.status_code == httpx.codes.NO_CONTENT
        assert [its["message_id"] for its in page["messages"]] == [kept.message_id]
        assert page["incomplete"] == plan["incomplete"] == []
        assert unknown.status_code == httpx.codes.NOT_FOUND
        assert (again.status_code, again.json()["code"]) == (404, "broker-not-found")
        for its in (one, other):
            assert await followed(its) == ["broker-a"]
            await until_told(
                lambda its=its: its.http.get("/metrics"),  # type: ignore[misc]
                lambda answer: 'broker="broker-b"' not in answer.text,
            )
        await one.app.parts[Upkeep].step()
        await until_told(lambda: kept_rows(one), lambda count: count == 1)


async def test_one_that_comes_back_is_followed_from_the_beginning_of_its_log(
    cluster: InProcessCluster, database_url: str, tmp_path: Path
) -> None:
    async with queried_by(cluster, database_url, claim_seconds=1) as queried:
        await queried.client.admin.create_topic(TOPIC, queue_count=1)
        sent = await send(queried, "broker-b")
        await queried.caught_up()
        await stopped(cluster, queried)
        assert (await queried.http.delete(GONE)).status_code == httpx.codes.NO_CONTENT
        settings = small_broker("broker-b", cluster.namesrv_urls, tmp_path / "broker-b")

        async with serving(create_app(settings), settings):
            status = await until_told(
                lambda: queried.get("/v1/status"),
                lambda status: [its["rows"] for its in status["followed"]] == [0, 1],
            )
            found = await until_told(  # it asks the name servers every other second
                lambda: queried.get(f"/v1/messages/{sent.message_id}"),
                lambda found: not found["incomplete"],
            )

    assert status["followed"][1]["broker_name"] == "broker-b"
    assert found["message"]["body"] == {"text": "broker-b"}
    assert found["also_stored"] == []


async def test_where_it_cannot_be_told_whether_a_broker_is_gone_nothing_is_forgotten(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url) as queried:
        await queried.client.admin.create_topic(TOPIC, queue_count=1)
        await send(queried, "broker-b")
        await queried.caught_up()
        never = await queried.http.delete("/v1/brokers/broker-z")
        await cluster.stop_name_servers()

        refused = await queried.http.delete(GONE)
        left: list[Any] = await followed(queried)

    assert (never.status_code, never.json()["code"]) == (404, "broker-not-found")
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert left == ["broker-a", "broker-b"]


async def test_a_broker_that_is_away_is_not_forgotten_by_itself_even_when_it_is_to_be_read_again(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url, claim_seconds=1) as queried:
        await queried.client.admin.create_topic(TOPIC, queue_count=1)
        sent = await send(queried, "broker-b")
        await queried.caught_up()
        await stopped(cluster, queried)
        await queried.http.post("/v1/projection:rebuild")

        async with queried_by(cluster, database_url, claim_seconds=1) as other:
            await until_told(
                lambda: other.get("/v1/status"),
                lambda status: all(its["followed_by"] for its in status["followed"]),
            )
            found = await other.get(f"/v1/messages/{sent.message_id}")

    assert found["message"]["message_id"] == sent.message_id
