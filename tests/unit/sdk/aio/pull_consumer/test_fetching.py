"""The pull consumer without a network: what it asks for, and how much it holds ready."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import eruca
from eruca.aio import pull_consumer
from eruca.aio.http.transport import HttpResponse
from eruca.contract.wire import PullStatus
from support.pulled_queues import Queues, head, multi_pull, texts
from support.scripted_transport import Request, ScriptedTransport
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_all_queues_of_a_broker_wait_in_one_request(
    client: eruca.AsyncClient, queues: Queues, hot: ScriptedTransport
) -> None:
    async with client.pull_consumer(topics="orders") as consumer:
        await consumer.assignment()
        await until(lambda: queues.held == 2)

        assert [len(msgspec.json.decode(r.body)["queues"]) for r in hot.requests] == [2, 2]


async def test_a_queue_with_room_does_not_wait_for_a_request_that_is_held(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    async with client.pull_consumer(topics="orders", prefetch_count_max=2) as consumer:
        await consumer.assignment()
        await until(lambda: queues.held == 2)
        queues.store(0, *map(str, range(10)))
        seen: list[str] = []
        while len(seen) < 10:
            seen += texts(await consumer.poll(count_max=1, wait_seconds=20))

    assert seen == [str(number) for number in range(10)]


async def test_a_queue_that_was_paused_from_the_beginning_waits_for_no_request_once_it_is_resumed(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    paused, other = (eruca.MessageQueue("orders", "a", queue_id) for queue_id in range(2))
    async with client.pull_consumer(queues=[paused, other], start="earliest") as consumer:
        await consumer.pause(paused)
        await until(lambda: queues.held == 1)
        queues.stored["a", 0] = [b"0"]  # without waking the request, which is held for the other

        await consumer.resume(paused)
        messages = await consumer.poll(wait_seconds=20)

        assert (texts(messages), queues.held) == (["0"], 1)


async def test_pulls_are_sent_while_no_poll_waits(
    client: eruca.AsyncClient,
    queues: Queues,
    hot: ScriptedTransport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pull_consumer, "TURN_SECONDS", 0.0)
    queues.store(0, *map(str, range(100)))
    async with client.pull_consumer(
        topics="orders", start="earliest", prefetch_count_max=20
    ) as consumer:
        await consumer.poll(count_max=1, wait_seconds=20)
        before = len(hot.requests)

        for _ in range(12):  # more than half of what is prefetched
            await consumer.poll(count_max=1, wait_seconds=0)

        assert len(hot.requests) > before
        assert max(flow.count for flow in consumer._assignment.flows) > 7, "it has been answered"


async def test_queues_that_get_room_in_one_turn_are_pulled_by_one_request(
    client: eruca.AsyncClient,
    queues: Queues,
    hot: ScriptedTransport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pull_consumer, "TURN_SECONDS", 60.0)
    for queue_id in range(2):
        queues.store(queue_id, *map(str, range(20)))
    async with client.pull_consumer(
        topics="orders", start="earliest", prefetch_count_max=4
    ) as consumer:
        await consumer.poll(count_max=1, wait_seconds=20)
        await until(lambda: not consumer._assignment.flows[0].is_pulling)
        before = len(hot.requests)

        for _ in range(6):  # of eight that are prefetched
            assert await consumer.poll(count_max=1, wait_seconds=0)
        await until(lambda: len(hot.requests) > before)

        [request] = hot.requests[before:]
        assert len(msgspec.json.decode(request.body)["queues"]) == 2


async def test_no_more_is_held_ready_than_allowed(
    client: eruca.AsyncClient, queues: Queues, hot: ScriptedTransport
) -> None:
    queues.store(0, *map(str, range(1_000)))
    queues.store(1, *map(str, range(1_000)))

    async with client.pull_consumer(topics="orders", prefetch_count_max=10) as consumer:
        await consumer.poll(count_max=1, wait_seconds=20)
        for _ in range(50):
            await asyncio.sleep(0)
        fetched = sum(flow.count for flow in consumer._assignment.flows)

    assert fetched <= 20
    assert len(hot.requests) < 10


async def test_bytes_held_ready_are_limited_as_well(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    for queue_id in range(2):
        queues.store(queue_id, *("x" * 1_000 for _ in range(1_000)))

    async with client.pull_consumer(topics="orders", prefetch_bytes_max=50_000) as consumer:
        count = 0
        while count < 2_000:
            count += len(await consumer.poll(wait_seconds=20))
            asked = consumer._assignment._prefetch.size
            # The scripted broker heeds the count only, so that one answer may overshoot.
            assert asked == sum(flow.size for flow in consumer._assignment.flows)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage",
        multi_pull([(7, head(PullStatus.NO_NEW_MESSAGE))]),
        multi_pull([(0, b"ERP1")]),
        multi_pull([(0, head(PullStatus.FOUND, [bytes(100)]))]),
    ],
    ids=["nothing", "garbage", "a queue nobody asked for", "a cut block", "records missing"],
)
async def test_an_answer_that_cannot_be_read_is_a_failure_and_is_tried_again(
    client: eruca.AsyncClient, queues: Queues, hot: ScriptedTransport, answer: bytes
) -> None:
    bad = 4

    async def pull(request: Request) -> HttpResponse:
        nonlocal bad
        if bad:
            bad -= 1
            return HttpResponse(200, {}, answer)
        return await queues.pull(request)

    hot.answer = pull
    queues.store(0, "x")
    async with client.pull_consumer(topics="orders") as consumer:
        assert texts(await consumer.poll(wait_seconds=20)) == ["x"]
