"""The commit log: one sequence of records over segments of equal length, with one writer.

Appending has two halves. ``roll``, ``add`` and ``add_copied`` take buffers in memory, which get
their future log offsets. ``write`` passes everything added since the last call to the kernel, one
system call per segment. Nothing is acknowledged in between, so a failed ``write`` undoes all of it:
the log is as it was.

A killed process may leave the beginning of a large write without its end. So the first bytes of a
write are written last, in a separate call. Data behind zeros is not part of the log, and the next
start truncates it. A write is in the log as a whole or not at all, unless the power fails.

A record never crosses a segment's end. If one does not fit, a blank record marks the rest of the
segment, and the log continues in the next one.

One thread appends. Another one may create the next segment in advance. A lock keeps the two from
creating the same file at once, which would fail.

Source: RocketMQ 5.3, ``CommitLog``, ``MappedFileQueue``.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import BLANK_SIZE_MIN, DamagedRecordError, decode_record, encode_blank
from eruca.core.messages.record_columns import Int64Array
from eruca_broker.core.records.stored_proof import gathered
from eruca_broker.store.files.refusals import is_scarcity
from eruca_broker.store.files.residency import Mapped, NotInMemoryError, Stretch
from eruca_broker.store.log.segment import NAME_DIGITS, Segment
from eruca_chassis.files.directories import make_directory, sync_directory

_HEAD_SIZE: Final = 8  # bytes of a record with its size and magic, which must not be separated
assert _HEAD_SIZE <= BLANK_SIZE_MIN, "what is added to the log has a head"


class CorruptLogError(Exception):
    """The log is damaged in its durable part, or its files do not form a log."""


class LostRecordsError(CorruptLogError):
    """Durable records are damaged, and so is whatever follows them; a start may give them up."""


class OutsideLogError(Exception):
    """A read was outside the log: the pointer that led there is wrong."""


def checked_files(directory: Path) -> tuple[list[tuple[Path, int]], Path | None]:
    """Return the log's files with their sizes, in order; and the last one if it is empty.

    Raises:
        CorruptLogError: The files do not follow each other, or differ in length.
    """
    paths = sorted(p for p in directory.iterdir() if p.name.isdigit())
    empty = paths.pop() if paths and paths[-1].stat().st_size == 0 else None
    files: list[tuple[Path, int]] = []
    for path in paths:
        size = path.stat().st_size
        expected = files[0][1] if files else size
        is_sound = size == expected or (size < expected and path == paths[-1])
        follows = not files or int(path.name) == int(files[-1][0].name) + files[-1][1]
        if len(path.name) != NAME_DIGITS or not is_sound or not follows:
            raise CorruptLogError(
                f"{path} ({size} bytes) does not follow the segment before it: a file of the "
                f"log is missing, truncated or not ours; restore it from a backup"
            )
        files.append((path, size))
    return files, empty


class CommitLog:
    """The segments, the position of the next record, and the data to be written."""

    def __init__(self, directory: Path, segment_bytes: int, segments: list[Segment]) -> None:
        self._directory = directory
        self.segment_bytes = segment_bytes
        self.segments = segments
        self.end_offset = segments[0].base_offset if segments else 0  # of the next record
        self.written_offset = self.end_offset  # everything before it can be read
        self._next: Segment | None = None  # created in advance
        self._making = threading.Lock()
        self.is_warming = False  # whether segments created in advance are written through once
        self._empty: Path | None = None  # a last file of zero bytes
        self._added: list[tuple[Segment, int, list[memoryview]]] = []
        self._deleted: list[Segment] = []  # their files are still open
        self._new_segments = 0  # segments first used since the last write
        self._is_tail_foul = False  # a failed write may have left bytes behind the end

    @classmethod
    def open(
        cls, directory: Path, segment_bytes: int, *, stopped_cleanly: bool = True
    ) -> CommitLog:
        """Open the log in *directory*, or an empty one. No file is changed.

        The log's end is still unknown: recovery finds it and calls :meth:`set_end`. The length of
        existing files takes precedence over *segment_bytes*. Only the last file may be shorter,
        since a crash can come before a new file has its length. If it is the only file, its
        intended length is unknown. After a crash *segment_bytes* is then assumed, provided that
        Eruca has begun the file.

        Raises:
            CorruptLogError: The files do not follow each other, or differ in length.
        """
        make_directory(directory)
        files, empty = checked_files(directory)
        segments = [Segment.open(path) for path, _ in files]
        if segments:
            own_size = segments[0].size
            is_cut = len(segments) == 1 and not stopped_cleanly and _is_ours(segments[0])
            segment_bytes = max(own_size, segment_bytes) if is_cut else own_size
        log = cls(directory, segment_bytes, segments)
        log._empty = empty
        return log

    @property
    def min_offset(self) -> int:
        """Log offset of the first byte present."""
        return self.segments[0].base_offset if self.segments else self.end_offset

    def set_end(self, offset: int, *, is_full: bool = False, is_tail_clean: bool) -> None:
        """Set the end of the log, and remove everything after it.

        Args:
            offset: Log offset after the last valid record, or of the segment after a full one.
            is_full: Whether a blank record ends the last segment.
            is_tail_clean: Whether nothing can have been written after the end.

        Raises:
            OSError: There is no room to extend a file.
        """
        assert not self._added
        if self._empty is not None:
            self._empty.unlink()
            self._empty = None
        while self.segments and self._is_unused(self.segments[-1], offset):
            self.segments.pop().delete()
        if self.segments:
            last = self.segments[-1]
            if not is_tail_clean and offset < last.end_offset:
                try:
                    last.cut_tail(offset - last.base_offset)
                except OSError as error:
                    if not is_scarcity(error):
                        raise
                    self._is_tail_foul = True  # clear it before the next write
            if last.size < self.segment_bytes and not is_full:
                self.segments[-1] = last.extend(self.segment_bytes)
            self.segment_bytes = self.segments[-1].size
        self.end_offset = self.written_offset = offset
        assert self.min_offset <= offset <= self.allocated_offset, "the log ends outside its files"

    def has_data_from(self, offset: int) -> bool:
        """Tell whether the files have any byte but zeros from log offset *offset* on."""
        return any(
            segment.has_data_from(max(offset - segment.base_offset, 0))
            for segment in self.segments_between(offset, self.allocated_offset)
        )

    def cut(self, offset: int) -> None:
        """Remove everything from log offset *offset* on, durably; the log is not recovered yet.

        Segments are deleted from the last one on, so that no crash leaves a gap among the files.
        The first one stays: it says where the log begins.

        Raises:
            OSError: Some of it may remain; calling again continues.
        """
        assert self.min_offset <= offset <= self.allocated_offset
        assert not self._added
        while len(self.segments) > 1 and self.segments[-1].base_offset >= offset:
            self.segments.pop().delete()
        for segment in self.segments[-1:]:
            segment.cut_tail(offset - segment.base_offset)

    def fits(self, size: int) -> bool:
        """Tell whether a record or batch of *size* bytes fits into the current segment."""
        if not self.segments:
            return False
        return self.end_offset + size + BLANK_SIZE_MIN <= self.segments[-1].end_offset

    def roll(self) -> None:
        """Continue in a new segment.

        Raises:
            OSError: There is no room for one; the log is unchanged.
        """
        with self._making:
            following = self._take_next()
            if self.segments:
                room = self.segments[-1].end_offset - self.end_offset
                if room:
                    assert room >= BLANK_SIZE_MIN
                    self._add(memoryview(encode_blank(room)), room)
            assert following.size == self.segment_bytes, "segments are found by dividing"
            following.use()
            self.segments.append(following)
        self._new_segments += 1

    def begin_at(self, offset: int, segment_bytes: int) -> None:
        """Begin this log, which has no records, at *offset*, with a segment of *segment_bytes*.

        Raises:
            OSError: There is no room for one; the log has no segment.
        """
        assert self.min_offset == self.end_offset, "records would be lost"
        assert not self._added
        with self._making:
            surplus = [*self.segments, *([self._next] if self._next else [])]
            self.segments, self._next = [], None
            for segment in surplus:
                segment.delete()
        self.segment_bytes = segment_bytes
        self.end_offset = self.written_offset = offset
        self.roll()
        self._new_segments = 0  # nothing takes it back: it says where the log begins

    def add(self, records: memoryview) -> int:
        """Add *records*, which must fit, and return the log offset of the first one."""
        assert self.fits(len(records)), "a record would cross the segment's end"
        return self._add(records, len(records))

    @property
    def room(self) -> int:
        """Bytes left in the segment of the next record."""
        return self.allocated_offset - self.end_offset or self.segment_bytes

    def add_copied(self, stretches: Sequence[memoryview]) -> None:
        """Add bytes of the master's log; each stretch but the last fills its segment.

        Raises:
            OSError: There is no room for a segment; the caller must take back everything added.
        """
        for stretch in stretches:
            if self.end_offset == self.allocated_offset:
                self.roll()
            self._add(stretch, len(stretch))

    def write(self) -> None:
        """Pass everything added to the kernel; from then on it can be read.

        Raises:
            OSError: None of it is in the log, which ends where it did before.
        """
        added, self._added = self._added, []
        assert self.written_offset <= self.end_offset <= self.allocated_offset
        try:
            if self._is_tail_foul:
                self._cut_tail()
            if added:
                _write_head_last(added)
        except OSError:
            self.take_back()
            raise
        self._new_segments = 0
        self.written_offset = self.end_offset
        for segment, position, _ in added:
            end = min(self.written_offset, segment.end_offset) - segment.base_offset
            segment.mapped.written(position, end)

    def take_back(self) -> None:
        """Undo everything added since the last write, including the rest of a failed write."""
        self._is_tail_foul = True
        self.drop_added()
        with suppress(OSError):
            self._cut_tail()  # if this fails, the next write tries again

    def drop_added(self) -> None:
        """Undo everything added since the last write; none of it has been written.

        New segments are removed from the last one on, so that no crash leaves a gap among the
        files. A file that cannot be removed makes the next roll fail.
        """
        self._added.clear()
        self.end_offset = self.written_offset
        with self._making:
            assert self._new_segments <= len(self.segments)
            surplus = [self.segments.pop() for _ in range(self._new_segments)]
            assert self.written_offset <= self.allocated_offset, "written bytes would be deleted"
            if surplus and self._next is not None:  # it was created to follow the last of them
                surplus.insert(0, self._next)
                self._next = None
            self._new_segments = 0
            with suppress(OSError):
                for segment in surplus:
                    segment.delete()

    def make_next(self) -> Segment:
        """Create the next segment in advance, and return it; may be called from another thread.

        Raises:
            OSError: There is no room for it.
        """
        with self._making:
            following = self._next = self._take_next()
        return following

    def prepare_next(self) -> None:
        """Create the next segment in advance, and warm it; may be called from another thread.

        It can be used once it is created, however warm it is.

        Raises:
            OSError: There is no room for it, or it cannot be warmed.
        """
        following = self.make_next()
        if self.is_warming:
            following.warm()

    def stop_warming(self) -> None:
        """Stop warming the next segment, and do not warm later ones."""
        self.is_warming = False
        following = self._next
        if following is not None:
            following.use()

    @property
    def allocated_offset(self) -> int:
        """Log offset after the last byte of the last file, written or not."""
        return self.segments[-1].end_offset if self.segments else self.end_offset

    def segment_start(self, offset: int) -> int:
        """Return the start of the segment that holds *offset*, or of the nearest one."""
        index = bisect.bisect_right(self.segments, offset, key=_base_offset) - 1
        return self.segments[max(index, 0)].base_offset if self.segments else self.end_offset

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment that holds *offset*; None outside the log."""
        if not self.min_offset <= offset < self.written_offset:
            return None
        segment = self.segments[(offset - self.min_offset) // self.segment_bytes]
        assert segment.base_offset <= offset < segment.end_offset, "segments of two lengths"
        return segment

    def view(self, offset: int, size: int, *, is_needed: bool = False) -> memoryview:
        """Return *size* written bytes from *offset* on, which must lie within one segment.

        Args:
            offset: The first byte.
            size: Their number.
            is_needed: Whether the caller has asked for them by :meth:`need` before.

        Raises:
            OutsideLogError: They do not.
            NotInMemoryError: They are not in memory, in an attempt.
        """
        segment = self._segment_of(offset, offset + size)
        start = offset - segment.base_offset
        if not is_needed:
            segment.mapped.need(start, start + size)
        return memoryview(segment.buffer)[start : start + size]

    def run(self, start: int, size: int) -> tuple[int, memoryview] | None:
        """Return the memory address of *size* written bytes from *start* on, and the bytes.

        The address is valid as long as the bytes are used. None if they do not lie in one segment,
        or are not within the log.

        Raises:
            NotInMemoryError: Some are not in memory, in an attempt.
        """
        segment = self.segment_at(start)
        if segment is None or size <= 0:
            return None
        first = start - segment.base_offset
        end = first + size
        if end > segment.size or start + size > self.written_offset:
            return None
        mapped = segment.mapped
        if missing := mapped.missing(first, end):
            raise NotInMemoryError(missing)
        return mapped.address + first, memoryview(segment.buffer)[first:end]

    def views(self, starts: Sequence[int], ends: Sequence[int]) -> list[memoryview]:
        """Return written stretches, each within one segment; neighbours mostly share one.

        Raises:
            OutsideLogError: One does not.
            NotInMemoryError: Some are not in memory, in an attempt.
        """
        views: list[memoryview] = []
        missing: list[Stretch] = []
        buffer, base, limit = memoryview(b""), 0, 0
        mapped: Mapped | None = None
        for start, end in zip(starts, ends, strict=True):
            if not base <= start <= end <= limit:
                segment = self._segment_of(start, end)
                buffer, mapped = memoryview(segment.buffer), segment.mapped
                base, limit = segment.base_offset, min(segment.end_offset, self.written_offset)
            assert mapped is not None, "a stretch lies in no segment"
            missing += mapped.missing(start - base, end - base)
            views.append(buffer[start - base : end - base])
        if missing:
            raise NotInMemoryError(missing)
        return views

    def gathered(self, starts: Int64Array, sizes: Int64Array) -> memoryview | None:
        """Return copies of written records, one after another.

        None if they do not lie in one segment, or one of them is not within the log.

        Args:
            starts: Log offset of each record.
            sizes: Bytes of each.

        Raises:
            NotInMemoryError: Some are not in memory, in an attempt.
        """
        assert len(starts) == len(sizes) > 0
        segment = self.segment_at(int(starts.min()))
        if segment is None:
            return None
        limit = min(segment.end_offset, self.written_offset)
        # In this order: sums of what is within the log cannot overflow.
        if int(starts.max()) > limit or int(sizes.min()) < 0 or int((starts + sizes).max()) > limit:
            return None
        places = starts - segment.base_offset
        segment.mapped.need_all(places, sizes)
        return gathered(segment.buffer, places, sizes)

    def segments_between(self, first: int, last: int) -> list[Segment]:
        """Return the segments that hold bytes from log offset *first* up to *last*."""
        begin = bisect.bisect_right(self.segments, first, key=_base_offset) - 1
        end = bisect.bisect_left(self.segments, last, key=_base_offset)
        return self.segments[max(begin, 0) : end]

    def expired(self, needed_from: int) -> Segment | None:
        """Return the oldest segment if it may be deleted; None if it is the last, or still needed.

        Data after log offset *needed_from* is needed.
        """
        oldest = self.segments[0] if len(self.segments) > 1 else None
        return oldest if oldest is not None and oldest.end_offset <= needed_from else None

    def delete_oldest(self) -> None:
        """Delete the oldest segment; readers keep the views that they have.

        Raises:
            OSError: The file cannot be deleted, and stays in the log. Deleting a later one instead
                would leave a gap among the files.
        """
        assert len(self.segments) > 1, "the last segment determines the log's end"
        self.segments[0].path.unlink()
        self._deleted.append(self.segments.pop(0))

    def let_deleted_go(self) -> None:
        """Free the memory of deleted segments, and make their deletion durable.

        This is slow, so it runs in a thread, and before the next segment is deleted.

        Raises:
            OSError: The deletion is not durable.
        """
        while self._deleted:
            self._deleted.pop().let_go()
        sync_directory(self._directory)

    def close(self) -> None:
        """Close all files; nothing is flushed."""
        if self._next is not None:
            self._next.delete()
            self._next = None
        for segment in [*self.segments, *self._deleted]:
            segment.close()
        self._deleted.clear()

    def _segment_of(self, begin: int, end: int) -> Segment:
        segment = self.segment_at(begin)
        if segment is None or not begin <= end <= min(segment.end_offset, self.written_offset):
            raise OutsideLogError(f"nothing lies at log offset {begin} to {end}")
        return segment

    def _add(self, records: memoryview, advance: int) -> int:
        segment = self.segments[-1]
        offset = self.end_offset
        assert segment.base_offset <= offset <= segment.end_offset - advance
        if self._added and self._added[-1][0] is segment:
            self._added[-1][2].append(records)
        else:
            self._added.append((segment, offset - segment.base_offset, [records]))
        self.end_offset += advance
        return offset

    def _take_next(self) -> Segment:
        """Return the segment that follows the last one; the lock is held."""
        base = self.segments[-1].end_offset if self.segments else self.end_offset
        following, self._next = self._next, None
        assert following is None or following.base_offset == base
        return following or Segment.create(self._directory, base, self.segment_bytes)

    def _cut_tail(self) -> None:
        for segment in self.segments_between(self.written_offset, self.written_offset + 1):
            segment.cut_tail(self.written_offset - segment.base_offset)
        self._is_tail_foul = False

    def _is_unused(self, segment: Segment, end_offset: int) -> bool:
        is_unmade = segment.base_offset == end_offset and segment.size < self.segment_bytes
        return segment.base_offset > end_offset or is_unmade


def _write_head_last(stretches: Sequence[tuple[Segment, int, list[memoryview]]]) -> None:
    first, start, buffers = stretches[0]
    head, buffers[0] = buffers[0][:_HEAD_SIZE], buffers[0][_HEAD_SIZE:]
    first.write(buffers, start + len(head))
    for segment, position, others in stretches[1:]:
        segment.write(others, position)
    first.write([head], start)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _is_ours(segment: Segment) -> bool:
    """Tell whether Eruca has begun *segment*; if so, it begins with a control record."""
    try:
        return decode_record(memoryview(segment.buffer)).topic == EVENTS_TOPIC
    except DamagedRecordError:
        return False
