"""The read model is rebuilt from the logs: while it answers, while it grows, through kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest

from eruca_postgres.embedded import EmbeddedServer
from support.query_stage import QueryStage, query_stage
from support.waiting import until_told

pytestmark = pytest.mark.anyio

MESSAGES = 10_000


@pytest.fixture(scope="module")
async def stage(shared_server: EmbeddedServer) -> AsyncIterator[QueryStage]:
    shared_server.start()
    async with query_stage(shared_server) as stage:
        yield stage


async def rebuild(stage: QueryStage) -> None:
    answer = await stage.query.post("/v1/projection:rebuild")
    assert answer.status_code == httpx.codes.ACCEPTED, answer.text


async def asking(stage: QueryStage, topic: str, sent: Sequence[str], is_over: asyncio.Event) -> int:
    """Ask for what was sent, until it is over: each answer must have all of it."""
    count = 0
    while not is_over.is_set():
        message_id = sent[count * 17 % len(sent)]
        found = await stage.get(f"/v1/messages/{message_id}")
        assert found["message"]["message_id"] == message_id
        page = await stage.get("/v1/messages", topic=topic, limit=1_000)
        assert len(page["messages"]) == 1_000
        assert page["incomplete"] == found["incomplete"] == []
        count += 1
    return count


async def test_it_answers_completely_while_it_is_rebuilt_and_messages_come(
    stage: QueryStage, topic: str
) -> None:
    await stage.client.admin.create_topic(topic, queue_count=2)
    sent = await stage.send(MESSAGES, topic=topic)
    await stage.caught_up()
    is_over = asyncio.Event()
    asker = asyncio.create_task(asking(stage, topic, sent, is_over))

    await rebuild(stage)
    building = await stage.get("/v1/status")
    more = await stage.send(1_000, topic=topic)
    await stage.rebuilt()
    is_over.set()

    assert await asker > 0
    assert building["followed"][0]["rebuild"] is not None
    await stage.check([*sent, *more], topic=topic)


async def test_a_service_that_is_killed_while_it_rebuilds_rows_goes_on_with_it(
    stage: QueryStage, topic: str
) -> None:
    await stage.client.admin.create_topic(topic, queue_count=2)
    sent = await stage.send(MESSAGES, topic=topic)
    await stage.caught_up()

    await rebuild(stage)
    await until_told(
        lambda: stage.get("/v1/status"),
        lambda status: (
            (its := status["followed"][0]["rebuild"]) is None or (its["log_offset"] or 0) > 0
        ),
    )
    await stage.cluster.kill("query")
    await stage.cluster.restart("query")
    found = await stage.get(f"/v1/messages/{sent[0]}")
    await stage.rebuilt()

    assert found["message"]["message_id"] == sent[0]
    await stage.check(sent, topic=topic)


async def test_a_request_while_it_is_rebuilt_starts_over_and_ends_well(
    stage: QueryStage, topic: str
) -> None:
    await stage.client.admin.create_topic(topic, queue_count=2)
    sent = await stage.send(MESSAGES // 2, topic=topic)
    await stage.caught_up()

    for _ in range(4):
        await rebuild(stage)
    await stage.rebuilt()

    await stage.check(sent, topic=topic)


async def test_rows_that_were_lost_are_all_made_again(stage: QueryStage, topic: str) -> None:
    await stage.client.admin.create_topic(topic, queue_count=2)
    sent = await stage.send(MESSAGES // 2, topic=topic)
    await stage.caught_up()
    await stage.cluster.kill("query")
    stage.lose_all_rows()

    await stage.cluster.restart("query")
    found = await until_told(
        lambda: stage.query.get(f"/v1/messages/{sent[0]}"),
        lambda answer: answer.status_code != httpx.codes.SERVICE_UNAVAILABLE,
    )

    assert found.json()["message"]["message_id"] == sent[0]
    await stage.check(sent, topic=topic)
