"""The state as of an earlier log offset, folded again from the latest snapshot before it.

Each segment begins with a snapshot, so the fold reads the events of one segment at most. The event
loop copies the bytes of some records at a time, and a thread verifies, decodes and folds them. Then
the fold rests, so that most requests meet none of it. One fold runs at a time.

Nothing is guessed. If a fact is not in the log any more, the state is unknown, with the reason.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NamedTuple

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
from eruca_broker.store.cold_reads import ColdReads
from eruca_broker.store.log_reader import LogReader
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.state.snapshot_entries import snapshot_entries

PAST_EVENT_COUNT_MAX: Final = 200_000
"""Events of one fold: about a second of one core, and with its rests some seconds."""
WAITING_MAX: Final = 8  # folds that wait for their turn
_STEP_COUNT: Final = 256  # records that are copied, and then folded, at a time: about 1 ms each
_STEP_BYTES: Final = 1 << 20  # likewise; a single part of a snapshot may be larger
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
        cold: Waits for what is not in memory.
    """

    def __init__(self, queues: ConsumeQueues, reader: LogReader, cold: ColdReads) -> None:
        self._queues = queues
        self._reader = reader
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

    def queue_end(self, topic: str, queue_id: int, log_offset: int) -> int | None:
        """Return the next offset of a queue after all records before *log_offset*.

        None: the queue is not there, or its files cannot be read.
        """
        try:
            queue = self._queues.existing(topic, queue_id)
            return None if queue is None else _first_from(queue, log_offset)
        except (OSError, DamagedQueueError):
            return None

    async def _before(self, log_offset: int, about: About) -> PastState:
        if log_offset < self._reader.min_offset:
            raise UnknownPastError(
                f"the log on the broker's disk begins at {self._reader.min_offset}; retention has "
                "deleted what was before, and no state is folded from a tier"
            )
        queue = self._queues.existing(EVENTS_TOPIC, EVENTS_QUEUE_ID)
        end = None if queue is None else _first_from(queue, log_offset)
        first = None if end is None or queue is None else await self._snapshot(queue, end)
        if queue is None or end is None or first is None:
            raise UnknownPastError(
                "the log has no whole snapshot of the state before this offset, from which it "
                "could be folded"
            )
        if end - first > PAST_EVENT_COUNT_MAX:
            raise UnknownPastError(
                f"{end - first} events are between the latest snapshot and this offset, more than "
                f"{PAST_EVENT_COUNT_MAX}"
            )
        snapshot_offset = queue.entry(first).log_offset
        state = BrokerState()
        while first < end:
            copied = await self._copied(queue, first, end)
            first += len(copied.records)
            await asyncio.to_thread(_fold, state, copied, about)
            if first < end:
                await asyncio.sleep(_REST_SECONDS)
        return PastState(state, snapshot_offset)

    async def _snapshot(self, queue: ConsumeQueue, end: int) -> int | None:
        """Return the queue offset of the first part of the latest whole snapshot before *end*."""
        for last in snapshot_entries(queue, end):
            part = await self._part_at(queue, last)
            if part is None or part.part != part.parts:
                continue
            first = last - part.parts + 1
            begin = await self._part_at(queue, first) if first >= queue.min_offset else None
            if begin is not None and begin.part == 1:
                return first
        return None

    async def _part_at(self, queue: ConsumeQueue, offset: int) -> _SnapshotPart | None:
        [record] = (await self._copied(queue, offset, offset + 1)).records
        return await asyncio.to_thread(_part_of, record)

    async def _copied(self, queue: ConsumeQueue, first: int, end: int) -> _Copied:
        """Return some records from queue offset *first* on, at least one."""
        copy = partial(self._copied_now, queue, first, end)
        return await self._cold.read("earlier states", copy)

    def _copied_now(self, queue: ConsumeQueue, first: int, end: int) -> _Copied:
        if first < queue.min_offset:
            raise UnknownPastError("retention has deleted an event meanwhile")
        entries = queue.entries(first, min(end - first, _STEP_COUNT))
        records: list[bytes] = []
        log_offsets: list[int] = entries["log_offset"].tolist()
        size = 0
        for log_offset in log_offsets:
            records.append(bytes(self._reader.raw(log_offset, is_proved=False)))
            size += len(records[-1])
            if size >= _STEP_BYTES:
                break
        count = len(records)
        return _Copied(records, log_offsets[:count], entries["tags_code"][:count].tolist())


def _first_from(queue: ConsumeQueue, log_offset: int) -> int:
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
