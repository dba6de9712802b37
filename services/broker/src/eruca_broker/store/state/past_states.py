"""The state as of an earlier log offset, folded again from the latest snapshot before it.

Each segment begins with a snapshot, so the fold reads the events of one segment at most. The event
loop copies the bytes of some records at a time, and a thread verifies, decodes and folds them. Then
the fold rests, so that most requests meet none of it. One fold runs at a time.

What is before the log's beginning here is folded from the tier in the same way, if there is one.

Nothing is guessed. If a fact is not in the log any more, the state is unknown, with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from eruca.contract.errors import OverloadedError, RecordNotFoundError
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import DamagedRecordError, decode_record
from eruca_broker.core.offset_search import partition_point
from eruca_broker.core.records.stored_proof import proved_rows
from eruca_broker.core.state.events import (
    EVENTS_QUEUE_ID,
    SNAPSHOT_TAG,
    UnknownEventError,
    decode_event,
)
from eruca_broker.core.state.past import About
from eruca_broker.core.state.state import BrokerState
from eruca_broker.core.tier.queue_tables import Key
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.reading.cold_reads import ColdReads
from eruca_broker.store.reading.log_reader import LogReader
from eruca_broker.store.reading.tiered_log import TieredLog
from eruca_broker.store.state.past_events import LocalEvents, PastEvents, first_from, tier_events
from eruca_broker.store.state.snapshot_entries import ENTRIES_PER_STEP, snapshot_rows
from eruca_broker.store.tier.reader import TierReader

PAST_EVENT_COUNT_MAX: Final = 200_000
"""Events of one fold: about a second of one core, and with its rests some seconds."""
WAITING_MAX: Final = 8  # folds that wait for their turn
_STEP_COUNT: Final = 256  # records that are copied, and then folded, at a time: about 1 ms each
_STEP_BYTES: Final = 1 << 20  # likewise; a single part of a snapshot may be larger
_T = TypeVar("_T")
_REST_SECONDS: Final = 0.004  # after each step, so that a fold takes a minor part of the loop


class _Copied(NamedTuple):
    """Control records, copied from the log."""

    records: list[bytes]
    log_offsets: list[int]
    tags_codes: list[int]


class UnknownPastError(Exception):
    """The state at an offset cannot be known from the log; the text says why."""


class PastState(NamedTuple):
    """An earlier state.

    Attributes:
        state: The state after all records before the offset, as far as it was asked for.
        snapshot_offset: Log offset of the snapshot from which it was folded.
    """

    state: BrokerState
    snapshot_offset: int


class _SnapshotPart(msgspec.Struct, frozen=True, tag=SNAPSHOT_TAG, tag_field="event"):
    """The place of a part in its snapshot; the rest is skipped."""

    part: int
    parts: int


_PART: Final = msgspec.json.Decoder(_SnapshotPart)


class PastStates:
    """Folds earlier states of one store.

    Args:
        queues: Contain the places of the events.
        reader: Reads them.
        log: The log with its part in the tier.
        cold: Waits for what is not in memory.
    """

    def __init__(
        self, queues: ConsumeQueues, reader: LogReader, log: TieredLog, cold: ColdReads
    ) -> None:
        self._queues = queues
        self._reader = reader
        self._log = log
        self._cold = cold
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def before(self, log_offset: int, about: About) -> PastState:
        """Return the state after all records before *log_offset*.

        Args:
            log_offset: At most the end of the published log.
            about: What is wanted.

        Raises:
            UnknownPastError: The log does not have what the state depends on.
            OverloadedError: Too many others wait.
        """
        if self._waiting >= WAITING_MAX:
            raise OverloadedError(
                f"{WAITING_MAX} questions about earlier states wait; there is no room for more"
            )
        self._waiting += 1
        try:
            async with self._turn:
                return await self._before(log_offset, about)
        except RecordNotFoundError as error:
            raise UnknownPastError(f"an event cannot be read: {error.detail}") from error
        except (OSError, DamagedQueueError) as error:
            raise UnknownPastError(f"the queue of the events cannot be read: {error}") from error
        except UnknownEventError as error:
            raise UnknownPastError(str(error)) from error
        finally:
            self._waiting -= 1

    async def queue_end(self, topic: str, queue_id: int, log_offset: int, since: int) -> int | None:
        """Return the next offset of a queue after all records before *log_offset*.

        None: the queue is not there, or its files cannot be read.

        Args:
            topic: The queue's topic.
            queue_id: Its number.
            log_offset: Where the log ended then.
            since: Log offset at which the topic was created, before that.

        Raises:
            UnavailableError: The tier cannot be read now.
        """
        tier = self._tier_of(log_offset)
        if tier is not None:
            key = topic, queue_id
            return await self._read(partial(_tier_queue_end, tier, key, log_offset, since))
        try:
            queue = self._queues.existing(topic, queue_id)
            return None if queue is None else _first_entry(queue, log_offset)
        except (OSError, DamagedQueueError):
            return None

    def _tier_of(self, log_offset: int) -> TierReader | None:
        """Return the tier if the state before *log_offset* is folded from it."""
        begin = self._reader.min_offset
        tier = self._log.tier
        return tier if tier is not None and 0 < log_offset <= begin else None

    async def _events(self, log_offset: int) -> PastEvents | None:
        """Return the events from which the state before *log_offset* is folded.

        Raises:
            UnknownPastError: They are not in the log any more.
        """
        tier = self._tier_of(log_offset)
        if tier is not None:
            if log_offset <= tier.known_begin():
                raise UnknownPastError(
                    f"the log begins at {tier.known_begin()}, in the tier; its retention has "
                    "deleted what was before"
                )
            return await self._read(partial(tier_events, tier, self._log, log_offset))
        if log_offset < self._reader.min_offset:
            raise UnknownPastError(
                f"the log begins at {self._reader.min_offset}; retention has deleted what was "
                "before"
            )
        queue = self._queues.existing(EVENTS_TOPIC, EVENTS_QUEUE_ID)
        return None if queue is None else LocalEvents(queue, self._reader)

    async def _before(self, log_offset: int, about: About) -> PastState:
        events = await self._events(log_offset)
        end = 0 if events is None else await self._read(partial(first_from, events, log_offset))
        first = None if events is None else await self._snapshot(events, end)
        if events is None or first is None:
            raise UnknownPastError(
                "the log has no whole snapshot of the state before this offset, from which it "
                "could be folded"
            )
        if end - first > PAST_EVENT_COUNT_MAX:
            raise UnknownPastError(
                f"{end - first} events are between the latest snapshot and this offset, more than "
                f"{PAST_EVENT_COUNT_MAX}"
            )
        snapshot_offset: int | None = None
        state = BrokerState()
        while first < end:
            copied = await self._copied(events, first, end)
            if snapshot_offset is None:
                snapshot_offset = copied.log_offsets[0]
            first += len(copied.records)
            await asyncio.to_thread(_fold, state, copied, about)
            if first < end:
                await asyncio.sleep(_REST_SECONDS)
        assert snapshot_offset is not None, "the snapshot itself is an event"
        return PastState(state, snapshot_offset)

    async def _snapshot(self, events: PastEvents, end: int) -> int | None:
        """Return the queue offset of the first part of the latest whole snapshot before *end*."""
        for highest in range(end - 1, events.begin - 1, -ENTRIES_PER_STEP):
            lowest = max(highest - ENTRIES_PER_STEP + 1, events.begin)
            entries = await self._read(partial(events.entries, lowest, highest - lowest + 1))
            for row in snapshot_rows(entries):
                part = await self._part_at(events, lowest + row)
                if part is None or part.part != part.parts:
                    continue
                first = lowest + row - part.parts + 1
                begin = await self._part_at(events, first) if first >= events.begin else None
                if begin is not None and begin.part == 1:
                    return first
        return None

    async def _part_at(self, events: PastEvents, offset: int) -> _SnapshotPart | None:
        [record] = (await self._copied(events, offset, offset + 1)).records
        return await asyncio.to_thread(_part_of, record)

    async def _copied(self, events: PastEvents, first: int, end: int) -> _Copied:
        """Return some records from queue offset *first* on, at least one."""
        return await self._read(partial(_copied_now, events, first, end))

    async def _read(self, read: Callable[[], _T]) -> _T:
        """Return the result of *read*, once what it needs is in memory."""
        return await self._cold.read("earlier states", read)


def _copied_now(events: PastEvents, first: int, end: int) -> _Copied:
    if first < events.begin:
        raise UnknownPastError("retention has deleted an event meanwhile")
    entries = events.entries(first, min(end - first, _STEP_COUNT))
    records: list[bytes] = []
    log_offsets: list[int] = entries["log_offset"].tolist()
    size = 0
    for log_offset in log_offsets:
        records.append(events.raw(log_offset))
        size += len(records[-1])
        if size >= _STEP_BYTES:
            break
    count = len(records)
    return _Copied(records, log_offsets[:count], entries["tags_code"][:count].tolist())


def _tier_queue_end(tier: TierReader, key: Key, log_offset: int, since: int) -> int:
    """Return the next offset of a queue at *log_offset*; a queue that began later has 0."""
    parts = tier.parts_of(tier.place_of(log_offset - 1), key, since)
    if not parts:
        return 0
    part = parts[-1]
    return partition_point(part.begin, part.end, lambda offset: part.entry_at(offset) < log_offset)


def _first_entry(queue: ConsumeQueue, log_offset: int) -> int:
    """Return the offset of the first entry of a record at *log_offset* or later."""
    return partition_point(
        queue.min_offset,
        queue.max_offset,
        lambda offset: queue.entry(offset).log_offset < log_offset,
    )


def _part_of(record: bytes) -> _SnapshotPart | None:
    try:
        return _PART.decode(decode_record(record).body)
    except (DamagedRecordError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def _fold(state: BrokerState, copied: _Copied, about: About) -> None:
    """Fold what concerns *about* into *state*; every record is verified.

    Raises:
        UnknownPastError: One is damaged, so it may have concerned it.
    """
    sizes = np.fromiter(map(len, copied.records), np.int64, len(copied.records))
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
    sound = proved_rows(b"".join(copied.records), starts, sizes)
    if not sound.all():
        place = copied.log_offsets[int(np.argmin(sound))]
        raise UnknownPastError(f"the event at log offset {place} cannot be read: it is damaged")
    for record, log_offset, code in zip(*copied, strict=True):
        if about.may_concern(record, code):
            event = about.part(decode_event(decode_record(record, check_crc=False).body))
            if event is not None:
                state.apply(event, log_offset)
