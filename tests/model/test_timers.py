"""Timers of a real store beside a model, with kills, power cuts, full disks and clock steps.

The model is :class:`support.timer_model.TimerModel`, a fold over the records of the log. Whatever
happens, in whatever order, each delayed message waits exactly once, or was delivered exactly once,
or was recalled; and what the store holds pending is what the model does.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eruca.contract.errors import DiskFullError
from eruca.contract.properties import UNIQ_KEY, encode_properties
from eruca.contract.records import Record, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import DELAYED_TOPICS, Destination, Wait, waiting
from eruca_broker.core.state.events import Event
from eruca_broker.core.state.timers import Timer
from eruca_broker.core.state.timers_events import TimersCancelled
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.log_model import read_log
from support.stores import abandon, delete_oldest_segments, scratch_directory, small_settings
from support.timer_model import TimerModel
from support.torn_logs import cut_log, delete_projections

Result = TypeVar("Result")
TOPIC = "orders"

waits = st.one_of(
    st.builds(lambda level: (level, 0), st.integers(1, 18)),
    st.builds(lambda delay: (0, delay), st.integers(1, 400_000)),
)
sets = st.lists(st.tuples(waits, st.sampled_from([1, 300, 3_000])), min_size=1, max_size=5)
projections = st.sets(st.sampled_from(["consumequeue", "index", "config", "checkpoint"]))


class TimersMachine(RuleBasedStateMachine):
    """One store directory, whatever happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = scratch_directory()
        self.directory = self.root / "store"
        self.clock = ManualClock()
        self.records: dict[int, Record] = {}  # all that were ever in the log, by their offsets
        self.acknowledged: dict[bytes, int] = {}  # body → log offset behind it
        self.sent = 0
        self.is_open = False

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    @initialize(is_sync=st.booleans())
    def make(self, is_sync: bool) -> None:
        self.settings = small_settings(flush_mode=FlushMode.SYNC if is_sync else FlushMode.ASYNC)
        self.open()
        self.run(self.change(TopicPut(TOPIC, 2, 2, "rw")))
        self.run(self.store.upkeep.flush())
        self.learn()

    async def change(self, event: Event) -> None:
        await self.store.change(event)

    def open(self) -> None:
        self.store = self.run(MessageStore.open(self.directory, self.settings, self.clock))
        self.timers = Timers(self.store, self.clock)
        self.is_open = True
        self.learn()

    # --- What happens -----------------------------------------------------------------------------

    @rule(some=sets)
    def set_timers(self, some: list[tuple[tuple[int, int], int]]) -> None:
        self.run(self.send(some))
        self.learn()

    async def send(self, some: list[tuple[tuple[int, int], int]]) -> None:
        batches, bodies = [], []
        for (level, delay), size in some:
            self.sent += 1
            body = b"%d|" % self.sent + b"." * size
            wait = Wait(level, 0 if level else self.clock.now_ms() + delay)
            raw = encode_record(
                Record(
                    topic=TOPIC,
                    body=body,
                    properties=encode_properties({UNIQ_KEY: f"id{self.sent}"}),
                )
            )
            record = waiting(raw, wait, Destination(TOPIC, self.sent % 2))
            batches.append(batch_of_records(*wait.place, [record]))
            bodies.append(body)
        receipts = await self.store.append_group(batches)
        for body, receipt, batch in zip(bodies, receipts, batches, strict=True):
            self.acknowledged[body] = receipt.log_offset + batch.size

    @rule(seconds=st.sampled_from([-100, -1, 0.2, 1, 5, 60, 600, 7_200]))
    def let_the_clock_step(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def fire(self) -> None:
        """Fire whatever is due; nothing comes before its time."""
        self.run(self.fire_all())
        self.learn()
        due = [t for t in self.store.timers.following(None) if t.due_ms <= self.clock.now_ms()]
        assert due == []

    async def fire_all(self) -> None:
        while await self.timers.fire():
            pass

    @rule(data=st.data())
    def recall_amid_firing(self, data: st.DataObject) -> None:
        """Recall some while those that are due are fired: one of the two happens to each."""
        known = list(self.store.timers.following(None))
        if known:
            some = data.draw(st.lists(st.sampled_from(known), max_size=3, unique=True))
            turns = data.draw(st.integers(0, 2))
            self.run(self.recall_and_fire(some, turns))
            self.learn()

    async def recall_and_fire(self, some: list[Timer], turns: int) -> None:
        firing = asyncio.ensure_future(self.fire_all())
        for _ in range(turns):
            await asyncio.sleep(0)
        held = self.store.timers.take(some)
        if held:
            await self.store.change(TimersCancelled([timer.id for timer in held]))
        await firing

    @rule(limit=st.integers(0, 17 * 1024))
    def fire_on_a_full_disk(self, limit: int) -> None:
        """Fire on a full disk; unwritten deliveries stay pending until there is room."""
        with file_size_limit(limit), suppress(DiskFullError):
            self.run(self.fire_all())
        self.run(self.store.upkeep.probe_disk())
        self.run(self.settle())
        self.learn()
        assert self.store.refusal is None
        assert self.store.timers.held_count == 0

    async def settle(self) -> None:
        while self.store.visible_offset < self.store.log_max_offset:
            await self.store.upkeep.flush()
            await asyncio.sleep(0)

    @rule()
    def flush(self) -> None:
        self.run(self.store.upkeep.flush())

    @rule()
    def checkpoint(self) -> None:
        self.run(self.store.upkeep.checkpoint())

    @rule(count=st.integers(1, 3))
    def delete_the_oldest_segments(self, count: int) -> None:
        """Carry forward what waits in them, as retention does; then they can go.

        No precondition says that there are any: after a kill that depends on how fast flushes are.
        """
        ends = self.store.retention.segment_ends()
        if len(ends) == 1:
            return
        last = ends[min(count, len(ends) - 1) - 1]
        self.run(self.timers.carry_forward(last))
        self.learn()
        oldest = self.store.timers.oldest_id()
        assert oldest is None or oldest >= last
        self.delete_up_to(count)

    @rule()
    def retention_keeps_what_waits(self) -> None:
        self.delete_up_to(10)
        oldest = self.store.timers.oldest_id()
        assert oldest is None or oldest >= self.store.log_min_offset

    @rule(deleted=projections)
    def stop_and_start(self, deleted: set[str]) -> None:
        self.is_open = False
        self.run(self.store.close())
        delete_projections(self.directory, deleted)
        self.open()

    @rule(turns=st.integers(0, 3), deleted=projections)
    def kill_amid_firing(self, turns: int, deleted: set[str]) -> None:
        self.run(self.abandon_amid(turns))
        delete_projections(self.directory, deleted)
        self.open()

    @rule(turns=st.integers(0, 3), part=st.floats(0, 1), some=sets)
    def cut_power_amid_firing(
        self, turns: int, part: float, some: list[tuple[tuple[int, int], int]]
    ) -> None:
        """Lose what was not flushed from somewhere on, also within a record or a group of them."""
        self.run(self.send(some))
        self.run(self.abandon_amid(turns))
        flushed, end = self.store.flushed_offset, self.store.log_max_offset
        cut_log(self.directory, flushed + round(part * (end - flushed)))
        shutil.rmtree(self.directory / "consumequeue")
        self.forget_from(flushed)
        self.open()

    async def abandon_amid(self, turns: int) -> None:
        firing = asyncio.ensure_future(self.fire_all())
        for _ in range(turns):
            await asyncio.sleep(0)
        firing.cancel()
        self.is_open = False
        await abandon(self.store)
        await asyncio.gather(firing, return_exceptions=True)

    # --- What must hold ---------------------------------------------------------------------------

    @invariant()
    def each_waits_or_came_or_was_recalled(self) -> None:
        if not self.is_open:
            return
        model = TimerModel(self.records.values())
        model.check()
        assert {timer.id for timer in self.store.timers.following(None)} == model.pending.keys()
        waiting_bodies = set(model.waiting.values())
        assert self.acknowledged.keys() <= waiting_bodies

    def teardown(self) -> None:
        if self.is_open:
            self.clock.advance(10_000_000)
            self.run(self.fire_all())
            self.learn()
            model = TimerModel(self.records.values())
            model.check()
            assert not model.pending
            self.run(self.store.close())
        self.runner.close()
        shutil.rmtree(self.root)

    # --- How it is done ---------------------------------------------------------------------------

    def learn(self) -> None:
        """Read what is new in the log's files."""
        last = max(self.records, default=None)
        start = 0 if last is None else last + self.records[last].size
        for record in read_log(self.directory, start):
            self.records[record.log_offset] = record
            if record.topic not in DELAYED_TOPICS and record.topic == TOPIC:
                assert record.store_timestamp <= self.store_time()

    def store_time(self) -> int:
        return self.store._writer.last_store_timestamp

    def delete_up_to(self, count: int) -> None:
        self.run(delete_oldest_segments(self.store, count))

    def forget_from(self, flushed: int) -> None:
        """Forget records and promises that a power cut may have taken back."""
        self.records = {at: r for at, r in self.records.items() if at + r.size <= flushed}
        self.acknowledged = {b: end for b, end in self.acknowledged.items() if end <= flushed}


TestTimersMachine = TimersMachine.TestCase
TestTimersMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
