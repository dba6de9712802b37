"""Read the log: single records, by log offset or by key, and stretches of it.

Source: RocketMQ 5.3, ``DefaultMessageStore.queryMessage``, ``CommitLog.getData``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

import structlog

from eruca.contract.errors import RecordNotFoundError, UnavailableError
from eruca.contract.hashing import key_hash
from eruca.contract.messages import DamagedRecord
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
from eruca_broker.core.damage import RESTORE_FIX, damaged_record
from eruca_broker.core.log.whole_records import damaged_among, own_offset, whole_records
from eruca_broker.core.records.stored_proof import fault_of, whole_size
from eruca_broker.store.index.index_file import DamagedIndexError
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.log.segment import Segment

_SYS_FLAG: Final = slice(RecordLayout.SYS_FLAG, RecordLayout.SYS_FLAG + 4)

_log = structlog.get_logger()


class LogRead(NamedTuple):
    """A stretch of the log: whole records, back to back."""

    records: memoryview
    damaged: list[int]  # the log offsets of damaged records among them
    next_offset: int  # for the next read; after the records if a segment's rest is unused
    min_offset: int
    max_offset: int
    is_copied: bool = False  # into memory of their own; else they are in the log's mapping


def outside_log(log_offset: int, begin: int, end: int) -> RecordNotFoundError:
    """Return the error for a read outside the log, which is from *begin* to *end*."""
    return RecordNotFoundError(
        f"log offset {log_offset} is outside the log, {begin} to {end}",
        fix=f"read from {begin} on",
    )


def has_key(record: Record, topic: str, key: str, begin_ms: int, end_ms: int) -> bool:
    """Tell whether a record is a topic's message with a key, or with it as its unique id."""
    if record.topic != topic or not begin_ms <= record.store_timestamp <= end_ms:
        return False
    properties = record.property_map()
    return properties.get(UNIQ_KEY) == key or key in split_keys(properties.get(KEYS))


class LogReader:
    """Reads the log of one store; finds records by its key index."""

    def __init__(self, log: CommitLog, index: KeyIndex) -> None:
        self._log = log
        self._index = index

    @property
    def min_offset(self) -> int:
        """Log offset of the first record present."""
        return self._log.min_offset

    def record(self, log_offset: int, end_offset: int | None = None) -> Record:
        """Return the record that starts at *log_offset*.

        Args:
            log_offset: The record's first byte.
            end_offset: The end of the log for the caller; None for its own end.

        Raises:
            RecordNotFoundError: No record starts there, or it is damaged.
        """
        end = self._log.written_offset if end_offset is None else end_offset
        segment = self._log.segment_at(log_offset)
        if segment is not None and log_offset < end:
            view, start = memoryview(segment.buffer), log_offset - segment.base_offset
            _need_record(segment, start)
            try:
                record = decode_record(view, start)
            except DamagedRecordError as error:
                if own_offset(view, start) == log_offset:
                    raise damaged_record(log_offset, error) from error
            else:
                if record.log_offset == log_offset:
                    return record
        raise RecordNotFoundError(
            f"no record starts at log offset {log_offset}; the log holds "
            f"{self._log.min_offset} to {end}"
        )

    def raw(self, log_offset: int, *, is_proved: bool = True) -> memoryview:
        """Return the bytes of the record that starts at *log_offset*.

        Raises:
            RecordNotFoundError: No record starts there; or it is damaged, and *is_proved* is set.
        """
        segment = self._log.segment_at(log_offset)
        if segment is not None:
            view, start = memoryview(segment.buffer), log_offset - segment.base_offset
            _need_record(segment, start)
            size = int.from_bytes(view[start : start + 4])
            is_here = own_offset(view, start) == log_offset
            if is_here and RECORD_SIZE_MIN <= size <= len(view) - start:
                raw = view[start : start + size]
                if is_proved and (fault := fault_of(raw)) is not None:
                    raise damaged_record(log_offset, fault)
                return raw
        raise RecordNotFoundError(f"no record starts at log offset {log_offset}")

    def read_log(self, from_offset: int, bytes_max: int, end_offset: int) -> LogRead:
        """Return whole records from *from_offset* on, at most up to the end of their segment.

        Raises:
            RecordNotFoundError: No record starts there.
            UnavailableError: It, or a later one, is so damaged that the start of the next one is
                unknown. Its file may be restored, so the reader must not start again elsewhere.
        """
        lowest = self._log.min_offset
        if from_offset == end_offset:
            return LogRead(memoryview(b""), [], from_offset, lowest, end_offset)
        segment = self._log.segment_at(from_offset)
        if segment is None or from_offset > end_offset:
            raise outside_log(from_offset, lowest, end_offset)
        start = from_offset - segment.base_offset
        limit = min(segment.size, end_offset - segment.base_offset)
        _need_record(segment, start)
        # The record after them is looked at, too: at its head.
        segment.mapped.need(start, min(start + bytes_max + RECORD_SIZE_MIN, limit))
        view = memoryview(segment.buffer)[start:limit]
        found = whole_records(
            view,
            from_offset,
            bytes_max=bytes_max,
            base=segment.base_offset,
            end=segment.end_offset,
            stop=end_offset,
        )
        assert not found.needed, "the log is whole up to its end"
        damaged = damaged_among(view, found, from_offset)
        return LogRead(view[: found.size], damaged, found.next_offset, lowest, end_offset)

    def pieces(self, begin: int, end: int) -> list[memoryview]:
        """Return the log's own bytes from *begin* to *end*, by segment; both are in the log."""
        pieces: list[memoryview] = []
        while begin < end:
            segment = self._log.segment_at(begin)
            assert segment is not None, "the bytes are not in the log"
            stop = min(end, segment.end_offset)
            base = segment.base_offset
            segment.mapped.need(begin - base, stop - base)
            pieces.append(memoryview(segment.buffer)[begin - base : stop - base])
            begin = stop
        return pieces

    def begins_at(self, log_offset: int) -> bool:
        """Tell whether a record, or a blank record, begins at *log_offset*."""
        segment = self._log.segment_at(log_offset)
        if segment is None:
            return False
        start = log_offset - segment.base_offset
        segment.mapped.need(start, min(start + RECORD_SIZE_MIN, segment.size))
        return _starts_at(memoryview(segment.buffer), log_offset - segment.base_offset, log_offset)

    def run(
        self, from_offset: int, bytes_max: int, end_offset: int, *, is_proved: bool = True
    ) -> list[memoryview]:
        """Return the log's own bytes from *from_offset* on, blank records included, by segment.

        They end after a whole record, which is never a blank one. So if they include a blank
        record, they include the record after it.

        Args:
            from_offset: The beginning of a record.
            bytes_max: Maximum bytes, unless the first record is larger.
            end_offset: The end of the log for the caller.
            is_proved: Whether the records are verified. If not, the caller's reader does it.

        Raises:
            RecordNotFoundError: No record starts there.
            UnavailableError: A record is damaged.
        """
        if not is_proved and (plain := self._plain_run(from_offset, bytes_max, end_offset)):
            return [plain]
        pieces: list[memoryview] = []
        position, room, is_filled = from_offset, bytes_max, True
        while is_filled and position < end_offset:
            read = self.read_log(position, room, end_offset)
            if read.damaged:
                raise UnavailableError(
                    f"the record at log offset {read.damaged[0]} is damaged", fix=RESTORE_FIX
                )
            segment = self._log.segment_at(position)
            assert segment is not None  # it has just been read
            is_filled = read.next_offset == segment.end_offset
            if is_filled and read.next_offset >= end_offset:  # nothing after the blank record
                return [*pieces, read.records] if read.records else pieces
            begin, end = position - segment.base_offset, read.next_offset - segment.base_offset
            pieces.append(memoryview(segment.buffer)[begin:end])
            position = read.next_offset
            room = max(room - (end - begin), 1)
        return pieces

    def _plain_run(self, from_offset: int, bytes_max: int, end_offset: int) -> memoryview | None:
        """Return a run within one segment, not verified; None if there is anything else to it."""
        segment = self._log.segment_at(from_offset)
        if segment is None or from_offset >= end_offset:
            return None
        begin, end = from_offset - segment.base_offset, end_offset - segment.base_offset
        _need_record(segment, begin)
        segment.mapped.need(begin, min(begin + bytes_max + RECORD_SIZE_MIN, end, segment.size))
        records = memoryview(segment.buffer)[begin : min(end, segment.size)]
        size, has_further = whole_size(records, from_offset, bytes_max)
        is_whole = has_further or from_offset + size == end_offset
        return records[:size] if size and is_whole else None

    def stretches(self, from_offset: int, end_offset: int) -> list[memoryview]:
        """Return the log's own bytes between two log offsets, blank records included, by segment.

        Raises:
            RecordNotFoundError: No record starts at the first one.
        """
        if from_offset < end_offset and not self.begins_at(from_offset):
            raise RecordNotFoundError(f"no record starts at log offset {from_offset}")
        return self.pieces(from_offset, end_offset)

    def store_timestamp(self, log_offset: int) -> int | None:
        """Return when the record at *log_offset* was stored, in ms since the epoch.

        Return None if it is damaged.
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
        count_max: int,
        begin_ms: int,
        end_ms: int,
        since_offset: int,
        before_offset: int | None = None,
        unindexed: Iterable[int] = (),
        is_wanted: Callable[[Record], bool] | None = None,
        damaged: list[DamagedRecord] | None = None,
    ) -> list[Record]:
        """Return the newest records of *topic* that have *key* as unique id or among their keys.

        The index holds only hashes and seconds; the records themselves decide. The records at
        *unindexed*, newest first, are not in the index yet. Records before *since_offset*, or from
        *before_offset* on, are not read, and those that are not *is_wanted* are left out. Damaged
        records that may have the key are added to *damaged*.

        Raises:
            UnavailableError: The index cannot be read; or a record is damaged, and *damaged* is
                None: an existing key must not appear to be missing.
        """
        found = []
        indexed = self._indexed(key_hash(topic, key), begin_ms, end_ms)
        lowest = max(since_offset, self._log.min_offset)
        offsets: Iterable[int] = chain(unindexed, indexed)
        if before_offset is not None:  # skip the records of earlier pages unread
            offsets = (offset for offset in offsets if offset < before_offset)
        for record in self._candidates(offsets, lowest, damaged):
            is_it = has_key(record, topic, key, begin_ms, end_ms)
            if is_it and (is_wanted is None or is_wanted(record)):
                found.append(record)
                if len(found) == count_max:
                    break
        return found

    def _indexed(self, hashed: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        try:
            yield from self._index.candidates(hashed, begin_ms, end_ms)
        except (DamagedIndexError, OSError) as error:
            _log.error("the key index cannot be read", fault=str(error))
            raise UnavailableError(
                "the key index cannot be read, so it is unknown which messages have the key",
                fix="the broker's log names the file; without its directory index/, the broker "
                "rebuilds it when it starts",
            ) from error

    def _candidates(
        self, log_offsets: Iterable[int], lowest: int, damaged: list[DamagedRecord] | None
    ) -> Iterator[Record]:
        """Yield the records at *log_offsets*, newest first, down to the log offset *lowest*."""
        last = -1
        for offset in log_offsets:
            if offset < lowest:
                return
            if offset != last:  # a record may have the same key twice
                last = offset
                try:
                    record = self.record(offset)
                except RecordNotFoundError as error:
                    if damaged is None:
                        raise UnavailableError(
                            f"{error.detail}; it may be one that has the key", fix=RESTORE_FIX
                        ) from error
                    damaged.append(DamagedRecord(log_offset=offset, reason=error.detail))
                else:
                    yield record


def _need_record(segment: Segment, start: int) -> None:
    """Go on if the record at *start* is in memory, or outside an attempt.

    Raises:
        NotInMemoryError: It is not.
    """
    segment.mapped.need(start, min(start + RECORD_SIZE_MIN, segment.size))
    view = memoryview(segment.buffer)
    size = int.from_bytes(view[start : start + 4])
    is_record = own_offset(view, start) == segment.base_offset + start  # else *size* is anything
    if is_record and RECORD_SIZE_MIN < size <= segment.size - start:
        segment.mapped.need(start, start + size)


def _starts_at(view: memoryview, start: int, log_offset: int) -> bool:
    """Tell whether the record of *log_offset*, or a blank one, starts there."""
    is_blank = int.from_bytes(view[start + 4 : start + 8]) == MAGIC_BLANK
    return is_blank or own_offset(view, start) == log_offset
