"""The loop that fires timers, over a real store and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eruca.contract.errors import DiskFullError
from eruca.contract.records import Record, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.timers_events import waiting_record_size_max
from eruca_broker.core.state.topic_events import TopicDeleted, TopicPut
from eruca_broker.loops import timers as loop_module
from eruca_broker.loops.timers import TimerLoop
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.stores import message, small_settings

pytestmark = pytest.mark.anyio
TOPIC = "orders"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Running:
    """A store whose timers are being fired."""

    def __init__(self, store: MessageStore, clock: ManualClock, timers: Timers) -> None:
        self.store = store
        self.clock = clock
        self.timers = timers
        self._arrived = asyncio.Event()
        store.on_arrival = lambda _: self._arrived.set()

    async def set(self, *delays_ms: int) -> None:
        now = self.clock.now_ms()
        batches = []
        for delay_ms in delays_ms:
            wait = Wait(deliver_at_ms=now + delay_ms)
            raw = encode_record(Record(topic=TOPIC, body=b"%d" % delay_ms))
            record = waiting(raw, wait, Destination(TOPIC, 0))
            batches.append(batch_of_records(*wait.place, [record]))
        await self.store.append_group(batches)

    @property
    def delivered(self) -> list[bytes]:
        first, end = self.store.queues.range(TOPIC, 0)
        found = []
        for offset in range(first, end):
            read = self.store.queues.read(TOPIC, 0, offset, count_max=1, bytes_max=1)
            piece = bytes(read.slices[0])
            found.append(piece[88 : 88 + int.from_bytes(piece[84:88])])
        return found

    async def until(self, count: int) -> list[bytes]:
        """Wait until so many have been delivered."""
        while len(self.delivered) < count:
            self._arrived.clear()
            async with asyncio.timeout(10):
                await self._arrived.wait()
        return self.delivered


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Running]:
    clock = ManualClock()
    store = await MessageStore.open(directory, small_settings(segment_bytes=256 * 1024), clock)
    await store.change(TopicPut(TOPIC, 1, 1, "rw"))
    timers = Timers(store, clock)
    loop = TimerLoop(store, timers, clock)
    run = Running(store, clock, timers)
    loop.start()
    try:
        yield run
    finally:
        await loop.stop()
        await store.close()


async def test_what_is_due_comes_in_order_and_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.set(5_000, 300, 40_000, 200)
        run.clock.advance(6)

        assert await run.until(3) == [b"200", b"300", b"5000"]
        assert len(run.store.timers) == 1


async def test_an_earlier_timer_wakes_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "SLEEP_SECONDS_MAX", 3_600.0)
    async with running(tmp_path) as run:
        await run.set(900_000)
        await asyncio.sleep(0)

        await run.set(0)

        assert await run.until(1) == [b"0"]


async def test_a_clock_set_forward_and_back_delivers_once(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.set(60_000, 120_000)
        run.clock.advance(60)
        assert await run.until(1) == [b"60000"]

        run.clock.advance(-3_600)
        await run.set(1_000)
        run.clock.advance(2)
        assert await run.until(2) == [b"60000", b"1000"]

        run.clock.advance(3_600 + 60)
        assert await run.until(3) == [b"60000", b"1000", b"120000"]
        assert len(run.store.timers) == 0


async def test_what_comes_due_while_writes_are_refused_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "REFUSED_SECONDS", 0.01)
    async with running(tmp_path) as run:
        await run.set(10, 20)
        run.store.refusal = DiskFullError("full")
        run.clock.advance(1)
        with pytest.raises(DiskFullError):
            await run.timers.fire()  # as the loop does, over and over
        assert run.delivered == []
        assert len(run.store.timers) == 2

        run.store.refusal = None

        assert await run.until(2) == [b"10", b"20"]


async def test_more_than_one_write_holds_come_in_several(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.set(*range(600))
        run.clock.advance(1)

        assert await run.until(600) == [b"%d" % number for number in range(600)]


async def test_a_message_as_large_as_may_wait_is_delivered_though_those_behind_it_are_dropped(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    store = await MessageStore.open(tmp_path, small_settings(segment_bytes=64 * 1024), clock)
    wait = Wait(level=1)

    async def delay(topic: str, body: bytes) -> None:
        record = waiting(message(topic, 0, body), wait, Destination(topic, 0))
        await store.append(batch_of_records(*wait.place, [record]))

    for topic in (TOPIC, "deleted"):
        await store.change(TopicPut(topic, 1, 1, "rw"))
    empty = len(waiting(message(TOPIC, 0, b""), wait, Destination(TOPIC, 0)))
    await delay(TOPIC, bytes(waiting_record_size_max(store.segment_bytes) - empty))
    for _ in range(60):
        await delay("deleted", b"body")
    await store.change(TopicDeleted("deleted"))
    clock.advance(2)
    timers = Timers(store, clock)

    assert await timers.fire() == 1
    assert await timers.fire() == 60

    assert store.queues.range(TOPIC, 0) == (0, 1)
    assert timers.counts.dropped == 60
    await store.close()
