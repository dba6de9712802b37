"""Consumption of groups: the bytes of each message count once, or it counts as unsized."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import UnavailableError
from eruca_broker.processors.groups import consumption
from eruca_broker.processors.groups.consumption import Consumption
from eruca_broker.store.message_store import MessageStore

GROUP = "g"
QUEUES = (("orders", 0), ("orders", 1), ("bills", 0))
LENGTH = 40


def size_at(queue: tuple[str, int], offset: int) -> int:
    """Return a size that no other range of messages has."""
    return 1 << (offset + LENGTH * QUEUES.index(queue))


@dataclass
class Queues:
    """Queues whose messages are there from ``lowest`` on."""

    lowest: int = 0
    is_broken: bool = False
    asked: list[int] = field(default_factory=list)  # entries of each look

    def bytes_between(self, topic: str, queue_id: int, begin: int, end: int) -> tuple[int, int]:
        self.asked.append(end - begin)
        if self.is_broken:
            raise UnavailableError("the disk is gone")
        present = range(max(begin, self.lowest), end)
        return sum(size_at((topic, queue_id), offset) for offset in present), len(present)


class Cold:
    """Reads that take a turn of the loop, or last until *ready*; *is_cancelled* ends one."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self.count = 0
        self.ready: asyncio.Event | None = None  # reads last until then

    async def read(self, reader: str, read: Callable[[], Any]) -> Any:  # noqa: ANN401
        self.count += 1
        if self.ready is not None:
            await self.ready.wait()
        await asyncio.sleep(0)
        if self.is_cancelled:
            self.is_cancelled = False
            raise asyncio.CancelledError
        return read()


class Store:
    def __init__(self) -> None:
        self.places = Queues()
        self.cold = Cold()


def made() -> tuple[Consumption, Store]:
    store = Store()
    return Consumption(cast("MessageStore", store), 0), store


def totals(told: Consumption) -> tuple[int, int]:
    flows = [flow for _, flow in told.flows.items(lambda _: True)]
    return sum(flow.messages for flow in flows), sum(flow.bytes for flow in flows)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumption, "_PIECE_COUNT", 3)
    monkeypatch.setattr(consumption, "SUMMED_COUNT_MAX", 20)
    monkeypatch.setattr(consumption, "NOTED_MAX", 4)


OFFSETS = st.integers(0, LENGTH)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(QUEUES), st.none() | OFFSETS, OFFSETS),
        st.tuples(
            st.just("ack"), st.sampled_from(QUEUES), st.sets(st.integers(0, LENGTH - 1), max_size=6)
        ),
        st.tuples(st.just("settle")),
        st.tuples(st.just("cancelled settle")),
        st.tuples(st.just("delete"), OFFSETS),
    ),
    max_size=12,
)


@given(STEPS)
def test_every_message_is_summed_once_or_counted_as_unsized(steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        told, store = made()
        count = 0
        possible = 0  # bytes of all messages that were taken over
        taken: Collection[int]
        for what, *given_ in steps:
            if what == "commit":
                queue, before, offset = given_
                told.committed(GROUP, queue, before, offset)
                taken = range(offset if before is None else before, offset)
            elif what == "ack":
                queue, offsets = given_
                told.acknowledged(GROUP, queue, offsets)
                taken = offsets
            else:
                taken = ()
                if what == "delete":
                    store.places.lowest = max(store.places.lowest, given_[0])
                elif what == "settle":
                    await told.settle()
                else:
                    store.cold.is_cancelled = True
                    try:
                        await told.settle()
                    except asyncio.CancelledError:
                        assert not store.cold.is_cancelled
                    store.cold.is_cancelled = False
            count += len(taken)
            possible += sum(size_at(queue, offset) for offset in taken)
            assert told.noted_count <= consumption.NOTED_MAX
        await told.settle()

        messages, size = totals(told)
        assert (messages, told.noted_count) == (count, 0)
        assert 0 <= told.unsized_count <= count
        if told.unsized_count == 0:
            assert size == possible
        else:
            assert size < possible
        assert all(asked <= 3 for asked in store.places.asked)

    asyncio.run(run())


def test_ranges_that_follow_one_another_are_one_however_many_commits_there_were() -> None:
    told, _ = made()
    for offset in range(LENGTH):
        told.committed(GROUP, QUEUES[0], offset, offset + 1)

    assert told.noted_count == 1
    asyncio.run(told.settle())

    assert totals(told) == (LENGTH, sum(size_at(QUEUES[0], offset) for offset in range(LENGTH)))
    assert told.unsized_count == 0


def test_a_range_that_grows_while_it_is_summed_is_summed_to_its_end() -> None:
    told, _ = made()

    async def run() -> None:
        told.committed(GROUP, QUEUES[0], 0, 3)
        settling = asyncio.create_task(told.settle())
        await asyncio.sleep(0)  # it has begun to read
        told.committed(GROUP, QUEUES[0], 3, 5)
        await asyncio.gather(settling, told.settle())

    asyncio.run(run())

    assert totals(told) == (5, sum(size_at(QUEUES[0], offset) for offset in range(5)))


def test_a_reader_of_the_counters_does_not_wait_for_a_disk_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumption, "WAIT_SECONDS", 0)
    told, _ = made()

    async def run() -> None:
        told.committed(GROUP, QUEUES[0], 0, 5)
        await told.refresh()
        assert totals(told) == (5, 0)
        await told.settle()

    asyncio.run(run())

    assert totals(told) == (5, sum(size_at(QUEUES[0], offset) for offset in range(5)))


def test_readers_do_not_wait_for_sums_that_are_late_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumption, "WAIT_SECONDS", 0.01)
    told, store = made()

    async def run() -> None:
        store.cold.ready = asyncio.Event()
        told.committed(GROUP, QUEUES[0], 0, 3)
        await told.refresh()  # waits, and gives up
        assert store.cold.count == 1
        await told.refresh()
        assert store.cold.count == 1
        settling = asyncio.create_task(told.settle())
        await asyncio.sleep(0)
        monkeypatch.setattr(consumption, "WAIT_SECONDS", 3_600)
        reading = asyncio.create_task(told.refresh())  # within the limit
        await asyncio.sleep(0)
        assert not reading.done()
        store.cold.ready.set()
        await asyncio.gather(settling, reading)
        told.committed(GROUP, QUEUES[0], 3, 5)
        await told.refresh()  # nothing is late any more

    asyncio.run(run())

    assert totals(told) == (5, sum(size_at(QUEUES[0], offset) for offset in range(5)))


def test_a_queue_that_cannot_be_read_has_no_bytes_and_others_have() -> None:
    told, store = made()
    told.committed(GROUP, QUEUES[0], 0, 5)
    store.places.is_broken = True
    asyncio.run(told.settle())
    store.places.is_broken = False
    told.committed(GROUP, QUEUES[0], 5, 6)
    asyncio.run(told.settle())

    assert totals(told) == (6, size_at(QUEUES[0], 5))
    assert told.unsized_count == 5
