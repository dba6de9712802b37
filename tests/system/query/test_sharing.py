"""Two query services share the brokers' logs, and one goes on alone when the other is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eruca_postgres.embedded import EmbeddedServer
from support.query_stage import QueryStage, query_stage
from support.waiting import until_told

pytestmark = pytest.mark.anyio

MESSAGES = 10_000
BOTH = ["broker-a", "broker-b"]


@pytest.fixture(scope="module")
async def stage(shared_server: EmbeddedServer) -> AsyncIterator[QueryStage]:
    shared_server.start()
    async with query_stage(shared_server, brokers=2, queries=2) as stage:
        yield stage


async def shares(stage: QueryStage) -> dict[str, list[str]]:
    """Return whose logs each instance follows."""
    return {
        name: (await stage.get("/v1/status", service=name))["brokers"] for name in stage.services
    }


def follows_all(status: dict[str, Any]) -> bool:
    """Tell whether the sender of this status follows every log, and readers see that."""
    followers = {log["followed_by"] for log in status["followed"]}
    return status["brokers"] == BOTH and followers == {status["name"]}


async def until_shared(stage: QueryStage) -> None:
    """Wait until each instance follows one log."""
    told = await until_told(
        lambda: shares(stage), lambda told: all(len(names) == 1 for names in told.values())
    )
    assert sorted(name for names in told.values() for name in names) == BOTH


async def test_each_follows_one_log_and_both_tell_the_same(stage: QueryStage, topic: str) -> None:
    await until_shared(stage)
    await stage.client.admin.create_topic(topic, queue_count=2)
    sent = await stage.send(1_000, topic=topic)

    await stage.check(sent, topic=topic)

    first, second = [await stage.get("/v1/status", service=name) for name in ("query", "query-2")]
    names = {first["name"], second["name"]}
    assert {log["followed_by"] for log in first["followed"]} == names
    assert await stage.ids(topic=topic, service="query-2") == await stage.ids(topic=topic)


async def test_when_one_is_killed_the_other_reads_on_where_it_was(
    stage: QueryStage, topic: str
) -> None:
    await until_shared(stage)
    await stage.client.admin.create_topic(topic, queue_count=2)
    sending = asyncio.create_task(stage.send(MESSAGES, topic=topic))
    await stage.until_read(0.3)

    await stage.cluster.kill("query-2")
    await until_told(lambda: stage.get("/v1/status"), follows_all)
    sent = await sending
    await stage.check(sent, topic=topic)
    await stage.cluster.restart("query-2")

    await until_shared(stage)
    more = await stage.send(100, topic=topic)
    await stage.check([*sent, *more], topic=topic, service="query-2")


async def test_a_client_goes_on_with_the_one_that_is_left(stage: QueryStage, topic: str) -> None:
    await stage.client.admin.create_topic(topic, queue_count=2)
    [message_id] = await stage.send(1, topic=topic)
    killed = "query-2"
    await stage.cluster.kill(killed)

    answers: list[Any] = [
        (await stage.client.query.message(message_id)).message.message_id for _ in range(10)
    ]
    await stage.cluster.restart(killed)

    assert answers == [message_id] * 10
