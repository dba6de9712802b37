"""Reading: from a queue's entries to slices of the log, without touching a message.

A pull's answer is a few slices of the mapped log: messages that one producer batch put into one
queue lie back to back, so neighbours are joined into one slice before anything is sent.

Source: RocketMQ 5.3, ``DefaultMessageStore.getMessage``, ``queryMessage``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import structlog

from eruca.contract.errors import RecordNotFoundError, UnavailableError
from eruca.contract.hashing import key_hash
from eruca.contract.properties import KEYS, UNIQ_KEY, split_keys
from eruca.contract.records import (
    MAGIC_BLANK,
    RECORD_SIZE_MIN,
    DamagedRecordError,
    Record,
    RecordLayout,
    decode_record,
    layout_of,
)
from eruca.contract.wire import PullStatus
from eruca.core.filters.sql92 import Sql92Filter
from eruca_broker.core.consume_queue_entry import Entries
from eruca_broker.core.damage import RESTORE_FIX, damaged_record
from eruca_broker.store.index.index_file import DamagedIndexError
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.property_scan import (
    SCAN_RECORDS_MAX,
    SCAN_WORK_MAX,
    ScanLimits,
    scan,
)
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues

FEW_MAX: Final = 16  # entries up to which a loop costs less than numpy's calls; measured
SCAN_COUNT_MAX: Final = 16_384  # entries one pull with tags looks at before it answers

_SYS_FLAG: Final = slice(RecordLayout.SYS_FLAG, RecordLayout.SYS_FLAG + 4)

_log = structlog.get_logger()


@dataclass(slots=True)
class QueueRead:
    """What a pull of one queue found."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    sizes: bytes = b""  # u32 big-endian per record, as the wire has it
    slices: list[memoryview] = field(default_factory=list)  # the records, in order
    size: int = 0  # bytes of all slices
    scan_work: int = 0  # what a filter over properties has cost; see store.property_scan

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.sizes) // 4

    def records(self) -> Iterator[Record]:
        """Yield the messages, decoded, for who does not pass on their bytes.

        One that has been damaged on the disk comes as it is; where its parts cannot be told apart
        any more it is passed over, and that is logged: it must not hold up those behind it.
        """
        sizes = struct.iter_unpack(">I", self.sizes)
        for piece in self.slices:
            position = 0
            while position < len(piece):
                try:
                    yield decode_record(piece, position, check_crc=False)
                except DamagedRecordError as error:
                    _log.error("a damaged message is passed over", fault=str(error))
                position += next(sizes)[0]

    def raws(self) -> Iterator[memoryview]:
        """Yield the messages' records as they lie in the log, each for itself."""
        sizes = struct.iter_unpack(">I", self.sizes)
        for piece in self.slices:
            position = 0
            while position < len(piece):
                end = position + next(sizes)[0]
                yield piece[position:end]
                position = end


class LogRead(NamedTuple):
    """A stretch of the log: whole records, back to back."""

    records: memoryview
    next_offset: int  # where to read on; beyond the records where a segment's rest is unused
    min_offset: int
    max_offset: int


class Reader:
    """Answers from the log and its projections."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, index: KeyIndex) -> None:
        self._log = log
        self._queues = queues
        self._index = index

    @property
    def min_offset(self) -> int:
        """Log offset of the first record that is still there."""
        return self._log.min_offset

    def read(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        *,
        min_offset: int,
        max_offset: int,
        max_count: int,
        max_bytes: int,
        tag_codes: frozenset[int] | None,
        sql92: Sql92Filter | None = None,
        scan_work_max: int = SCAN_WORK_MAX,
    ) -> QueueRead:
        """Return messages of *queue* from *offset* on; the first one comes whatever its size."""

        def ended(status: PullStatus, next_offset: int) -> QueueRead:
            return QueueRead(status, next_offset, min_offset, max_offset)

        if offset < min_offset:
            return ended(PullStatus.OFFSET_TOO_SMALL, min_offset)
        if offset > max_offset:
            return ended(PullStatus.OFFSET_TOO_LARGE, max_offset)
        if offset == max_offset or queue is None:
            return ended(PullStatus.NO_NEW_MESSAGE, offset)
        looked_at = SCAN_COUNT_MAX if tag_codes is not None else max_count
        if sql92 is not None:
            looked_at = SCAN_RECORDS_MAX
        entries = queue.entries(offset, min(looked_at, max_offset - offset))
        if sql92 is not None:
            found = scan(self._log, entries, sql92, ScanLimits(max_count, max_bytes, scan_work_max))
            size = sum(size for _, size in found.rows)
            chosen = self._of_rows(found.rows, size, found.end, found.work)
        elif len(entries) <= FEW_MAX:
            chosen = self._of_rows(*_choose_few(entries, max_count, max_bytes, tag_codes))
        else:
            chosen = self._of_entries(*_choose_many(entries, max_count, max_bytes, tag_codes))
        status = PullStatus.FOUND if chosen.slices else PullStatus.NO_MATCHED_MESSAGE
        return QueueRead(
            status,
            offset + chosen.end,
            min_offset,
            max_offset,
            chosen.sizes,
            chosen.slices,
            chosen.size,
            chosen.work,
        )

    def record(
        self, log_offset: int, end_offset: int | None = None, *, is_proved: bool = True
    ) -> Record:
        """Return the record that starts at *log_offset*.

        Args:
            log_offset: Where its first byte lies.
            end_offset: Where the log ends for whoever asks; None for its own end.
            is_proved: Whether one whose body has rotted is none.

        Raises:
            RecordNotFoundError: None does; for an offset inside a record, too.
        """
        end = self._log.written_offset if end_offset is None else end_offset
        segment = self._log.segment_at(log_offset)
        if segment is not None and log_offset < end:
            view, start = memoryview(segment.buffer), log_offset - segment.base_offset
            try:
                record = decode_record(view, start, check_crc=is_proved)
            except DamagedRecordError as error:
                if _own_offset(view, start) == log_offset:
                    raise damaged_record(log_offset, error) from error
            else:
                if record.log_offset == log_offset:
                    return record
        raise RecordNotFoundError(
            f"no record starts at log offset {log_offset}; the log holds "
            f"{self._log.min_offset} to {end}"
        )

    def raw(self, log_offset: int) -> memoryview:
        """Return the bytes of the record that starts at *log_offset*; raises as ``record`` does."""
        segment = self._log.segment_at(log_offset)
        if segment is not None:
            view, start = memoryview(segment.buffer), log_offset - segment.base_offset
            size = int.from_bytes(view[start : start + 4])
            if (
                _own_offset(view, start) == log_offset
                and RECORD_SIZE_MIN <= size <= len(view) - start
            ):
                return view[start : start + size]
        raise RecordNotFoundError(f"no record starts at log offset {log_offset}")

    def read_log(self, from_offset: int, max_bytes: int, end_offset: int) -> LogRead:
        """Return whole records from *from_offset* on, at most up to the end of their segment.

        Raises:
            RecordNotFoundError: No record starts there.
            UnavailableError: One does, and it or another of them is damaged. That is not for good,
                and no reason to begin anew elsewhere: its file may be restored.
        """
        lowest = self._log.min_offset
        if from_offset == end_offset:
            return LogRead(memoryview(b""), from_offset, lowest, end_offset)
        segment = self._log.segment_at(from_offset)
        if segment is None or from_offset > end_offset:
            raise RecordNotFoundError(
                f"log offset {from_offset} is outside the log, {lowest} to {end_offset}",
                fix=f"read from {lowest} on",
            )
        start = from_offset - segment.base_offset
        position, limit = start, min(segment.size, end_offset - segment.base_offset)
        following = from_offset
        view = memoryview(segment.buffer)
        while position < limit:
            size = int.from_bytes(view[position : position + 4])
            magic = int.from_bytes(view[position + 4 : position + 8])
            if magic == MAGIC_BLANK:
                following = segment.end_offset
                break
            is_record = _own_offset(view, position) == segment.base_offset + position
            if not is_record or not RECORD_SIZE_MIN <= size <= limit - position:
                if 0 < position == start:  # nobody knows whether a record should start here
                    raise RecordNotFoundError(f"no record starts at log offset {from_offset}")
                raise UnavailableError(
                    f"the record at log offset {segment.base_offset + position} is damaged, and "
                    "where the next one starts is not known",
                    fix=RESTORE_FIX,
                )
            if position > start and position + size - start > max_bytes:
                break
            position += size
            following = segment.base_offset + position
        return LogRead(view[start:position], following, lowest, end_offset)

    def offset_by_time(self, queue: ConsumeQueue, timestamp: int, *, upper: bool) -> int:
        """Return the first offset stored at or after *timestamp*, or the last at or before it."""
        return queue.offset_by_time(timestamp, upper=upper, store_time_of=self.store_timestamp)

    def store_timestamp(self, log_offset: int) -> int | None:
        """Return when the record at *log_offset* was stored, in ms since the epoch.

        Its head tells, whatever has become of its body; None where not even that can be read.
        """
        try:
            raw = self.raw(log_offset)
        except RecordNotFoundError:
            return None
        at = layout_of(int.from_bytes(raw[_SYS_FLAG])).store_timestamp
        return int.from_bytes(raw[at : at + 8])

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        since_offset: int,
        unindexed: Iterable[int] = (),
        is_proved: bool = True,
    ) -> list[Record]:
        """Return the newest records of *topic* that have *key* as unique id or among their keys.

        The index knows hashes and seconds; the records themselves decide. Of those at the log
        offsets *unindexed*, newest first, it does not know yet. What lies before *since_offset*
        is not looked at, however much it is. Records whose bodies have rotted are left out, unless
        they need not be *is_proved*.

        Raises:
            UnavailableError: The index cannot be read; what it leads to must not seem not to exist.
        """
        found = []
        indexed = self._indexed(key_hash(topic, key), begin_ms, end_ms)
        lowest = max(since_offset, self._log.min_offset)
        for record in self._candidates(chain(unindexed, indexed), lowest, is_proved=is_proved):
            properties = record.property_map()
            if (
                record.topic == topic
                and begin_ms <= record.store_timestamp <= end_ms
                and (properties.get(UNIQ_KEY) == key or key in split_keys(properties.get(KEYS)))
            ):
                found.append(record)
                if len(found) == max_count:
                    break
        return found

    def _indexed(self, hashed: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        try:
            yield from self._index.candidates(hashed, begin_ms, end_ms)
        except (DamagedIndexError, OSError) as error:
            _log.error("the key index cannot be read", fault=str(error))
            raise UnavailableError(
                "the key index cannot be read, so nobody knows what has the key",
                fix="the broker's log names the file; without its directory index/, the broker "
                "makes it anew when it starts",
            ) from error

    def _candidates(
        self, log_offsets: Iterable[int], lowest: int, *, is_proved: bool
    ) -> Iterator[Record]:
        """Yield the records at *log_offsets*, newest first, down to the log offset *lowest*."""
        last = -1
        for offset in log_offsets:
            if offset < lowest:
                return
            if offset != last:  # a record may have the same key twice
                last = offset
                with suppress(RecordNotFoundError):  # of an index file damaged unnoticed
                    yield self.record(offset, is_proved=is_proved)

    def _of_rows(
        self, rows: Sequence[tuple[int, int]], size: int, end: int, work: int = 0
    ) -> _Chosen:
        """Return the records at *rows*' log offsets, each of so many bytes."""
        sizes = struct.pack(f">{len(rows)}I", *(size for _, size in rows))
        return _Chosen(sizes, list(self._slices_of_rows(rows)), size, end, work)

    def _slices_of_rows(self, rows: Sequence[tuple[int, int]]) -> Iterator[memoryview]:
        if not rows:
            return
        begin = end = rows[0][0]
        for log_offset, size in rows:
            if log_offset != end:
                yield self._log.view(begin, end - begin)
                begin = end = log_offset
            end += size
        yield self._log.view(begin, end - begin)

    def _of_entries(self, entries: Entries, size: int, end: int) -> _Chosen:
        """Return the records of *entries*, by columns."""
        sizes = entries["size"].tobytes()  # big-endian, as the wire has them
        return _Chosen(sizes, self._slices_of_entries(entries, size) if sizes else [], size, end)

    def _slices_of_entries(self, entries: Entries, size: int) -> list[memoryview]:
        starts, sizes = entries["log_offset"], entries["size"]
        first, end = int(starts[0]), int(starts[-1]) + int(sizes[-1])
        if end - first == size:  # no two overlap, so there is room for nothing between them
            return self._log.views([first], [end])
        starts = starts.astype(np.int64)
        ends = starts + sizes
        breaks = np.flatnonzero(starts[1:] != ends[:-1])
        begins = [first, *starts[breaks + 1].tolist()]
        return self._log.views(begins, [*ends[breaks].tolist(), end])


def _own_offset(view: memoryview, start: int) -> int:
    """Return the log offset that a record tells."""
    at = start + RecordLayout.LOG_OFFSET
    return int.from_bytes(view[at : at + 8])


class _Chosen(NamedTuple):
    """What a pull takes: slices of the log, where neighbouring records are one."""

    sizes: bytes  # u32 big-endian per record
    slices: list[memoryview]
    size: int  # bytes of all slices
    end: int  # entries that are done with
    work: int = 0  # what a filter over properties has cost


class _Few(NamedTuple):
    """The messages that a pull of a few entries takes."""

    rows: list[tuple[int, int]]  # log offset, size
    size: int  # bytes of all of them
    end: int  # entries that are done with


def _choose_few(
    entries: Entries, max_count: int, max_bytes: int, tag_codes: frozenset[int] | None
) -> _Few:
    """Choose messages as a pull may take them: at most so many, and so large but for the first."""
    rows: list[tuple[int, int]] = []
    total = 0
    for index, (log_offset, size, tag_code) in enumerate(entries.tolist()):
        if tag_codes is not None and tag_code not in tag_codes:
            continue
        if rows and (len(rows) == max_count or total + size > max_bytes):
            return _Few(rows, total, index)
        rows.append((log_offset, size))
        total += size
    return _Few(rows, total, len(entries))


class _Many(NamedTuple):
    """The messages that a pull of more entries takes."""

    entries: Entries
    size: int  # bytes of all of them
    end: int  # entries that are done with


def _choose_many(
    entries: Entries, max_count: int, max_bytes: int, tag_codes: frozenset[int] | None
) -> _Many:
    """Choose as :func:`_choose_few` does, by columns."""
    end = len(entries)
    matching = None
    if tag_codes is not None:
        matching = np.flatnonzero(np.isin(entries["tags_code"].astype(np.int64), list(tag_codes)))
        if len(matching) > max_count:
            end = int(matching[max_count])
            matching = matching[:max_count]
        entries = entries[matching]
    size = int(np.add.reduce(entries["size"], dtype=np.int64))
    if size > max_bytes:
        total = np.cumsum(entries["size"], dtype=np.int64)
        count = max(1, int(np.searchsorted(total, max_bytes, side="right")))
        if count < len(entries):
            end = count if matching is None else int(matching[count])
            entries, size = entries[:count], int(total[count - 1])
    return _Many(entries, size, end)
