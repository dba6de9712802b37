"""Read queues: from a queue's entries to slices of the log, without Python code per message.

Source: RocketMQ 5.3, ``DefaultMessageStore.getMessage``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np
import structlog

from eruca.contract.errors import RecordNotFoundError, UnavailableError
from eruca.contract.limits import QUEUE_COUNT_MAX
from eruca.contract.records import Record, decode_record
from eruca.contract.wire import PullStatus
from eruca.core.filters.sql92 import Sql92Filter
from eruca_broker.core.consume_queue_entry import ENTRY, ENTRY_SIZE, Entries
from eruca_broker.core.consuming.known_mismatches import KnownMismatches
from eruca_broker.core.damage import RESTORE_FIX, Damage
from eruca_broker.core.offset_search import partition_point
from eruca_broker.core.records.stored_proof import (
    WRONG_PLACE,
    fault_of,
    sizes_of_run,
    sound_count,
)
from eruca_broker.core.state.state import BrokerState
from eruca_broker.store.dispatcher import Dispatcher
from eruca_broker.store.log.commit_log import CommitLog, OutsideLogError
from eruca_broker.store.log.log_bytes import LogBytes
from eruca_broker.store.log_reader import LogReader
from eruca_broker.store.property_scan import (
    SCAN_RECORDS_MAX,
    SCAN_WORK_MAX,
    Scan,
    ScanLimits,
    scan,
)
from eruca_broker.store.pull_slices import PullSlices, take, take_found
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.lagging import Key, ProjectionError, queue_failed
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.tier.reader import TierReader

SKIP_COUNT_MAX: Final = 65_536  # entries that one pull passes over, if a filter excludes them
SCAN_COUNT_MAX: Final = 16_384  # entries that one pull with tags examines

_log = structlog.get_logger()


@dataclass(slots=True)
class QueueRead:
    """The result of a pull of one queue."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    sizes: bytes = b""  # u32 big-endian per record, as on the wire
    slices: list[memoryview] = field(default_factory=list)  # the records, in order
    size: int = 0  # bytes of all slices
    copied_size: int = 0  # of them in memory of their own, and not in the log's mapping
    scan_work: int = 0  # the cost of a filter over properties; see store.property_scan
    damage: Damage | None = None  # of the message before ``next_offset``; it is returned alone

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.sizes) // 4

    def records(self) -> Iterator[Record]:
        """Yield the decoded messages, for callers that do not pass on their bytes."""
        for raw in self.raws():
            yield decode_record(raw, check_crc=False)  # they have been verified

    def raws(self) -> Iterator[memoryview]:
        """Yield the messages' records one by one, as they are in the log."""
        sizes = struct.iter_unpack(">I", self.sizes)
        for piece in self.slices:
            position = 0
            while position < len(piece):
                end = position + next(sizes)[0]
                yield piece[position:end]
                position = end


class _Entries(Protocol):
    """Entries of a queue: of a consume queue, or of its part in the tier."""

    @property
    def generation(self) -> int: ...
    def entries(self, offset: int, count: int) -> Entries: ...


class _Source(NamedTuple):
    """The place of messages of a queue."""

    log: LogBytes
    queue: _Entries
    end: int  # queue offset after the last one in it
    is_tier: bool


class QueueReader:
    """Reads the queues of one store.

    Args:
        log: The store's log.
        queues: Its consume queues.
        dispatcher: Knows the lagging queues.
        state: Knows where the queues of deleted topics ended.
        log_reader: Reads single records.
        doubt: Returns why another replica may have messages that this one lacks; None: none has. A
            standby learns late what is confirmed, and its log may begin later than the master's. A
            master without its lease may be the former one.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        state: BrokerState,
        log_reader: LogReader,
        *,
        doubt: Callable[[], UnavailableError | None],
    ) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._state = state
        self._log_reader = log_reader
        self._doubt = doubt
        self._mismatches = KnownMismatches()
        self.tier: TierReader | None = None  # has what retention has deleted here; None: nothing
        self.evaluated_count = 0  # messages on which a filter over properties was tried
        self.spared_count = 0  # … and those on which its result was known
        self.damage_count = 0  # reads that found a damaged message

    def range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the offsets of the first message that can be read, and of the next message.

        The first one is in the tier, if there is one; see :meth:`local_range`.

        Raises:
            UnavailableError: The queue's files cannot be read; or it is not known yet what is in
                the tier.
        """
        try:
            return self._range(topic, queue_id)
        except (OSError, DamagedQueueError) as error:
            raise self._failed((topic, queue_id), error) from error

    def range_for(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        """Return the range of a queue for a reader at *offset*.

        It is that of :meth:`range`. But if *offset* is here or at the end, and it is not known yet
        what is in the tier, it begins with the first message here: the reader passes none.

        Raises:
            UnavailableError: As of :meth:`range`, if *offset* is elsewhere.
        """
        try:
            return self._range_for(topic, queue_id, offset)
        except (OSError, DamagedQueueError) as error:
            raise self._failed((topic, queue_id), error) from error

    def local_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the offsets of the first message here, without the tier, and of the next message.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        try:
            return self._local_range(topic, queue_id)
        except (OSError, DamagedQueueError) as error:
            raise self._failed((topic, queue_id), error) from error

    def beginnings(self) -> Iterator[tuple[Key, int]]:
        """Yield each queue, past ones included, with the offset of its first message here."""
        for key in {*self._queues, *self._state.queue_ends}:
            yield key, self.local_range(*key)[0]

    def lag_of(self, topic: str, queue_id: int) -> UnavailableError | None:
        """Return why a queue lacks messages of the log; None if it lacks none."""
        key = (topic, queue_id)
        lag = self._dispatcher.lagging.get(key)
        return None if lag is None else queue_failed(key, lag.error)

    def count(self, topic: str) -> int:
        """Return the number of queues of *topic*, past ones included: the last id plus one."""
        ids = range(QUEUE_COUNT_MAX - 1, -1, -1)
        return next(
            (i + 1 for i in ids if (topic, i) in self._queues or self._ended_at(topic, i)), 0
        )

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        count_max: int,
        bytes_max: int,
        tag_codes: frozenset[int] | None = None,
        sql92: Sql92Filter | None = None,
        scan_work_max: int = SCAN_WORK_MAX,
    ) -> QueueRead:
        """Return messages of a queue from *offset* on, up to a number and a size.

        All returned messages are valid. The answer ends before a damaged message. A read that
        begins at one returns only its ``damage``, and continues after it; that is counted and
        logged.

        Only a replica that is the master for sure says that messages were deleted or are damaged:
        the reader would pass them, and another replica may have them.

        Args:
            topic: An existing topic.
            queue_id: One of its queues.
            offset: Queue offset of the first message.
            count_max: The maximum number of messages.
            bytes_max: Their maximum size together; the first message is returned in any case.
            tag_codes: Hashes of the requested tags; None for every message.
            sql92: A filter over properties; not together with *tag_codes*.
            scan_work_max: The maximum cost of that filter; see ``store.property_scan``.

        Raises:
            UnavailableError: The queue's files cannot be read, or lack the messages at *offset*.
            NotMasterError, NotMasterForSureError: Only the master knows what is at *offset*.
        """
        if tag_codes is None and sql92 is None:
            plain = self._plain_read(topic, queue_id, offset, count_max, bytes_max)
            if plain is not None:
                return plain
        limits = ScanLimits(count_max, bytes_max, scan_work_max)
        return self._read(topic, queue_id, offset, limits, tag_codes, sql92)

    def _read(  # noqa: PLR0917 - as :meth:`read` has them
        self,
        topic: str,
        queue_id: int,
        offset: int,
        limits: ScanLimits,
        tag_codes: frozenset[int] | None,
        sql92: Sql92Filter | None,
    ) -> QueueRead:
        """Return messages as :meth:`read` does, wherever they are."""
        count_max, bytes_max, _ = limits
        source: _Source | None = None
        try:
            lowest, highest = self._range_for(topic, queue_id, offset)
            if offset >= highest and (lag := self.lag_of(topic, queue_id)) is not None:
                raise lag
            if not lowest <= offset < highest:
                return self._nothing(offset, lowest, highest)
            source = self._source(topic, queue_id, offset)
            if source is None:
                return self._nothing(offset, lowest, highest)
            log, queue = source.log, source.queue
            if sql92 is not None:
                entries, begin, found = self._scan(source, offset, sql92, limits)
                taken = take_found(log, found)
            else:
                begin = offset
                looked_at = count_max if tag_codes is None else SCAN_COUNT_MAX
                entries = queue.entries(offset, min(looked_at, source.end - offset))
                taken = take(log, entries, count_max, bytes_max, tag_codes)
            is_gapless = sql92 is None and tag_codes is None
            sound = self._sound_count(topic, queue_id, offset if is_gapless else None, taken)
            if sound < taken.message_count:
                if not sound:
                    damage = self._damage(log, (topic, queue_id), begin, entries, taken)
                    if (doubt := self._doubt()) is not None:
                        raise doubt
                    following = damage.queue_offset + 1
                    return QueueRead(PullStatus.DAMAGED, following, lowest, highest, damage=damage)
                fewer = limits._replace(count_max=sound)
                return self._read(topic, queue_id, offset, fewer, tag_codes, sql92)
        except OutsideLogError as error:
            if source is not None and source.is_tier:
                raise UnavailableError(
                    f"the tier's entries of {topic}/{queue_id} are invalid: {error}",
                    fix="restore the side object of the segment from a copy",
                ) from error
            raise self._queues.distrust(topic, queue_id, f"invalid entry: {error}") from error
        except (OSError, DamagedQueueError) as error:
            raise self._failed((topic, queue_id), error) from error
        is_copied = taken.gathered_from is not None
        if source.is_tier and self.tier is not None:
            self.tier.read_count += taken.message_count
            is_copied = True
        assert 0 < taken.end <= highest - offset, "a reader would stay where it is, or pass the end"
        return QueueRead(
            PullStatus.FOUND if taken.slices else PullStatus.NO_MATCHED_MESSAGE,
            offset + taken.end,
            lowest,
            highest,
            taken.sizes,
            taken.slices,
            taken.size,
            copied_size=taken.size if is_copied else 0,
            scan_work=taken.work,
        )

    def _plain_read(
        self, topic: str, queue_id: int, offset: int, count_max: int, bytes_max: int
    ) -> QueueRead | None:
        """Return messages that lie back to back in the log here, all of them valid.

        None if they do not: most reads need no more.
        """
        if self.tier is not None or (topic, queue_id) in self._dispatcher.rebuilding:
            return None
        try:
            queue = self._queues.existing(topic, queue_id)
            if queue is None or not queue.min_offset <= offset < queue.max_offset:
                return None
            lowest, highest = queue.min_offset, queue.max_offset
            count = min(count_max, highest - offset)
            entries = queue.entry_bytes(offset, count)
        except (OSError, DamagedQueueError):
            return None
        begin = ENTRY.unpack_from(entries)[0]
        last, last_size, _ = ENTRY.unpack_from(entries, len(entries) - ENTRY_SIZE)
        size = last + last_size - begin
        run = self._log.run(begin, size) if size <= bytes_max else None
        if run is None:
            return None
        at, records = run
        sizes = sizes_of_run(entries, at, size, topic, queue_id, offset)
        if sizes is None:
            return None
        return QueueRead(PullStatus.FOUND, offset + count, lowest, highest, sizes, [records], size)

    def _source(self, topic: str, queue_id: int, offset: int) -> _Source | None:
        """Return where the message at *offset*, which is in the range, is; None: nowhere."""
        queue = self._queues.existing(topic, queue_id)
        if queue is not None and queue.min_offset <= offset < queue.max_offset:
            return _Source(self._log, queue, queue.max_offset, is_tier=False)
        if self.tier is None:
            return None
        part = self.tier.queue((topic, queue_id), self._created_at(topic), offset)
        return _Source(self.tier, part, part.end, is_tier=True)

    def _scan(
        self,
        source: _Source,
        offset: int,
        sql92: Sql92Filter,
        limits: ScanLimits,
    ) -> tuple[Entries, int, Scan]:
        """Try *sql92* from *offset* on, where it is not known to exclude the message.

        Return entries, the queue offset of the first one, and the result, which also counts those
        that were passed over.
        """
        queue = source.queue
        window = min(source.end - offset, SKIP_COUNT_MAX)
        generation, condition = queue.generation, sql92.expression
        places, end = self._mismatches.unknown(
            generation, condition, offset, window, SCAN_RECORDS_MAX
        )
        if not len(places):
            self.spared_count += end
            return queue.entries(offset, 1), offset, Scan([], end, 0, [])
        first = int(places[0])
        entries = queue.entries(offset + first, int(places[-1]) + 1 - first)
        if first + len(entries) <= int(places[-1]):  # the tier returns fewer
            known = int(np.searchsorted(places, first + len(entries)))
            places, end = places[:known], int(places[known])
        found = scan(source.log, entries[places - first], sql92, limits)
        excluded = (offset + places[found.excluded]).tolist()
        self._mismatches.note(generation, condition, excluded)
        if found.end < len(places):  # the next one begins with what was not evaluated
            end = int(places[found.end])
        self.evaluated_count += found.end
        self.spared_count += end - found.end
        return entries, offset + first, found._replace(end=end)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Return the first offset stored at or after a time, or the last at or before it.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        lowest, highest = self.range(topic, queue_id)
        first, _ = self.local_range(topic, queue_id)
        if lowest < first:
            found = self._tier_offset_by_time(topic, queue_id, timestamp_ms, upper=upper)
            if found is not None:
                return min(max(found, lowest), highest)
        queue = self._queues.existing(topic, queue_id)
        if queue is None or first == highest:
            return highest - 1 if upper and lowest < highest else highest
        try:
            found = queue.offset_by_time(
                timestamp_ms, upper=upper, store_time_of=self._log_reader.store_timestamp
            )
        except (OSError, DamagedQueueError) as error:
            raise self._failed((topic, queue_id), error) from error
        if upper and lowest < first:
            found = max(found, first - 1)  # the last one in the tier is at or before the time
        return min(max(found, lowest), highest)

    def bytes_between(self, topic: str, queue_id: int, begin: int, end: int) -> tuple[int, int]:
        """Return the bytes of the messages from offset *begin* up to *end*, and their number.

        Only messages that are present here count, and none of the tier.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        lowest, highest = self.local_range(topic, queue_id)
        queue = self._queues.existing(topic, queue_id)
        begin, end = max(begin, lowest), min(end, highest)
        if queue is None or begin >= end:
            return 0, 0
        try:
            entries = queue.entries(begin, end - begin)
        except (OSError, DamagedQueueError) as error:
            raise self._failed((topic, queue_id), error) from error
        return int(entries["size"].sum(dtype=np.int64)), len(entries)

    def _tier_offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool
    ) -> int | None:
        """Return the result of a search that ends in the tier; None: it ends behind it."""
        assert self.tier is not None
        since = self._created_at(topic)
        first_ms = timestamp_ms + 1 if upper else timestamp_ms
        found = self.tier.offset_by_time((topic, queue_id), since, first_ms)
        if found is None:
            return None
        first, highest = self.local_range(topic, queue_id)
        if found >= first and first < highest:
            return None  # the log here decides
        return found - 1 if upper else found

    def stored_at_ms(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Return when a message was stored; None if it is missing or damaged.

        Damage, which may be the queue's, is logged: it must not fail the rest of the request.
        """
        lowest, highest = self.range_for(topic, queue_id, queue_offset)
        queue = self._queues.existing(topic, queue_id)
        if not lowest <= queue_offset < highest:
            return None
        if queue_offset < self.local_range(topic, queue_id)[0]:
            assert self.tier is not None
            since = self._created_at(topic)
            return self.tier.queue((topic, queue_id), since, queue_offset).time(queue_offset)
        if queue is None:
            return None
        try:
            return self._log_reader.record(queue.entry(queue_offset).log_offset).store_timestamp
        except RecordNotFoundError as error:
            fault = error.detail
        except (OSError, DamagedQueueError) as error:
            fault = self._failed((topic, queue_id), error).detail
        _log.error(
            "a damaged message has no readable store time",
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            fault=fault,
        )
        return None

    def log_offset_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the log offset of a message that is in the queue.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        if self.tier is not None and queue_offset < self.local_range(topic, queue_id)[0]:
            since = self._created_at(topic)
            part = self.tier.queue((topic, queue_id), since, queue_offset)
            return part.entry_at(queue_offset)
        try:
            return self._queues.queue(topic, queue_id).entry(queue_offset).log_offset
        except (OSError, DamagedQueueError) as error:
            raise self._failed((topic, queue_id), error) from error

    def offset_at(self, topic: str, queue_id: int, log_offset: int) -> int | None:
        """Return the queue offset of the message at *log_offset*; None if it is not in the queue.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        lowest, highest = self.local_range(topic, queue_id)
        queue = self._queues.existing(topic, queue_id)
        if queue is None:
            return None
        try:
            found = partition_point(
                lowest, highest, lambda offset: queue.entry(offset).log_offset < log_offset
            )
            is_it = found < highest and queue.entry(found).log_offset == log_offset
        except (OSError, DamagedQueueError) as error:
            raise self._failed((topic, queue_id), error) from error
        return found if is_it else None

    def _failed(self, key: Key, error: ProjectionError) -> UnavailableError:
        """Return the error for a queue whose files failed; a damaged one is rebuilt soon."""
        if isinstance(error, DamagedQueueError) and key not in self._dispatcher.rebuilding:
            self._queues.note_damage(*key, str(error))
        return queue_failed(key, error)

    def _sound_count(self, topic: str, queue_id: int, offset: int | None, taken: PullSlices) -> int:
        if not taken.slices:
            return 0
        return sound_count(
            list(zip(taken.begins, taken.slices, strict=True)),
            taken.sizes,
            topic=topic.encode(),
            queue_id=queue_id,
            queue_offset=offset,
            gathered_from=taken.gathered_from,
        )

    def _damage(
        self, log: LogBytes, key: Key, offset: int, entries: Entries, taken: PullSlices
    ) -> Damage:
        """Return the damage of the first message taken of *entries*."""
        topic, queue_id = key
        log_offset, size = taken.begins[0], int.from_bytes(taken.sizes[:4])
        row = int(np.argmax(entries["log_offset"] == log_offset))
        fault = fault_of(log.view(log_offset, size)) or WRONG_PLACE
        damage = Damage(offset + row, log_offset, size, fault)
        self.damage_count += 1
        _log.error(
            "a damaged message cannot be delivered",
            topic=topic,
            queue_id=queue_id,
            queue_offset=damage.queue_offset,
            log_offset=log_offset,
            fault=fault,
            fix=RESTORE_FIX,
        )
        return damage

    def _range(self, topic: str, queue_id: int) -> tuple[int, int]:
        lowest, highest = self._local_range(topic, queue_id)
        if self.tier is not None and lowest:
            lowest = self.tier.begin_of((topic, queue_id), self._created_at(topic), lowest)
        return lowest, highest

    def _range_for(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        try:
            return self._range(topic, queue_id)
        except UnavailableError:
            lowest, highest = self._local_range(topic, queue_id)
            if lowest <= offset <= highest:
                return lowest, highest
            raise  # the reader would continue elsewhere, and perhaps pass messages in the tier

    def _created_at(self, topic: str) -> int:
        """Return the log offset from which records of *topic* are the present topic's."""
        known = self._state.topics.get(topic)
        return known.created_at if known else 0

    def _local_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        if (topic, queue_id) in self._dispatcher.rebuilding:
            raise DamagedQueueError("it is being rebuilt from the log")  # its end is unknown
        queue = self._queues.existing(topic, queue_id)
        if queue is None or queue.min_offset == queue.max_offset:
            end = max(queue.max_offset if queue else 0, self._ended_at(topic, queue_id))
            return end, end
        return queue.min_offset, queue.max_offset

    def _nothing(self, offset: int, lowest: int, highest: int) -> QueueRead:
        """Return the result for an *offset* without a message, with the offset to continue at.

        Raises:
            NotMasterError, NotMasterForSureError: It is before the queue's beginning here, and may
                be in that of another replica.
        """
        if offset < lowest:
            if (doubt := self._doubt()) is not None:
                raise doubt
            return QueueRead(PullStatus.OFFSET_TOO_SMALL, lowest, lowest, highest)
        # A reader that comes from the master must not be sent back: it would read again.
        if offset > highest and self._doubt() is None:
            return QueueRead(PullStatus.OFFSET_TOO_LARGE, highest, lowest, highest)
        return QueueRead(PullStatus.NO_NEW_MESSAGE, offset, lowest, highest)

    def _ended_at(self, topic: str, queue_id: int) -> int:
        return self._state.queue_ends.get((topic, queue_id), 0)
