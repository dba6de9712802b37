"""One consume queue: the place in the log of each message of a queue, in order.

It is a projection of the log: never ahead of it, and may be deleted and rebuilt at any time. The
record contains its queue offset, so an entry has one place, and putting it again changes nothing.

Crash rule: only entries flushed before the store's checkpoint are trusted. :meth:`recover` takes
the log offset of that checkpoint. Later entries, whole or torn, are removed, and the store puts
them again from the log. Entries are in log order, so the trusted ones are a prefix, whatever a
power failure left in the sectors after it.

Invariants: the entries' log offsets ascend; ``min_offset <= max_offset``; there is an entry for
each offset between them.

Source: RocketMQ 5.3, ``ConsumeQueue``. Unlike it, a queue whose entries do not follow one another
is an error here, not a line in the log.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from eruca_broker.core.consume_queue_entry import (
    ENTRY,
    ENTRY_SIZE,
    FILLER,
    Entries,
    Entry,
    decode_entry,
    encode_entry,
    log_ends,
    sound_count,
    view_entries,
)
from eruca_broker.core.offset_search import partition_point
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.files.unflushed import Unflushed
from eruca_broker.store.queues.held_entries import HeldEntries
from eruca_broker.store.queues.queue_files import (
    DamagedQueueError,
    MisplacedRecordError,
    QueueFiles,
)

ENTRIES_PER_FILE: Final = 300_000  # RocketMQ's mappedFileSizeConsumeQueue / 20

_NO_LIMIT: Final = 1 << 63
_TIMELESS_MAX: Final = 1_000  # damaged records in a row that are skipped to find a store time


class QueueMark(NamedTuple):
    """The mark of a queue at a checkpoint: its files' content when they were flushed."""

    topic: str
    queue_id: int
    max_offset: int
    log_end: int  # log offset after the last entry's record
    files: tuple[tuple[int, int], ...]  # (number, CRC-32 of its entries), ascending


_generations: Final = itertools.count()


class ConsumeQueue:
    """An open queue; made by :meth:`open`. Used from one thread.

    Attributes:
        min_offset: Queue offset of the first entry whose record is still in the log; equal to
            ``max_offset`` if there is none.
        max_offset: Queue offset of the next entry.
        changed_from: The lowest queue offset whose bytes may have changed since it was opened;
            ``max_offset`` or more if only files were deleted; None if nothing has changed.
        crcs: CRC-32 of each file's entries by file number, as they were put; None: unknown.
        is_mark_due: Whether it has changed since its last :class:`QueueMark`.
        generation: A number of its own for as long as entries are only added, or deleted from the
            front; another one once its end was removed.
    """

    __slots__ = (
        *("_cut_at", "_last_end", "changed_from", "crcs"),
        *("files", "generation", "is_mark_due", "max_offset", "min_offset"),
    )

    def __init__(self, files: QueueFiles) -> None:
        self.files = files
        self.generation = next(_generations)
        self.min_offset = 0
        self.max_offset = 0
        self.changed_from: int | None = None
        self.crcs: dict[int, int] | None = None
        self.is_mark_due = True
        self._last_end = 0  # log offset after the last entry's record; 0 without one; ascends
        self._cut_at = 0  # the log offset of a cut that removed all entries

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        entries_per_file: int = ENTRIES_PER_FILE,
        open_files: OpenFiles,
        unflushed: Unflushed,
        limit: int | None = None,
        holding: HeldEntries | None = None,
    ) -> ConsumeQueue:
        """Open the queue in *directory*; it is empty if the directory does not exist.

        Args:
            directory: The queue's own directory.
            entries_per_file: The size of its files; must not change while they exist.
            open_files: The descriptors it shares with other queues.
            unflushed: Collects its files to flush.
            limit: See :meth:`recover`.
            holding: Tells whether entries may be held in memory.

        Raises:
            DamagedQueueError: Its files differ from what was written.
        """
        queue = cls(QueueFiles(directory, entries_per_file, open_files, unflushed, holding))
        queue.recover(limit)
        return queue

    @property
    def max_physical_offset(self) -> int:
        """Log offset after the last entry's record; records before it have their entries.

        Without an entry: the log offset of the cut that removed the last one, or 0.
        """
        return self._last_end or self._cut_at

    def recover(self, limit: int | None = None) -> None:
        """Find the existing entries, and remove those that are not certain.

        Args:
            limit: Log offset up to which entries had been flushed when the store stopped without
                being closed; later entries are removed. None after an orderly close, when every
                entry in the files is valid.

        Raises:
            DamagedQueueError: Its files differ from what was written.
        """
        files = self.files
        files.discover()
        if files.last < files.first:
            self.min_offset = self.max_offset = self._last_end = 0
            self.crcs = {}
            self._check()
            return
        end = _NO_LIMIT if limit is None else limit

        def is_sound(offset: int) -> bool:
            entry = self.entry(offset)
            return entry.is_written and (entry.is_filler or entry.log_offset < end)

        # From the last file backwards: the first one that begins with a valid entry has the end.
        number = files.last
        while number > files.first and not is_sound(number * files.entries_per_file):
            number -= 1
        start = number * files.entries_per_file
        found = partition_point(start, start + files.entries_per_file, is_sound)
        if limit is not None:  # torn entries may have led the search too far, but never too short
            found = start + sound_count(view_entries(files.read(start, found - start)), limit)
        self._set_end(found)
        if limit is not None or self.max_offset <= files.last * files.entries_per_file:
            files.cut(self.max_offset)
            self._note_change(self.max_offset)
        if files.last < files.first:
            self.min_offset = self.max_offset = 0
            self._check()
            return
        start = files.first * files.entries_per_file
        self.min_offset = partition_point(
            start, self.max_offset, lambda offset: self.entry(offset).is_filler
        )
        self._check()

    def recover_marked(self, mark: QueueMark, min_log_offset: int) -> None:
        """Continue from a checkpoint's mark of the queue; later entries are put again.

        The last file is verified now, each other one on its first read.

        Args:
            mark: The mark.
            min_log_offset: The beginning of the log.

        Raises:
            DamagedQueueError: The files differ from the mark.
        """
        files = self.files
        files.discover()
        noted = dict(mark.files)
        if not noted or not min(noted) <= files.first <= max(noted) <= files.last:
            raise DamagedQueueError(f"{files.directory}: files are missing")
        last = max(noted)
        files.expect({n: crc for n, crc in noted.items() if n >= files.first}, mark.max_offset)
        files.prove(last)
        files.cut(mark.max_offset)
        self.max_offset, self._last_end = mark.max_offset, mark.log_end
        self.crcs = {number: crc for number, crc in noted.items() if number >= files.first}
        self._note_change(self.max_offset)
        start = files.first * files.entries_per_file
        self.min_offset = partition_point(
            start, self.max_offset, lambda offset: self.entry(offset).is_filler
        )
        has_lost = files.first > min(noted) and self.min_offset == start < self.max_offset
        # Retention keeps a file if its successor begins with a record that is still there.
        if has_lost and self.entry(start).log_offset >= min_log_offset:
            raise DamagedQueueError(f"{files.directory}: its first entries are missing")
        self.correct_min(min_log_offset)
        self._check()

    def mark(self, topic: str, queue_id: int) -> QueueMark | None:
        """Return the mark of the queue, valid once it is flushed; None if it is unknown."""
        if self.crcs is None:
            return None
        files = self.files
        noted = tuple((n, self.crcs[n]) for n in range(files.first, files.last + 1))
        return QueueMark(topic, queue_id, self.max_offset, self._last_end, noted)

    def entry(self, queue_offset: int) -> Entry:
        """Return one entry; *queue_offset* must be in an existing file."""
        return decode_entry(self.files.read(queue_offset, 1))

    def entries(self, first: int, count: int) -> Entries:
        """Return up to *count* entries from queue offset *first* on, fewer at the queue's end."""
        assert self.min_offset <= first, first
        count = min(count, self.max_offset - first)
        return view_entries(self.files.read(first, count) if count > 0 else b"")

    def entry_bytes(self, first: int, count: int) -> bytes:
        """Return the bytes of *count* entries from queue offset *first* on, which are present."""
        assert self.min_offset <= first, first
        assert count <= self.max_offset - first, count
        return self.files.read(first, count)

    def put(self, queue_offset: int, log_offset: int, size: int, tags_code: int) -> int:
        """Write one entry; like :meth:`put_run`."""
        data = encode_entry(log_offset, size, tags_code)
        if queue_offset == self.max_offset and log_offset >= self._last_end and self._last_end:
            self._append(memoryview(data))
            return 1
        return self.put_run(queue_offset, data)

    def put_run(self, first: int, entries: Entries | bytes, *, may_repeat: bool = False) -> int:
        """Write entries of consecutive queue offsets from *first* on; return how many were new.

        Known entries are skipped: those whose records are before the last entry's in the log. A
        queue without entries begins with the first one.

        Args:
            first: Queue offset of the first entry.
            entries: As :func:`~eruca_broker.core.consume_queue_entry.build_entries` returns them,
                at least one, in log order.
            may_repeat: Skip entries of later records, too, if their queue offsets are taken:
                RocketMQ may have used an offset twice.

        Raises:
            MisplacedRecordError: They do not follow the queue's last entry.
            OSError: The disk refused. Entries before the refused one are written, and count;
                putting the whole run again continues there.
        """
        data = entries if isinstance(entries, bytes) else entries.tobytes()
        count = len(data) // ENTRY_SIZE
        known = 0
        if not self._last_end:
            self._begin(first)
        elif first != self.max_offset or ENTRY.unpack_from(data)[0] < self._last_end:
            rows = view_entries(data)
            known = int(np.searchsorted(log_ends(rows), self._last_end, side="right"))
            if may_repeat:
                known = max(known, self.max_offset - first)
            if known >= count:
                return 0
            if first + known != self.max_offset:
                log_offset = rows["log_offset"].item(known)
                raise MisplacedRecordError(
                    f"{self.files.directory}: entry {first + known} of the record at {log_offset}"
                    f" does not follow {self.max_offset - 1}, whose record ends at"
                    f" {self._last_end}",
                    log_offset,
                )
        self._append(memoryview(data)[known * ENTRY_SIZE :])
        return count - known

    def truncate(self, log_offset: int) -> None:
        """Remove the entries of records at or after *log_offset*."""
        if self._last_end <= log_offset:
            return
        files = self.files

        def stays(offset: int) -> bool:
            entry = self.entry(offset)
            return entry.is_filler or entry.log_offset < log_offset

        end = partition_point(files.first * files.entries_per_file, self.max_offset, stays)
        if end == self.max_offset:
            return
        files.cut(end)
        self.generation = next(_generations)
        self.crcs = None
        self._note_change(end)
        self._cut_at = log_offset
        self._set_end(end if files.last >= files.first else 0)
        self.min_offset = min(self.min_offset, self.max_offset)
        self._check()

    def begin(self, first: int) -> None:
        """Let the queue, which has no entries, begin at *first*, above 0; write that to a file.

        Raises:
            OSError: The disk refused; calling again retries.
        """
        assert not self._last_end
        self._pad(first - 1 - (first - 1) % self.files.entries_per_file, first)

    def correct_min(self, min_log_offset: int) -> None:
        """Move ``min_offset`` past the entries whose records are before *min_log_offset*."""
        self.min_offset = partition_point(
            self.min_offset,
            self.max_offset,
            lambda offset: self.entry(offset).log_offset < min_log_offset,
        )

    def delete_expired(self, min_log_offset: int) -> int:
        """Correct the minimum, and delete files before it; return their number.

        The last file stays: without it the queue would lose its next offset.
        """
        self.correct_min(min_log_offset)
        deleted = self.files.delete_before(self.min_offset // self.files.entries_per_file)
        if deleted:
            self._note_change(self.max_offset)
        self._check()
        return deleted

    def offset_by_time(
        self, timestamp: int, store_time_of: Callable[[int], int | None], *, upper: bool = False
    ) -> int:
        """Return the queue offset for a store time, among the present entries.

        Lower: the first entry stored at or after *timestamp*, else ``max_offset``. Upper: the last
        entry stored at or before it, else 0 (which may be below ``min_offset``).

        The search bisects, as RocketMQ's does, because store times never decrease along a log of
        ours. In one that RocketMQ wrote while its clock was set back, entries before the result may
        be as late as *timestamp*.

        A record without a readable time counts as stored with the next one that has one. Among very
        many of them it counts as too late, so that no later one is skipped.

        Args:
            timestamp: ms since the epoch.
            store_time_of: Returns the store time of the record at a log offset; None if it cannot
                be read.
            upper: Which of the two.
        """

        def is_before(offset: int) -> bool:
            for later in range(offset, min(offset + _TIMELESS_MAX, self.max_offset)):
                stored_at = store_time_of(self.entry(later).log_offset)
                if stored_at is not None:
                    return stored_at <= timestamp if upper else stored_at < timestamp
            return False

        found = partition_point(self.min_offset, self.max_offset, is_before)
        if not upper:
            return found
        return found - 1 if found > self.min_offset else 0

    def _begin(self, first: int) -> None:
        """Prepare a queue without entries for its first one: pad its file up to that offset."""
        self._pad(first - first % self.files.entries_per_file, first)

    def _pad(self, start: int, first: int) -> None:
        files = self.files
        self.generation = next(_generations)
        files.cut(0)  # padding of an earlier beginning
        self.changed_from = 0
        self.crcs = {}
        padding = memoryview(FILLER * (first - start))
        while padding:
            written = files.write(start, padding)
            self._add_to_crc(start, padding[: written * ENTRY_SIZE])
            start += written
            padding = padding[written * ENTRY_SIZE :]
        self.min_offset = self.max_offset = first
        self._check()

    def _append(self, data: memoryview) -> None:
        self._note_change(self.max_offset)
        while data:
            count = self.files.write(self.max_offset, data)
            assert 0 < count * ENTRY_SIZE <= len(data), "max_offset would pass unwritten entries"
            self._add_to_crc(self.max_offset, data[: count * ENTRY_SIZE])
            self.max_offset += count
            log_offset, size, _ = ENTRY.unpack_from(data, (count - 1) * ENTRY_SIZE)
            self._last_end = log_offset + size
            data = data[count * ENTRY_SIZE :]

    def _add_to_crc(self, queue_offset: int, data: memoryview) -> None:
        """Update the CRC with entries that were written, all into one file."""
        if self.crcs is not None:
            per_file = self.files.entries_per_file
            while data:  # held ones may cross a file's end
                number, index = divmod(queue_offset, per_file)
                some = data[: (per_file - index) * ENTRY_SIZE]
                self.crcs[number] = crc32(some, self.crcs.get(number, 0) if index else 0)
                queue_offset += len(some) // ENTRY_SIZE
                data = data[len(some) :]

    def _note_change(self, queue_offset: int) -> None:
        self.is_mark_due = True
        if self.changed_from is None or queue_offset < self.changed_from:
            self.changed_from = queue_offset

    def _set_end(self, max_offset: int) -> None:
        self.max_offset = max_offset
        last = self.entry(max_offset - 1) if max_offset > self._start() else None
        self._last_end = 0 if last is None or last.is_filler else last.log_end

    def _check(self) -> None:
        """Check the range: entries are present in it, and only in existing files."""
        files = self.files
        assert 0 <= self.min_offset <= self.max_offset
        if files.first <= files.last:
            start, end = files.first, files.last + 1
            assert start * files.entries_per_file <= self.min_offset, "a file with entries is gone"
            assert self.max_offset <= end * files.entries_per_file, "entries are in no file"
        else:
            assert self.min_offset == self.max_offset, "entries are in no file"
            assert not self._last_end

    def _start(self) -> int:
        files = self.files
        return files.first * files.entries_per_file if files.last >= files.first else 1 << 63
