"""Readers with a condition that others have used: the same answers, with fewer evaluations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eruca.contract.properties import encode_properties
from eruca.contract.records import Record, encode_record
from eruca.core.filters.sql92 import Sql92Filter, compile_sql92
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.consuming.known_mismatches import KnownMismatches
from eruca_broker.core.state.events import TopicDeleted, TopicPut
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.stores import delete_oldest_segments, small_settings, without_log_lines

pytestmark = pytest.mark.anyio
COUNT = 60
CONDITIONS = [compile_sql92(text) for text in ("n = 7", "n = 13 OR n = 59", "n > 100", "n < 5")]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.sampled_from(CONDITIONS), st.integers(0, COUNT)),
        st.tuples(st.just("send"), st.integers(0, 120), st.just(0)),
        st.tuples(st.just("retention"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
        st.tuples(st.just("delete the topic"), st.integers(0, 120), st.just(0)),
    ),
    max_size=25,
)


class Stage:
    """A store whose reader remembers, and what a reader that does not would find."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store: MessageStore

    async def open(self) -> None:
        self.store = await MessageStore.open(self.directory, small_settings(), ManualClock())

    async def begin(self) -> None:
        await self.store.change(TopicPut("orders", 1, 1, "rw"))

    async def send(self, number: int) -> None:
        properties = encode_properties({"UNIQ_KEY": f"id{number}", "n": str(number)})
        record = encode_record(Record(topic="orders", body=b"x" * 400, properties=properties))
        await self.store.append(batch_of_records("orders", 0, [record]))

    def drain(self, condition: Sql92Filter, offset: int) -> tuple[list[bytes], int]:
        """Return all matches from *offset* on, and where the last read ended."""
        found: list[bytes] = []
        while True:
            read = self.store.queues.read(
                "orders", 0, offset, count_max=3, bytes_max=1 << 20, sql92=condition
            )
            found += map(bytes, read.raws())
            if read.next_offset == offset or read.next_offset >= read.max_offset:
                return found, read.next_offset
            offset = read.next_offset

    def forget(self) -> None:
        self.store.queues._mismatches = KnownMismatches()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    with without_log_lines():
        stage = Stage(tmp_path)
        await stage.open()
        await stage.begin()
        for number in range(COUNT):
            await stage.send(number)
        yield stage
        await stage.store.close()


@given(steps=STEPS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_answers_are_those_of_a_reader_that_remembers_nothing(
    stage: Stage, steps: list[tuple[str, Any, int]]
) -> None:
    for step, what, offset in steps:
        if step == "read":
            remembered = stage.store.queues._mismatches
            answer = stage.drain(what, offset)
            stage.forget()
            assert answer == stage.drain(what, offset)
            stage.store.queues._mismatches = remembered
        elif step == "send":
            await stage.send(what)
        elif step == "retention":
            await delete_oldest_segments(stage.store, 1)
        elif step == "restart":
            await stage.store.close()
            await stage.open()
        else:
            await stage.store.change(TopicDeleted("orders"))
            await stage.begin()
            for _ in range(20):
                await stage.send(what)


async def test_the_second_reader_evaluates_only_what_may_match(stage: Stage) -> None:
    queues = stage.store.queues
    first = stage.drain(CONDITIONS[0], 0)
    evaluated = queues.evaluated_count
    second = stage.drain(CONDITIONS[0], 0)

    assert first == second
    assert evaluated == COUNT
    assert queues.evaluated_count - evaluated == 1  # the match itself
    assert queues.spared_count == COUNT - 1


async def test_another_condition_is_evaluated(stage: Stage) -> None:
    stage.drain(CONDITIONS[0], 0)
    stage.drain(CONDITIONS[1], 0)
    assert stage.store.queues.evaluated_count == 2 * COUNT


async def test_what_is_passed_over_is_not_read_from_the_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.drain(CONDITIONS[2], 0)
    view = stage.store._log.view
    places: set[int] = set()

    def noting(offset: int, size: int, *, is_needed: bool = False) -> memoryview:
        places.add(offset)
        return view(offset, size, is_needed=is_needed)

    monkeypatch.setattr(stage.store._log, "view", noting)
    assert stage.drain(CONDITIONS[2], 0) == ([], COUNT)
    assert not places
    stage.forget()
    stage.drain(CONDITIONS[2], 0)
    assert len(places) == COUNT
