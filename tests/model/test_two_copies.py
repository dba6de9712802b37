"""A master and a replica beside a model, while roles change, processes end and disks are full.

The model is a list of the master's records (:func:`support.log_model.read_log`), the log offset up
to which both stores have confirmed, and a :class:`support.log_model.LogModel` of what each store
shows. The numbers are those of the replication rules:

2, 3  each term begins with its epoch's first record, wherever the log ends
4     a run divides nothing that was appended together
6, 7  nothing is visible, nor acknowledged, that is not confirmed; a start shows what it recovers
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eruca.contract.errors import (
    DiskFullError,
    NotMasterForSureError,
    OutcomeUnknownError,
    TopicNotFoundError,
)
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Record
from eruca_broker.core.state.events import CommittedOffset, EpochBegan, OffsetsCommitted
from eruca_broker.core.state.topic_events import TopicDeleted, TopicPut
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.log_model import LogModel, read_log
from support.stores import abandon, all_answers, batch, scratch_directory, small_settings
from support.torn_logs import cut_log, delete_projections

Result = TypeVar("Result")

TOPICS = ["orders", "flights"]
REFUSED = DiskFullError, TopicNotFoundError, NotMasterForSureError

topics = st.sampled_from(TOPICS)
sends = st.tuples(
    st.just("send"), topics, st.integers(0, 1), st.integers(1, 5), st.sampled_from([1, 40, 700])
)
groups = st.tuples(st.just("group"), topics, st.integers(1, 4))
puts = st.tuples(st.just("put"), topics)
deletes = st.tuples(st.just("delete"), topics)
commits = st.tuples(st.just("commit"), topics, st.integers(0, 99))
changes = st.lists(st.one_of(sends, sends, sends, groups, puts, deletes, commits), max_size=6)
limits = st.none() | st.integers(0, 24 * 1024)
parts = st.integers(0, 100)


class Copy:
    """One of the two stores."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store: MessageStore
        self.confirmed_to = 0  # the greatest offset that it may show
        self.shown = LogModel()
        self.is_open = False


class PairMachine(RuleBasedStateMachine):
    """Two directories, each with a store in one role or the other."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = scratch_directory()
        self.master, self.replica = Copy(self.root / "one"), Copy(self.root / "two")
        self.clock = ManualClock()
        self.records: dict[int, Record] = {}  # the master's log, by log offset
        self.ends = {0}  # log offsets between two appends, as long as a master knows them
        self.end = 0  # of the master's log
        self.epoch = 0
        self.begun_at = 0  # where the epoch begins …
        self.shown_before = 0  # … and what its master showed then
        self.sent = 0
        self.pending: list[asyncio.Task[None]] = []
        self.acknowledged: dict[bytes, int] = {}  # body → log offset of its batch
        self.refused: set[bytes] = set()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    @initialize(is_sync=st.booleans())
    def make(self, is_sync: bool) -> None:
        mode = FlushMode.SYNC if is_sync else FlushMode.ASYNC
        self.settings = replace(small_settings(flush_mode=mode), is_replica=True)
        for copy in (self.master, self.replica):
            self.open(copy)
        self.lead()

    def open(self, copy: Copy) -> None:
        copy.store = self.run(MessageStore.open(copy.directory, self.settings, self.clock))
        copy.store.role.on_durable = lambda _: None
        copy.is_open = True
        copy.confirmed_to = copy.store.visible_offset  # a start shows all that it recovers
        copy.shown = LogModel()

    # --- What happens -----------------------------------------------------------------------------

    @rule(some=changes, limit=limits)
    def change(self, some: list[tuple[Any, ...]], limit: int | None) -> None:
        """Append in one tick, perhaps on a disk that is full."""
        self.run(self.begin(some, limit))
        self.learn()

    async def begin(self, some: list[tuple[Any, ...]], limit: int | None) -> None:
        store = self.master.store
        with nullcontext() if limit is None else file_size_limit(limit):
            for step in some:
                if (work := self.work_of(step)) is not None:
                    self.pending.append(asyncio.create_task(work))
                    await asyncio.sleep(0) if step[0] == "put" else None
            await asyncio.sleep(0)
            await self.until_durable(store)
        await store.upkeep.probe_disk()
        assert store.refusal is None

    @rule(
        limit=limits, bytes_max=st.sampled_from([1, 500, 4_000, 100_000]), count=st.integers(1, 9)
    )
    def copy(self, limit: int | None, bytes_max: int, count: int) -> None:
        self.run(self.feed(limit, bytes_max, count))

    @rule(part=parts, is_told=st.booleans())
    def confirm(self, part: int, is_told: bool) -> None:
        """Confirm some or all that both hold; tell the replica, or leave it for later."""
        master, replica = self.master, self.replica
        held = min(master.store.durable_offset, replica.store.durable_offset)
        visible = master.store.visible_offset
        self.show(master, visible + max(held - visible, 0) * part // 100)
        if is_told:
            self.show(replica, min(master.store.confirmed_offset, held))

    @rule()
    def switch(self) -> None:
        """Hand over: the replica has everything."""
        self.run(self.feed(None, 4_000, 10**6))
        self.master.store.role.follow()
        self.master, self.replica = self.replica, self.master
        self.lead()

    @rule(is_killed=st.booleans())
    def fail_over(self, is_killed: bool) -> None:
        """The replica leads with what it has; the old master loses the rest."""
        old, end = self.master, self.replica.store.log_max_offset
        if is_killed:
            self.leave(old, is_killed=True)
        else:
            old.store.role.follow()
            self.leave(old, is_killed=False)
        self.forget_from(end)
        self.master, self.replica = self.replica, old
        self.lead()
        cut_log(old.directory, end)
        for path in (old.directory / "commitlog").iterdir():
            if int(path.name) >= end and int(path.name):
                path.unlink()
        delete_projections(old.directory, ["consumequeue", "index", "checkpoint", "abort"])
        self.open(old)
        assert old.store.log_max_offset == min(end, old.store.log_max_offset)

    @rule(is_killed=st.booleans())
    def restart_the_replica(self, is_killed: bool) -> None:
        end = self.replica.store.log_max_offset
        self.leave(self.replica, is_killed=is_killed)
        self.open(self.replica)
        assert self.replica.store.log_max_offset == end

    @rule()
    def checkpoint(self) -> None:
        for copy in (self.master, self.replica):
            self.run(copy.store.upkeep.checkpoint())

    @precondition(lambda self: self.end > 0)
    @rule()
    def catch_up(self) -> None:
        """Copy and confirm everything: both stores are the same, and no caller waits."""
        self.run(self.feed(None, 2_000, 10**6))
        for copy in (self.master, self.replica):
            self.show(copy, self.end)
            assert copy.store.visible_offset == self.end
        self.run(self.settle())
        assert not self.pending
        assert all_answers(self.master.store) == all_answers(self.replica.store)
        assert self.master.store.role.epochs() == self.replica.store.role.epochs()
        bodies = {record.body for record in self.records.values()}
        assert self.acknowledged.keys() <= bodies, "acknowledged, and lost"
        assert not self.refused & bodies, "refused, and stored"

    # --- What must hold ---------------------------------------------------------------------------

    @invariant()
    def nothing_leads_what_is_confirmed(self) -> None:
        """Rules 6 and 7."""
        if not self.epoch:
            return
        for copy in (self.master, self.replica):
            store = copy.store
            assert store.visible_offset <= copy.confirmed_to
            assert store.visible_offset <= store.durable_offset <= store.log_max_offset
            self.learn_shown(copy)
            known = {t.name for t in store.state.topics.values()} - {EVENTS_TOPIC}
            assert known == copy.shown.topics.keys()
            for topic in TOPICS:
                for queue_id in (0, 1):
                    assert store.queues.range(topic, queue_id) == copy.shown.range(
                        (topic, queue_id)
                    )

    @invariant()
    def the_copies_are_equal(self) -> None:
        if not self.epoch:
            return
        ends = [copy.store.log_max_offset for copy in (self.master, self.replica)]
        first, second = (log_of(copy.directory, min(ends)) for copy in (self.master, self.replica))
        assert first == second

    # --- How it is done ---------------------------------------------------------------------------

    def lead(self) -> None:
        self.epoch += 1
        master = self.master
        self.begun_at, self.shown_before = master.store.log_max_offset, master.store.visible_offset
        event = EpochBegan(self.epoch, 1, "9f2c51d07ab3e846", "10.0.0.1:10911", self.clock.now_ms())

        async def leading() -> None:
            began = asyncio.ensure_future(master.store.role.lead(event))
            self.pending.append(asyncio.create_task(self.ended(began, set())))
            await asyncio.sleep(0)
            await self.until_durable(master.store)

        self.run(leading())
        self.learn()
        assert master.store.role.epochs().last == self.epoch
        assert master.store.role._begins_with_snapshot()

    def show(self, copy: Copy, log_offset: int) -> None:
        copy.confirmed_to = max(copy.confirmed_to, log_offset)
        self.run(self.confirmed(copy.store, log_offset))
        if copy is self.master:  # rules 2 and 3
            visible = copy.store.visible_offset
            assert visible == self.shown_before or visible > self.begun_at

    async def confirmed(self, store: MessageStore, log_offset: int) -> None:
        store.role.confirm(log_offset)
        await asyncio.sleep(0)  # callers wake

    async def feed(self, limit: int | None, bytes_max: int, count: int) -> None:
        master, replica = self.master.store, self.replica.store
        try:
            with nullcontext() if limit is None else file_size_limit(limit):
                for _ in range(count):
                    begin = replica.log_max_offset
                    run = b"".join(master.log.run(begin, bytes_max))
                    if not run:
                        break
                    end = begin + len(run)
                    assert end in self.ends or end <= master.visible_offset  # rule 4
                    await replica.role.copy(memoryview(run), begin)
                    assert replica.durable_offset == replica.log_max_offset == end
        except DiskFullError:
            assert limit is not None
            await replica.upkeep.probe_disk()
        assert replica.refusal is None

    async def until_durable(self, store: MessageStore) -> None:
        while store.durable_offset < store._log.end_offset and store.refusal is None:  # noqa: ASYNC110
            await asyncio.sleep(0.0005)  # a flush ends on another thread

    async def settle(self) -> None:
        done, _ = await asyncio.wait(self.pending, timeout=5) if self.pending else (set(), set())
        for task in done:
            await task
        self.pending = [task for task in self.pending if task not in done]

    def work_of(self, step: tuple[Any, ...]) -> Coroutine[Any, Any, None] | None:
        store = self.master.store
        known = store.state.topics
        match step:
            case ("send", topic, queue_id, count, size) if topic in known:
                bodies = self.bodies(count, size)
                return self.appended([batch(topic, queue_id, bodies, keys="all")], set(bodies))
            case ("group", topic, count) if topic in known:
                bodies = self.bodies(count, 9)
                batches = [batch(topic, n % 2, [body]) for n, body in enumerate(bodies)]
                return self.appended(batches, set(bodies))
            case ("put", topic):
                return self.ended(store.change(TopicPut(topic, 2, 2, "rw")), set())
            case ("delete", topic) if topic in known:
                return self.ended(store.change(TopicDeleted(topic)), set())
            case ("commit", topic, offset) if topic in known:
                commit = OffsetsCommitted("g", [CommittedOffset(topic, 0, offset)])
                return self.ended(store.change(commit), set())
        return None

    def bodies(self, count: int, size: int) -> list[bytes]:
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        return [b"%d|" % number + b"x" * size for number in numbers]

    async def appended(self, batches: list[Any], bodies: set[bytes]) -> None:
        store = self.master.store

        async def append() -> int:
            if len(batches) == 1:
                return (await store.append(batches[0])).log_offset
            return (await store.append_group(batches))[-1].log_offset

        await self.ended(append(), bodies)

    async def ended(self, work: Any, bodies: set[bytes]) -> None:  # noqa: ANN401
        """Note how an append ends; what is acknowledged, each copy holds (rule 6)."""
        try:
            told = await work
        except OutcomeUnknownError:
            return
        except REFUSED:
            self.refused |= bodies
            return
        log_offset = told if isinstance(told, int) else told.log_offset
        for copy in (self.master, self.replica):
            if copy.is_open:
                assert log_offset < copy.store.durable_offset
        self.acknowledged |= dict.fromkeys(bodies, log_offset)

    def leave(self, copy: Copy, *, is_killed: bool) -> None:
        copy.is_open = False
        self.run(abandon(copy.store) if is_killed else copy.store.close())
        if is_killed and copy is self.master:
            for task in self.pending:
                task.cancel()
        if copy is self.master:
            self.run(self.gone())

    async def gone(self) -> None:
        await asyncio.gather(*self.pending, return_exceptions=True)
        self.pending.clear()

    def learn(self) -> None:
        """Read what is new in the master's log, and where appends ended."""
        for record in read_log(self.master.directory, self.end):
            self.records[record.log_offset] = record
            self.end = record.log_offset + record.size
        writer = self.master.store._writer
        self.ends |= {it.end_offset for it in writer.unpublished() if not it.is_amid_group}
        assert self.end == self.master.store.log_max_offset

    def learn_shown(self, copy: Copy) -> None:
        visible = copy.store.visible_offset
        for offset, record in sorted(self.records.items()):
            if copy.shown.end_offset <= offset < visible:
                copy.shown.add(record)

    def forget_from(self, end: int) -> None:
        """The master is gone, and with it what no other store has."""
        self.records = {o: r for o, r in self.records.items() if o < end}
        self.end = max((o + r.size for o, r in self.records.items()), default=0)
        assert self.end == end

    def teardown(self) -> None:
        try:
            for task in self.pending:
                task.cancel()
            for copy in (self.master, self.replica):
                if copy.is_open:
                    self.leave(copy, is_killed=False)
        finally:
            self.runner.close()
            shutil.rmtree(self.root)


def log_of(directory: Path, end: int) -> dict[str, bytes]:
    """Return the log's bytes before *end*."""
    logs = {}
    for path in sorted((directory / "commitlog").iterdir()):
        if int(path.name) < end:
            logs[path.name] = path.read_bytes()[: end - int(path.name)]
    return logs


TestPair = PairMachine.TestCase
TestPair.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
