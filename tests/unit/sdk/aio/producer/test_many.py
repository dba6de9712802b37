"""The producer without a network: many messages at once, and which of them failed."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.aio.sending.bulk_send import BULK_IN_FLIGHT_MAX
from support.loop_clock import moved_clock
from support.scripted_transport import Request, problem_answer, receipt_answer
from support.sending_clients import Gate, bodies, client_of, message
from support.waiting import stays, until

pytestmark = pytest.mark.anyio


# Many at once.


async def test_if_some_batches_fail_the_error_tells_for_each_message() -> None:
    async def broker(request: Request) -> HttpResponse:
        if b"3" in bodies(request):
            return problem_answer(eruca.ValidationError("three"))
        return receipt_answer(request)

    client, _ = client_of(broker)
    async with client, client.producer(batching=eruca.Batching(count_max=2)) as producer:
        with pytest.raises(eruca.PartialSendError, match="2 of 6 messages") as partial:
            await producer.send_many([message(str(n)) for n in range(6)])

    assert partial.value.failed_indexes == [2, 3]
    assert [type(outcome).__name__ for outcome in partial.value.outcomes] == [
        "SendResult",
        "SendResult",
        "ValidationError",
        "ValidationError",
        "SendResult",
        "SendResult",
    ]


async def test_if_nothing_was_stored_the_error_is_the_first_batchs() -> None:
    async def broker(_: Request) -> HttpResponse:
        return problem_answer(eruca.ValidationError("no"))

    client, _ = client_of(broker)
    async with client, client.producer(batching=eruca.Batching(count_max=2)) as producer:
        with pytest.raises(eruca.ValidationError):
            await producer.send_many([message(str(n)) for n in range(6)])


async def test_only_some_batches_of_many_are_under_way_at_a_time() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(count_max=1, in_flight_max=3)) as producer,
    ):
        sending = asyncio.create_task(producer.send_many([message(str(n)) for n in range(9)]))
        for left in range(9, 0, -1):
            await until(partial(gate.holds, min(left, 3)))
            await stays(partial(gate.holds, min(left, 3)), for_seconds=0.01)
            gate.open()
        assert len(await sending) == 9


def keyed(count: int) -> list[eruca.Message]:
    """Return messages of so many sharding keys."""
    return [message(str(n), sharding_key=f"key-{n}") for n in range(count)]


async def test_of_many_queues_only_some_are_sent_to_at_a_time() -> None:
    gate = Gate()
    client, _ = client_of(gate, queue_count=500)
    async with client, client.producer() as producer:
        sending = asyncio.create_task(producer.send_many(keyed(2_000)))
        await until(partial(gate.holds, BULK_IN_FLIGHT_MAX))
        await stays(partial(gate.holds, BULK_IN_FLIGHT_MAX), for_seconds=0.05)
        while not sending.done():
            while gate.waiting:
                gate.open()
            await asyncio.sleep(0)
        assert len(await sending) == 2_000


async def test_many_batches_take_longer_together_than_each_of_them_may() -> None:
    turns = itertools.count()

    async def broker(request: Request) -> HttpResponse:
        if next(turns) % BULK_IN_FLIGHT_MAX == 0:
            clock.advance(20)  # seconds that a slow machine needs for as many
        return receipt_answer(request)

    client, hot = client_of(broker, queue_count=500)
    async with client, client.producer(send_timeout_seconds=30) as producer:
        with moved_clock() as clock:
            results = await producer.send_many(keyed(2_000))

    assert len(results) == 2_000
    assert len(hot.requests) > 10 * BULK_IN_FLIGHT_MAX


async def test_where_nothing_is_stored_for_a_time_the_rest_of_many_fails_untried() -> None:
    client, hot = client_of(Gate(), queue_count=500)
    async with client, client.producer(send_timeout_seconds=30, retries_max=0) as producer:
        with moved_clock() as clock:
            sending = asyncio.create_task(producer.send_many(keyed(2_000)))
            await until(lambda: len(hot.requests) == BULK_IN_FLIGHT_MAX)
            clock.advance(40)
            with pytest.raises(eruca.SendFailedError):
                await sending

    assert len(hot.requests) == BULK_IN_FLIGHT_MAX


async def test_of_many_the_error_says_of_what_was_not_tried_that_it_was_not() -> None:
    turns = itertools.count()

    async def broker(request: Request) -> HttpResponse:
        if next(turns):
            await asyncio.Event().wait()  # only the first is answered
        return receipt_answer(request)

    client, hot = client_of(broker, queue_count=500)
    async with client, client.producer(send_timeout_seconds=30, retries_max=0) as producer:
        with moved_clock() as clock:
            sending = asyncio.create_task(producer.send_many(keyed(2_000)))
            await until(lambda: len(hot.requests) == BULK_IN_FLIGHT_MAX + 1)
            while not sending.done():
                clock.advance(40)
                await asyncio.sleep(0)
            with pytest.raises(eruca.PartialSendError) as partial_error:
                await sending

    details = {str(outcome) for outcome in partial_error.value.outcomes}
    assert any(detail.startswith("not tried: no batch was stored for 30 s") for detail in details)


async def test_cancelling_many_takes_back_what_has_not_left() -> None:
    gate = Gate()
    client, hot = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(count_max=1, in_flight_max=1)) as producer,
    ):
        sending = asyncio.create_task(producer.send_many([message(str(n)) for n in range(9)]))
        await until(lambda: gate.waiting)
        sending.cancel()
        await asyncio.wait([sending])
        gate.open()
        await producer.flush()

    assert (sending.cancelled(), len(hot.requests)) == (True, 1)
