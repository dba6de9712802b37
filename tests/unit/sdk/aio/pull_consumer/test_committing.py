"""The pull consumer without a network: commits."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from support.pulled_queues import Queues, texts
from support.scripted_transport import Request, transport_of
from support.waiting import until_told

pytestmark = pytest.mark.anyio


async def test_a_commit_that_fails_is_made_up_for_by_the_next(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, "x")
    rest = transport_of(client)

    async def refusing(request: Request) -> HttpResponse:
        if request.method == "PUT":
            raise eruca.TransportError("cut")
        return await queues.rest(request)

    rest.answer = refusing
    async with client.pull_consumer("g", topics="orders", commit_seconds=0) as consumer:
        await consumer.poll(wait_seconds=20)
        assert (
            await consumer.poll(wait_seconds=0.01) == []
        )  # its commit failed, and no message is lost
        with pytest.raises(eruca.TransportError):
            await consumer.commit()
        rest.answer = queues.rest
        await consumer.commit()

    offsets = [commit for request in queues.commits for commit in request["offsets"]]
    assert {"topic": "orders", "queue_id": 0, "offset": 1} in offsets


async def test_a_broker_that_hangs_at_a_commit_holds_up_no_messages_of_another(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, "from a")
    queues.store(0, "from b", broker="b")
    rest = transport_of(client)
    is_back = asyncio.Event()
    under_way, most_under_way = 0, 0

    async def hanging(request: Request) -> HttpResponse:
        if request.method == "PUT" and request.url == "http://a":
            nonlocal under_way, most_under_way
            under_way += 1
            most_under_way = max(under_way, most_under_way)
            try:
                await is_back.wait()
            finally:
                under_way -= 1
        return await queues.rest(request)

    rest.answer = hanging
    async with client.pull_consumer("g", topics="orders", commit_seconds=0) as consumer:
        await until_told(
            lambda: consumer.poll(wait_seconds=20), lambda seen: "from a" in texts(seen)
        )
        await consumer.poll(wait_seconds=0.001)  # commits
        queues.store(0, "later", broker="b")
        assert texts(await consumer.poll(wait_seconds=20)) == ["later"]
        assert most_under_way == 1  # or an older position could come last
        is_back.set()
        await consumer.commit()

    stored = [commit for request in queues.commits for commit in request["offsets"]]
    assert {"topic": "orders", "queue_id": 0, "offset": 1} in stored


async def test_a_close_that_is_cancelled_at_the_last_commit_is_gone_through_with(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, "x")
    rest = transport_of(client)
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> HttpResponse:
        if request.method == "PUT":
            is_asked.set()
            await may_answer.wait()
        return await queues.rest(request)

    rest.answer = slow
    consumer = client.pull_consumer("g", topics="orders")
    await until_told(lambda: consumer.poll(wait_seconds=20))
    closing = asyncio.create_task(consumer.close())
    await is_asked.wait()

    closing.cancel()
    await asyncio.wait([closing])
    may_answer.set()
    await client.close()  # waits for it

    stored = [commit for request in queues.commits for commit in request["offsets"]]
    assert {"topic": "orders", "queue_id": 0, "offset": 1} in stored


async def test_offsets_that_have_not_moved_are_not_committed_again(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, "x")
    async with client.pull_consumer("g", topics="orders", commit_seconds=0) as consumer:
        await consumer.poll(wait_seconds=20)
        for _ in range(5):
            await consumer.poll(wait_seconds=0.001)
        count = len(queues.commits)
        for _ in range(5):
            await consumer.poll(wait_seconds=0.001)

    assert len(queues.commits) == count


async def test_offsets_that_are_given_are_committed_though_they_were_before(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    """Somebody may have reset the group in between."""
    queue = eruca.MessageQueue("orders", "a", 0)
    async with client.pull_consumer("g", topics="orders", commit_seconds=None) as consumer:
        await consumer.commit({queue: 8})
        await consumer.commit({queue: 8})

    assert [commit["offsets"][0]["offset"] for commit in queues.commits] == [8, 8]
