"""The message store beside a model, with crashes, power cuts and full disks at any moment.

The model is :class:`support.log_model.LogModel`: a fold over the log's records. After each step
the records that are new in the log's files must be those that were appended, as they were
acknowledged, and the store must answer every question as the model does.

A killed process leaves all that it wrote. After a power cut each file of a projection, and the
checkpoint, may be as it is or as it was when it was last flushed, and of the log only what was
flushed is sure.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Iterable
from random import Random
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from eruca.contract.errors import DiskFullError, TopicNotFoundError
from eruca.contract.hashing import tags_code
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.properties import TAGS
from eruca.contract.records import Record, decode_record
from eruca.contract.wire import PullStatus
from eruca_broker.core.state.events import (
    CommittedOffset,
    Event,
    OffsetsCommitted,
    TopicDeleted,
    TopicPut,
)
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.log_model import Key, LogModel, keys_of, read_log
from support.stores import abandon, batch, delete_oldest_segments, scratch_directory, small_settings

Result = TypeVar("Result")

TOPICS = ["orders", "flights", "%RETRY%g"]
TAGS_USED = ["red", "green", "订单"]
PROJECTIONS = ["consumequeue", "index", "config", "checkpoint"]
DISK_FULL = (DiskFullError, TopicNotFoundError)

topics = st.sampled_from(TOPICS)
queue_ids = st.integers(0, 2)
counts = st.one_of(st.integers(1, 4), st.integers(64, 70))  # on either side of numpy's threshold
sizes = st.sampled_from([1, 40, 700])
appends = st.tuples(st.just("append"), topics, queue_ids, counts, sizes)
commits = st.tuples(st.just("commit"), st.sampled_from("gh"), topics, queue_ids, st.integers(0, 99))
puts = st.tuples(st.just("put"), topics, st.integers(1, 3))
deletes = st.tuples(st.just("delete"), topics)
steps = st.one_of(appends, appends, appends, commits, puts, deletes)
deletions = st.sets(st.sampled_from(PROJECTIONS))

distances = st.integers(-2, 2)
places = st.one_of(
    st.tuples(st.just("from the beginning"), distances),
    st.tuples(st.just("from the end"), distances),
    st.tuples(st.just("anywhere"), st.integers(0, 999)),
)
tag_sets = st.none() | st.sets(st.sampled_from(TAGS_USED), min_size=1)
read_counts = st.integers(1, 80)
rooms = st.sampled_from([1, 500, 10**6])  # bytes


class StoreMachine(RuleBasedStateMachine):
    """One store directory, whatever happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = scratch_directory()
        self.directory = self.root / "store"
        self.clock = ManualClock()
        self.model = LogModel()
        self.records: dict[int, Record] = {}  # all that were ever in the log, by their offsets
        self.end = 0
        self.is_open = False
        self.sent = 0
        self.wanted: dict[bytes, Key] = {}  # bodies that were sent, and where to
        self.acknowledged: dict[int, tuple[bytes, int]] = {}  # log offset → body, queue offset

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    @initialize(is_sync=st.booleans())
    def make(self, is_sync: bool) -> None:
        self.settings = small_settings(flush_mode=FlushMode.SYNC if is_sync else FlushMode.ASYNC)
        self.open()
        self.learn()

    def open(self) -> None:
        self.store = self.run(MessageStore.open(self.directory, self.settings, self.clock))
        self.is_open = True
        self.remember()

    # --- What happens -----------------------------------------------------------------------------

    @rule(some=st.lists(steps, min_size=1, max_size=6))
    def change_at_once(self, some: list[tuple[Any, ...]]) -> None:
        """Start several changes in one tick; each is answered, and in the log as answered."""
        outcomes = self.run(self.all_of(some))
        assert all(o is None or isinstance(o, TopicNotFoundError) for o in outcomes)
        self.learn()

    @rule(some=st.lists(steps, min_size=1, max_size=6), limit=st.integers(0, 17 * 1024))
    def change_on_a_full_disk(self, some: list[tuple[Any, ...]], limit: int) -> None:
        with file_size_limit(limit):
            outcomes = self.run(self.all_of(some))
        assert all(outcome is None or isinstance(outcome, DISK_FULL) for outcome in outcomes)
        self.run(self.store.upkeep.probe_disk())
        self.run(self.settle())
        self.learn()
        assert self.store.refusal is None

    @rule(seconds=st.integers(-100, 100))
    def let_the_clock_jump(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def flush(self) -> None:
        self.run(self.store.upkeep.flush())

    @rule()
    def checkpoint(self) -> None:
        self.run(self.store.upkeep.checkpoint())
        self.remember()

    @rule()
    def prepare_the_next_segment(self) -> None:
        self.run(self.store.upkeep.prepare_next_segment())

    @rule(count=st.integers(1, 3))
    def delete_the_oldest_segments(self, count: int) -> None:
        """Delete what may go: nothing, or more or less, as flushes were fast."""
        for min_offset in self.run(delete_oldest_segments(self.store, count)):
            self.model.expire(min_offset)

    @rule(deleted=deletions)
    def stop_and_start(self, deleted: set[str]) -> None:
        self.is_open = False
        self.run(self.store.close())
        assert not (self.directory / "abort").exists()
        self.delete(deleted)
        self.open()
        self.learn()
        self.agree()

    @rule(some=st.lists(steps, max_size=4), turns=st.integers(0, 4), deleted=deletions)
    def kill(self, some: list[tuple[Any, ...]], turns: int, deleted: set[str]) -> None:
        """Stop in the midst of *some* changes; nothing that was acknowledged is missing."""
        self.run(self.abandon_amid(some, turns))
        self.delete(deleted)
        self.open()
        self.learn()
        self.agree()

    @rule(some=st.lists(steps, max_size=4), turns=st.integers(0, 4), seed=st.integers(0, 999))
    def cut_power(self, some: list[tuple[Any, ...]], turns: int, seed: int) -> None:
        """Stop amid *some* changes and lose what was not flushed; nothing flushed is missing."""
        random = Random(seed)
        self.run(self.abandon_amid(some, turns))
        flushed = self.store.flushed_offset
        self.lose_projections(random)
        self.lose_log(flushed, random)
        self.forget_from(flushed)
        self.open()
        self.learn()
        self.agree()

    # --- What must hold ---------------------------------------------------------------------------

    @invariant()
    def tells_the_same_state(self) -> None:
        state, model = self.store.state, self.model
        queue_counts = {
            t.name: (t.read_queue_count, t.write_queue_count) for t in state.topics.values()
        }
        del queue_counts[EVENTS_TOPIC]
        assert queue_counts == model.topics
        assert {
            group: dict(state.group_offsets(group)) for group in state.groups
        } == model.committed
        for topic in [*model.topics, EVENTS_TOPIC]:
            for queue_id in range(3):
                key = topic, queue_id
                assert self.store.queues.range(*key) == model.range(key), key
        assert self.store.log_max_offset == self.end
        assert {p.log_offset for p in self.store.projections() if p.name != "key_index"} == {
            self.end
        }

    @rule(
        topic=topics, queue_id=queue_ids, place=places, tags=tag_sets, count=read_counts, size=rooms
    )
    def look_at_one_queue(
        self,
        *,
        topic: str,
        queue_id: int,
        place: tuple[str, int],
        tags: set[str] | None,
        count: int,
        size: int,
    ) -> None:
        """Read one queue; the draws depend on no state: no example fixes flushes or retention."""
        if topic not in self.model.topics:
            return
        low, high = self.model.range((topic, queue_id))
        match place:
            case ("from the beginning", distance):
                offset = low + distance
            case ("from the end", distance):
                offset = high + distance
            case (_, number):
                offset = low + number % (high - low + 1)
        self.check_read((topic, queue_id), max(offset, 0), tags, count, size)

    def agree(self) -> None:
        """Ask everything."""
        for key in [key for key in self.model.queues if key[0] != EVENTS_TOPIC]:
            low, high = self.model.range(key)
            for tags in (None, {"red", "订单"}):
                self.check_read(key, low, tags, 10**6, 10**9)
            for record in self.model.queues[key][:: max(1, (high - low) // 4)]:
                self.check_times(key, record.store_timestamp)
                for text in keys_of(record):
                    self.check_key(key[0], text)
        for deleted in set(TOPICS) - self.model.topics.keys():
            assert self.store.queues.range(deleted, 0) == (0, 0)

    def check_read(
        self, key: Key, offset: int, tags: set[str] | None, count: int, size: int
    ) -> None:
        low, high = self.model.range(key)
        codes = None if tags is None else frozenset(map(tags_code, tags))
        got = self.store.queues.read(*key, offset, count_max=count, bytes_max=size, tag_codes=codes)
        assert (got.min_offset, got.max_offset) == (low, high)
        if not low <= offset < high:
            expected = {
                offset < low: (PullStatus.OFFSET_TOO_SMALL, low),
                offset == high: (PullStatus.NO_NEW_MESSAGE, high),
                offset > high: (PullStatus.OFFSET_TOO_LARGE, high),
            }
            assert (got.status, got.next_offset) == expected[True]
            return
        wanted: list[Record] = []
        for record in self.model.queues[key][offset - low :]:
            if tags is None or record.property_map().get(TAGS) in tags:
                if len(wanted) == count or (
                    wanted and size < sum(r.size for r in wanted) + record.size
                ):
                    assert got.next_offset == record.queue_offset
                    break
                wanted.append(record)
        else:
            assert got.next_offset == high
        assert got.status is (PullStatus.FOUND if wanted else PullStatus.NO_MATCHED_MESSAGE)
        assert list(records_of(got.slices)) == wanted

    def check_times(self, key: Key, at: int) -> None:
        low, high = self.model.range(key)
        queue = self.model.queues[key]
        for time in (at - 1, at, at + 1):
            lower = next((r.queue_offset for r in queue if r.store_timestamp >= time), high)
            upper = max((r.queue_offset for r in queue if r.store_timestamp <= time), default=low)
            assert self.store.places.offset_by_time(*key, time) == lower
            assert self.store.places.offset_by_time(*key, time, upper=True) == upper

    def check_key(self, topic: str, text: str) -> None:
        found = self.store.log.by_key(topic, text, count_max=10**6, begin_ms=0, end_ms=2**62)
        assert found == self.model.by_key(topic, text)

    # --- How it is done ---------------------------------------------------------------------------

    def start(self, step: tuple[Any, ...]) -> Coroutine[Any, Any, None] | None:
        """Begin a change as the broker's processors do: only if it is allowed now."""
        known = self.store.state.topics
        match step:
            case ("append", topic, queue_id, count, size):
                if topic in known and queue_id < known[topic].write_queue_count:
                    return self.append(topic, queue_id, count, size)
            case ("commit", group, topic, queue_id, offset):
                if topic in known:
                    commit = CommittedOffset(topic, queue_id, offset)
                    return self.change(OffsetsCommitted(group, [commit]))
            case ("put", topic, count):
                return self.change(TopicPut(topic, count, count, "rw"))
            case ("delete", topic):
                if topic in known:
                    return self.change(TopicDeleted(topic))
        return None

    async def append(self, topic: str, queue_id: int, count: int, size: int) -> None:
        bodies = []
        for _ in range(count):
            self.sent += 1
            bodies.append(b"%d|" % self.sent + b"x" * (size if count < 64 else 1))
        tag = [None, *TAGS_USED][self.sent % 4]
        sending = batch(topic, queue_id, bodies, tag=tag, keys=f"k{self.sent % 5} all")
        self.wanted |= dict.fromkeys(bodies, (topic, queue_id))
        receipt = await self.store.append(sending)
        for index, body in enumerate(bodies):
            log_offset = receipt.log_offset + int(sending.starts[index])
            self.acknowledged[log_offset] = body, receipt.queue_offset + index

    async def change(self, event: Event) -> None:
        await self.store.change(event)

    async def all_of(self, some: Iterable[tuple[Any, ...]]) -> list[BaseException | None]:
        begun = [work for step in some if (work := self.start(step)) is not None]
        return await asyncio.gather(*begun, return_exceptions=True)

    async def settle(self) -> None:
        while self.store.visible_offset < self.store.log_max_offset:
            await self.store.upkeep.flush()
            await asyncio.sleep(0)

    async def abandon_amid(self, some: Iterable[tuple[Any, ...]], turns: int) -> None:
        begun = [work for step in some if (work := self.start(step)) is not None]
        tasks = [asyncio.ensure_future(work) for work in begun]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        self.is_open = False
        await abandon(self.store)
        await asyncio.gather(*tasks, return_exceptions=True)

    def learn(self) -> None:
        """Read what is new in the log's files; it must be what was sent and acknowledged."""
        for record in read_log(self.directory, self.end):
            if record.topic != EVENTS_TOPIC:
                assert self.wanted[record.body] == (record.topic, record.queue_id)
            self.records[record.log_offset] = record
            self.model.add(record)
            self.end = record.log_offset + record.size
        for log_offset, (body, queue_offset) in self.acknowledged.items():
            assert self.records[log_offset].body == body
            assert self.records[log_offset].queue_offset == queue_offset
        bodies = [r.body for r in self.records.values() if r.topic != EVENTS_TOPIC]
        assert len(bodies) == len(set(bodies))
        self.end = self.store.log_max_offset

    def forget_from(self, flushed: int) -> None:
        """Remove what a power cut may have lost, and read what is there."""
        lowest = self.store.log_min_offset
        self.records = {o: r for o, r in self.records.items() if o + r.size <= flushed}
        self.acknowledged = {o: a for o, a in self.acknowledged.items() if o in self.records}
        self.model = LogModel(self.records.values())
        self.model.expire(lowest)
        self.end = max((o + r.size for o, r in self.records.items()), default=0)

    def delete(self, names: set[str]) -> None:
        for name in names:
            path = self.directory / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def remember(self) -> None:
        """Note what is durable of the projections: what a checkpoint has flushed."""
        shutil.rmtree(self.root / "durable", ignore_errors=True)
        shutil.copytree(
            self.directory, self.root / "durable", ignore=shutil.ignore_patterns("commitlog")
        )

    def lose_projections(self, random: Random) -> None:
        durable = self.root / "durable"
        for root in (durable, self.directory):
            for path in sorted(root.rglob("*")):
                name = path.relative_to(root)
                if name.parts[0] == "commitlog" or path.is_dir() or random.random() < 0.5:
                    continue
                if (durable / name).exists():
                    (self.directory / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(durable / name, self.directory / name)
                elif name.name != "abort":
                    path.unlink(missing_ok=True)

    def lose_log(self, flushed: int, random: Random) -> None:
        """Lose any of the bytes behind *flushed*, or find others in their place."""
        for path in sorted((self.directory / "commitlog").iterdir()):
            base, data = int(path.name), bytearray(path.read_bytes())
            first = max(flushed - base, 0)
            used = len(data.rstrip(b"\0"))
            if first >= used:
                continue
            cut = random.randrange(first, used + 1)
            match random.randrange(4):
                case 0:
                    data[cut:] = bytes(len(data) - cut)
                case 1:
                    data[cut : cut + 512] = random.randbytes(len(data[cut : cut + 512]))
                case 2:
                    page = cut - cut % 512 + (512 if cut % 512 else 0)
                    data[page : page + 512] = bytes(len(data[page : page + 512]))
            path.write_bytes(data)

    def teardown(self) -> None:
        try:
            if self.is_open:
                self.run(self.store.close())
        finally:
            self.runner.close()
            shutil.rmtree(self.root)


def records_of(slices: list[memoryview]) -> Iterable[Record]:
    for piece in slices:
        position = 0
        while position < len(piece):
            record = decode_record(piece, position)
            yield record
            position += record.size


# The time-out is for a run that hangs, not for one on a machine that has other things to do.
TestMessageStore = pytest.mark.timeout(900)(StoreMachine.TestCase)
TestMessageStore.settings = settings(max_examples=80, stateful_step_count=25)
