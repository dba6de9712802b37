"""The producer without a network: what leaves together, and when."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from types import CoroutineType, FrameType

import pytest

import eruca
from support.sending_clients import Gate, bodies, client_of, message, storing
from support.waiting import stays, until

pytestmark = pytest.mark.anyio


# Batches.


async def test_what_is_sent_in_one_turn_of_the_loop_leaves_in_one_batch() -> None:
    client, hot = client_of(storing)
    async with client, client.producer() as producer:
        await asyncio.gather(*(producer.send(message(str(n))) for n in range(5)))

    assert [bodies(request) for request in hot.requests] == [[b"0", b"1", b"2", b"3", b"4"]]


async def test_sending_leaves_nothing_for_the_cycle_collector() -> None:
    client, _ = client_of(storing)
    async with client, client.producer() as producer:
        await producer.send(message())
        gc.collect()
        gc.disable()
        try:
            await asyncio.gather(*(producer.send(message(str(n))) for n in range(100)))
            await producer.send_many([message(str(n)) for n in range(100)])
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            assert [repr(left)[:200] for left in gc.garbage if is_of_sending(left)] == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


def is_of_sending(left: object) -> bool:
    """Return whether garbage is the SDK's, not that of a socket from an earlier test."""
    if isinstance(left, BaseException | asyncio.Future | FrameType | CoroutineType):
        return True
    return str(getattr(left, "__module__", "")).startswith("eruca")


async def test_a_full_batch_leaves_and_another_begins() -> None:
    client, hot = client_of(storing)
    async with client, client.producer(batching=eruca.Batching(count_max=3)) as producer:
        await asyncio.gather(*(producer.send(message(str(n))) for n in range(8)))

    assert sorted(len(request.records) for request in hot.requests) == [2, 3, 3]


async def test_a_batch_has_a_largest_size_and_a_larger_message_travels_alone() -> None:
    client, hot = client_of(storing)
    async with (
        client,
        client.producer(
            batching=eruca.Batching(bytes_max=3_000), compression_threshold_bytes=None
        ) as producer,
    ):
        sizes = [1_000, 1_000, 1_000, 9_000, 1_000]
        await asyncio.gather(*(producer.send(message("x" * size)) for size in sizes))

    assert sorted([len(b) for b in bodies(request)] for request in hot.requests) == [
        [1_000],
        [1_000],
        [1_000, 1_000],
        [9_000],
    ]


async def test_while_a_batch_is_under_way_the_next_fills_until_it_is_back() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client, client.producer(batching=eruca.Batching(linger_ms=60_000)) as producer:
        sends = [asyncio.create_task(producer.send(message("0")))]
        await until(lambda: gate.waiting)
        for number in range(1, 4):
            sends.append(asyncio.create_task(producer.send(message(str(number)))))
            await asyncio.sleep(0)
        assert len(gate.waiting) == 1

        gate.open()
        await until(lambda: gate.waiting)

        assert bodies(gate.waiting[0][0]) == [b"1", b"2", b"3"]
        gate.open()
        await asyncio.gather(*sends)


async def test_after_the_linger_time_a_batch_leaves_beside_others() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(linger_ms=1, in_flight_max=2)) as producer,
    ):
        sends = []
        for number in range(2):
            sends.append(asyncio.create_task(producer.send(message(str(number)))))
            await until(partial(gate.holds, number + 1))
        sends.append(asyncio.create_task(producer.send(message("2"))))
        await stays(lambda: len(gate.waiting) == 2)

        assert [bodies(request) for request, _ in gate.waiting] == [[b"0"], [b"1"]]
        gate.open()
        await until(lambda: len(gate.waiting) == 2)
        assert bodies(gate.waiting[-1][0]) == [b"2"]
        while gate.waiting:
            gate.open()
        await asyncio.gather(*sends)


async def test_of_one_queue_only_one_batch_is_under_way() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(linger_ms=0, in_flight_max=8)) as producer,
    ):
        sends = [asyncio.create_task(producer.send(message("0", sharding_key="k")))]
        await until(lambda: gate.waiting)
        for text in ("1", "2"):
            sends.append(asyncio.create_task(producer.send(message(text, sharding_key="k"))))
        await stays(lambda: len(gate.waiting) == 1)

        gate.open()
        await until(lambda: gate.waiting)

        assert [bodies(request) for request, _ in gate.waiting] == [[b"1", b"2"]]
        gate.open()
        await asyncio.gather(*sends)


async def test_flushing_does_not_wait_for_company() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(linger_ms=60_000, in_flight_max=2)) as producer,
    ):
        await producer.submit(message("0"))
        await until(lambda: gate.waiting)
        await producer.submit(message("1"))
        flushing = asyncio.create_task(producer.flush())
        await until(lambda: len(gate.waiting) == 2)

        assert not flushing.done()
        gate.open()
        gate.open()
        await flushing


async def test_a_flush_that_takes_too_long_says_so() -> None:
    client, _ = client_of(Gate())
    async with client:
        producer = client.producer()
        sent = await producer.submit(message())
        with pytest.raises(eruca.TimeoutExpiredError):
            await producer.flush(timeout_seconds=0.01)
        await producer.close(drain=False)
        assert isinstance(sent.exception(), eruca.ClosedError)
