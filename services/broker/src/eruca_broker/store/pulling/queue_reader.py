"""Read queues: from a queue's entries to slices of the log, without Python code per message.

Source: RocketMQ 5.3, ``DefaultMessageStore.getMessage``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np
import structlog

from eruca.contract.errors import UnavailableError
from eruca.contract.wire import PullStatus
from eruca.core.filters.sql92 import Sql92Filter
from eruca_broker.core.consume_queue_entry import ENTRY, ENTRY_SIZE, Entries
from eruca_broker.core.consuming.known_mismatches import KnownMismatches
from eruca_broker.core.damage import RESTORE_FIX, Damage
from eruca_broker.core.records.stored_proof import (
    WRONG_PLACE,
    fault_of,
    sizes_of_run,
    sound_count,
)
from eruca_broker.core.state.state import BrokerState
from eruca_broker.store.log.commit_log import CommitLog, OutsideLogError
from eruca_broker.store.log.log_bytes import LogBytes
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.pulling.property_scan import (
    SCAN_RECORDS_MAX,
    SCAN_WORK_MAX,
    Scan,
    ScanLimits,
    scan,
)
from eruca_broker.store.pulling.pull_slices import PullSlices, take, take_found
from eruca_broker.store.pulling.queue_ranges import QueueRanges
from eruca_broker.store.pulling.queue_read import QueueRead
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.lagging import Key
from eruca_broker.store.queues.queue_files import DamagedQueueError

SKIP_COUNT_MAX: Final = 65_536  # entries that one pull passes over, if a filter excludes them
SCAN_COUNT_MAX: Final = 16_384  # entries that one pull with tags examines

_log = structlog.get_logger()


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


class QueueReader(QueueRanges):
    """Reads the queues of one store.

    Args:
        log: The store's log.
        queues: Its consume queues.
        dispatcher: Knows the lagging queues.
        state: Knows where the queues of deleted topics ended.
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
        *,
        doubt: Callable[[], UnavailableError | None],
    ) -> None:
        super().__init__(queues, dispatcher, state)
        self._log = log
        self._doubt = doubt
        self._mismatches = KnownMismatches()
        self.evaluated_count = 0  # messages on which a filter over properties was tried
        self.spared_count = 0  # … and those on which its result was known
        self.damage_count = 0  # reads that found a damaged message

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
            raise self.failed((topic, queue_id), error) from error
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
        part = self.tier.queue((topic, queue_id), self.created_at(topic), offset)
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
