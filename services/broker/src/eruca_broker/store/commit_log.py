"""The commit log: one sequence of records over segments of equal length, with one writer.

Appending has two halves. ``reserve`` and ``add`` take buffers in memory and say where they will
lie; ``write`` hands everything added since the last time to the kernel, one system call per
segment. Between the two nobody has been promised anything, so a failed ``write`` takes all of it
back: the log is as it was.

A record never crosses a segment's end. Where one does not fit, the rest of the segment is marked
by a blank record and the log goes on in the next segment.

Source: RocketMQ 5.3, ``CommitLog``, ``MappedFileQueue``.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from pathlib import Path

from eruca.contract.records import BLANK_SIZE_MIN, encode_blank
from eruca_broker.store.segment import NAME_DIGITS, Segment


class CorruptLogError(Exception):
    """The log is damaged where it was durable, or its files do not form a log."""


class CommitLog:
    """The segments, where the next record goes, and what waits to be written."""

    def __init__(self, directory: Path, segment_size: int, segments: list[Segment]) -> None:
        self._directory = directory
        self.segment_size = segments[0].size if segments else segment_size
        self.segments = segments
        self.end_offset = segments[0].base_offset if segments else 0  # where the next record goes
        self.written_offset = self.end_offset  # everything before it can be read
        self._next: Segment | None = None  # made ahead of need
        self._added: list[tuple[Segment, int, list[memoryview]]] = []
        self._new_segments = 0  # of the segments, those first used since the last write

    @classmethod
    def open(cls, directory: Path, segment_size: int) -> CommitLog:
        """Open the log in *directory*, or an empty one.

        The log's end is not known yet: recovery finds it and calls :meth:`set_end`. The length of
        the files that are there wins over *segment_size*.

        Raises:
            CorruptLogError: The files do not follow each other, or differ in length.
        """
        directory.mkdir(parents=True, exist_ok=True)
        paths = sorted(p for p in directory.iterdir() if p.name.isdigit())
        if paths and paths[-1].stat().st_size == 0:
            paths.pop().unlink()  # made by a process that stopped before it could reserve space
        segments: list[Segment] = []
        for path in paths:
            size = path.stat().st_size
            expected = segments[0].size if segments else size
            follows = not segments or int(path.name) == segments[-1].end_offset
            if len(path.name) != NAME_DIGITS or size != expected or not follows:
                raise CorruptLogError(
                    f"{path} ({size} bytes) does not follow the segment before it: a file of the "
                    f"log is missing, foreign or cut; restore it from a replica or a backup"
                )
            segments.append(Segment.open(path))
        return cls(directory, segment_size, segments)

    @property
    def min_offset(self) -> int:
        """Log offset of the first byte that is still there."""
        return self.segments[0].base_offset if self.segments else self.end_offset

    def set_end(self, offset: int, *, is_tail_clean: bool) -> None:
        """Declare where the log ends; unless the tail is clean, turn it into nothing."""
        assert not self._added
        while self.segments and self.segments[-1].base_offset > offset:
            self.segments.pop().delete()
        if not is_tail_clean and self.segments and offset < self.segments[-1].end_offset:
            self.segments[-1].cut_tail(offset - self.segments[-1].base_offset)
        self.end_offset = self.written_offset = offset

    def fits(self, size: int) -> bool:
        """Tell whether a record or batch of *size* bytes goes into the current segment."""
        if not self.segments:
            return False
        return self.end_offset + size + BLANK_SIZE_MIN <= self.segments[-1].end_offset

    def roll(self) -> None:
        """Go on in a new segment.

        Raises:
            OSError: There is no room for one; the log is as it was.
        """
        following = self._take_next()
        if self.segments:
            current = self.segments[-1]
            room = current.end_offset - self.end_offset
            if room:
                assert room >= BLANK_SIZE_MIN
                self._add(memoryview(encode_blank(room)), room)
        self.segments.append(following)
        self._new_segments += 1

    def add(self, records: memoryview) -> int:
        """Take *records*, which fit, and return the log offset of the first."""
        assert self.fits(len(records))
        return self._add(records, len(records))

    def write(self) -> None:
        """Hand everything added to the kernel; from then on it can be read.

        Raises:
            OSError: Nothing of it is in the log, and the log ends where it did before.
        """
        added, self._added = self._added, []
        try:
            for segment, position, buffers in added:
                segment.write(buffers, position)
        except OSError:
            self._take_back(self.written_offset)
            raise
        self._new_segments = 0
        self.written_offset = self.end_offset

    def prepare_next(self) -> None:
        """Make the next segment ahead of need; may be called from another thread.

        Raises:
            OSError: There is no room for it.
        """
        if self._next is None and self.segments:
            base = self.segments[-1].end_offset
            self._next = Segment.create(self._directory, base, self.segment_size)

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment that holds *offset*, or None outside the log."""
        if not self.min_offset <= offset < self.written_offset:
            return None
        return self.segments[(offset - self.min_offset) // self.segment_size]

    def view(self, offset: int, size: int) -> memoryview:
        """Return *size* written bytes from *offset* on; they lie within one segment."""
        segment = self.segments[(offset - self.segments[0].base_offset) // self.segment_size]
        start = offset - segment.base_offset
        return memoryview(segment.buffer)[start : start + size]

    def dirty_segments(self, flushed_offset: int) -> list[Segment]:
        """Return the segments written to at or after *flushed_offset*."""
        first = bisect.bisect_right(self.segments, flushed_offset, key=lambda s: s.base_offset)
        return self.segments[max(first - 1, 0) :]

    def expired(self, count: int) -> Iterator[Segment]:
        """Take the *count* oldest segments out of the log, one at a time, never the last."""
        for _ in range(min(count, len(self.segments) - 1)):
            yield self.segments.pop(0)

    def close(self) -> None:
        """Close all files; nothing is flushed."""
        if self._next is not None:
            self._next.delete()
            self._next = None
        for segment in self.segments:
            segment.close()

    def _add(self, records: memoryview, advance: int) -> int:
        segment = self.segments[-1]
        offset = self.end_offset
        if self._added and self._added[-1][0] is segment:
            self._added[-1][2].append(records)
        else:
            self._added.append((segment, offset - segment.base_offset, [records]))
        self.end_offset += advance
        return offset

    def _take_next(self) -> Segment:
        if self._next is not None:
            following, self._next = self._next, None
            return following
        base = self.segments[-1].end_offset if self.segments else self.end_offset
        return Segment.create(self._directory, base, self.segment_size)

    def _take_back(self, offset: int) -> None:
        for _ in range(self._new_segments):
            self.segments.pop().delete()
        self._new_segments = 0
        if self.segments and offset < self.segments[-1].end_offset:
            self.segments[-1].cut_tail(offset - self.segments[-1].base_offset)
        self.end_offset = offset
