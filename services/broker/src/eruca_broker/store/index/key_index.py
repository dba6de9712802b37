"""The key index: find records that may have a key, by the hash of ``topic#key``; in ``index/``.

It is a projection of the log: never ahead of it, and may be deleted and rebuilt at any time. Files
are filled one after another and named after the store time of their first record. So their names,
sorted, are in the log's order, and a rebuilt file gets the same name.

Hashes collide and times are in seconds, so a look-up returns candidates; only the records
themselves decide.

Crash rule: the files' headers give the flushed entries, and :meth:`KeyIndex.open` drops those after
the store's own limit. A damaged file is dropped with all after it; the records from
``resume_offset`` on must then be put again. Records that the index has are skipped.

Source: RocketMQ 5.3, ``IndexService``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca_broker.core.index.layout import (
    HASH_SLOTS,
    MAX_ENTRIES,
    IndexHeader,
    file_name,
    is_file_name,
)
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.index import look_ups
from eruca_broker.store.index.index_file import (
    Added,
    DamagedIndexError,
    IndexFile,
    IndexMark,
    KeyHashes,
)
from eruca_broker.store.index.proofs import DamagedFile, Proof, fault_of, prove
from eruca_broker.store.index.unflushed import UnflushedIndex
from eruca_chassis.files.directories import make_directory
from eruca_chassis.files.flushing import FlushError

TIMESTAMP_MAX: Final = (1 << 63) - 1  # ms
_OPEN_FILES_MAX: Final = 16  # descriptors; one file holds twenty million keys
PROVED_SIZE_MAX: Final = 1 << 30  # bytes of full files that a start verifies after a crash
_UNSEALED_MAX: Final = 2  # full files whose 20 MB of slots may wait in memory for the next flush

Int64Array = NDArray[np.int64]


class KeyIndex:
    """An open index; made by :meth:`open`. Used from one thread.

    Attributes:
        damaged: Files that were dropped when it was opened.
        resume_offset: Log offset from which records must be put again because of that, or None.
        unproved: Digest by name of the full files that are not verified since a crash, all of which
            are still part of the index.
        flush_error: The failed flush of a file, at a checkpoint or when it was sealed, or None.
    """

    def __init__(
        self, directory: str, hash_slots: int, max_entries: int, zone: tzinfo | None
    ) -> None:
        assert max_entries > 1, "entry 0 is never written, so that no file had room"
        self.damaged: list[DamagedFile] = []
        self.resume_offset: int | None = None
        self._directory = directory
        self._hash_slots = hash_slots
        self._max_entries = max_entries
        self._zone = zone
        self._open_files = OpenFiles(_OPEN_FILES_MAX)
        self._files: list[IndexFile] = []  # oldest first; all but the newest are full
        self._is_directory_flushed = True
        self._taken = UnflushedIndex(None, [])
        self.unproved: dict[str, int] = {}
        self.flush_error: FlushError | None = None
        self._is_end_complete = False  # no key of the record at end_offset is missing

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        hash_slots: int = HASH_SLOTS,
        max_entries: int = MAX_ENTRIES,
        zone: tzinfo | None = None,
        limit: int | None = None,
        digests: Mapping[str, int] | None = None,
        marks: Mapping[str, IndexMark] | None = None,
    ) -> KeyIndex:
        """Open the index in *directory*, which is created on demand.

        Args:
            directory: The index's own directory.
            hash_slots: Slots of each file; files with another number count as damaged.
            max_entries: Capacity of each file, plus one.
            zone: The time zone in the names of new files; None for the machine's.
            limit: After a crash, the log offset up to which the index had been flushed: entries
                of later records are removed. None after an orderly close.
            digests: What :meth:`digests` returned at that close, to find damage by.
            marks: What :meth:`marks` returned for *limit*, to find damage by after a crash. Files
                begun since are deleted.
        """
        make_directory(directory)
        index = cls(str(directory), hash_slots, max_entries, zone)
        if marks is not None:
            index._delete_behind(marks)
        index._load(digests)
        if limit is not None:
            index.truncate(limit)
            if marks is not None:
                index._prove(marks)
        return index

    @property
    def end_offset(self) -> int:
        """Log offset of the newest record that has an entry; 0 without one."""
        return self._files[-1].header.end_offset if self._files else 0

    def extents(self) -> list[tuple[int, int]]:
        """Return the log offsets of the first and last record of each file, oldest file first."""
        headers = [file.header for file in self._files if file.header.index_count > 1]
        return [(header.begin_offset, header.end_offset) for header in headers]

    @property
    def end_timestamp(self) -> int:
        """Store time of that record in ms; 0 without one."""
        return self._files[-1].header.end_timestamp if self._files else 0

    @property
    def saved_timestamp(self) -> int:
        """Store time up to which the files are whole, slots included, as RocketMQ wants them.

        The checkpoint's index timestamp: RocketMQ deletes and rebuilds files that end later.
        """
        whole = [file.header.end_timestamp for file in self._files if file.is_whole_on_disk]
        return whole[-1] if whole else 0

    def put_many(self, hashes: KeyHashes, offsets: Int64Array, timestamps: Int64Array) -> None:
        """Add an entry for each key of some records, all or none.

        Records that the index has are skipped: those before ``end_offset``.

        Args:
            hashes: Of ``topic#key``, see :func:`eruca.contract.hashing.key_hash`.
            offsets: Log offset of each key's record, not descending; all keys of one record come
                in one call.
            timestamps: Store time of each key's record in ms.

        Raises:
            OSError: The disk refused; nothing has changed, and the call may be repeated.
        """
        assert len(hashes) == len(offsets) == len(timestamps)
        end = self.end_offset + self._is_end_complete
        first = int(np.searchsorted(offsets, end)) if len(offsets) and offsets[0] < end else 0
        total = len(offsets)
        done: list[tuple[IndexFile, Added | None]] = []
        try:
            while first < total:
                file = self._with_room(int(timestamps[first]), done)
                last = min(first + file.room, total)
                rows = slice(first, last)
                added = file.add(hashes[rows], offsets[rows], timestamps[rows])
                done.append((file, added))
                first = last
        except OSError:
            self._take_back(done)
            raise
        if done:
            self._is_end_complete = False
            if len(done) > 1:
                self._seal_surplus()

    def make_room(self, timestamp: int) -> None:
        """Ensure that one more entry fits; a new file is named after *timestamp*, in ms."""
        self._with_room(timestamp, [])

    def query(
        self, key_hash: int, count: int, begin: int = 0, end: int = TIMESTAMP_MAX
    ) -> list[int]:
        """Return up to *count* log offsets by RocketMQ's rule, newest first.

        Its times are off by up to a second; see :meth:`candidates` for an exact search.

        Args:
            key_hash: Of ``topic#key``.
            count: The maximum number.
            begin: The first store time in ms.
            end: The last one.
        """
        found: list[int] = []
        for file in reversed(self._files):
            if file.header.overlaps(begin, end):
                found += look_ups.select(file, key_hash, count - len(found), begin, end)
            if file.header.begin_timestamp < begin or len(found) >= count:
                break
        return found

    def candidates(self, key_hash: int, begin: int = 0, end: int = TIMESTAMP_MAX) -> Iterator[int]:
        """Yield the log offset of every record that may have a key, newest first.

        All records with the key that were stored from *begin* to *end* are included. Others may be,
        too, and a record may be yielded twice: the caller checks the records, and stops when it has
        enough. Nothing may be added meanwhile.
        """
        for file in reversed(self._files):
            header = file.header
            if header.end_timestamp + 999 < begin:  # a cut file has its end only to the second
                return
            if header.begin_timestamp <= end:
                yield from look_ups.candidates(file, key_hash, begin, end)

    def has_unproved(self, begin: int, end: int) -> bool:
        """Tell whether a look-up from *begin* to *end*, in ms, needs an unverified file."""
        return any(
            file.name in self.unproved and file.header.overlaps(begin, end)
            for file in (self._files if self.unproved else ())
        )

    def truncate(self, log_offset: int) -> None:
        """Remove the entries of records at or after *log_offset*."""
        kept = [
            f
            for f in self._files
            if f.header.index_count > 1 and f.header.begin_offset < log_offset
        ]
        for file in reversed(self._files[len(kept) :]):
            self._delete(file)
        self._files = kept
        if kept:
            kept[-1].cut(log_offset)
        if self.resume_offset is not None:
            self.resume_offset = min(self.resume_offset, log_offset)
        self._is_end_complete = self._has_entries()
        self._reopen_last()

    def delete_expired(self, min_log_offset: int) -> int:
        """Delete files all of whose records are before *min_log_offset*; return their number.

        The newest file stays.
        """
        deleted = 0
        while len(self._files) > 1 and self._files[0].header.end_offset < min_log_offset:
            self._delete(self._files.pop(0))
            deleted += 1
        return deleted

    def take_unflushed(self) -> UnflushedIndex:
        """Return the work that makes all entries up to now durable.

        Its ``sync`` may be called in another thread, one at a time. Work that it leaves undone,
        because it failed or was not called, is part of the next call's result.
        """
        for file in self._taken.files:
            file.is_flushed = False
        is_directory_due = not self._is_directory_flushed or self._taken.needs_directory
        files = [file for file in self._files if not file.is_flushed]
        for file in files:
            file.is_flushed = True
        self._is_directory_flushed = True
        self._taken = UnflushedIndex(self._directory if is_directory_due else None, files)
        return self._taken

    def flush(self) -> None:
        """Make all entries durable; as ``take_unflushed().sync()``.

        Raises:
            OSError: They are not durable; the next flush retries.
        """
        self.take_unflushed().sync()

    def digests(self) -> dict[str, int]:
        """Return a digest of each file by its name, for :meth:`open` to find damage by.

        A file that is known to be damaged has no digest, so it is dropped there.
        """
        found = {}
        for file in self._files:
            if file.is_damaged:
                continue
            if file.room == 0 and file.slots is not None:
                file.seal()
            found[file.name] = file.compute_digest() if file.digest is None else file.digest
        return found

    def marks(self) -> dict[str, IndexMark]:
        """Return the mark of each file by its name, for :meth:`open` after a crash.

        A file that is known to be damaged has no mark, so it is dropped there.
        """
        return {file.name: file.mark() for file in self._files if not file.is_damaged}

    def prove_next(self) -> Callable[[], Proof] | None:
        """Return a function that verifies the next file after a crash; None if all are verified.

        It may be called in another thread. Its result goes to :meth:`proved`.
        """
        if not self.unproved:
            return None
        name, digest = next(iter(self.unproved.items()))
        found = [file for file in self._files if file.name == name]
        assert found, f"{name} must be verified, and is not part of the index"
        return partial(prove, found[0], digest)

    def proved(self, proof: Proof) -> bool:
        """Apply a result of :meth:`prove_next`; tell whether records must be put again."""
        if proof.name not in self.unproved:  # retention has deleted it meanwhile
            return False
        if proof.is_sound:
            del self.unproved[proof.name]
            return False
        self._drop_from(proof.name, "its content has changed")
        return True

    def save(self) -> None:
        """Flush everything, slots included: the files are then as after a stop of RocketMQ.

        Raises:
            OSError: They are not; the next call retries.
        """
        for file in self._files:
            if file.slots is not None:
                file.save_slots()
                file.is_flushed = False
        self.flush()

    def close(self) -> None:
        """Close all files. Nothing is flushed."""
        self._open_files.close()

    def _prove(self, marks: Mapping[str, IndexMark]) -> None:
        """Drop the first file that differs from its mark, and all after it.

        The newest are verified now, up to ``PROVED_SIZE_MAX``; others stay *unproved*.
        """
        names = [file.name for file in self._files]
        missing = [n for n, mark in marks.items() if mark.index_count > 1 and n not in names]
        room = PROVED_SIZE_MAX
        for file in list(reversed(self._files)):
            name = file.name
            mark = marks.get(name)
            if mark is not None and file.slots is None and mark.digest is not None:
                file.entries_crc = mark.entries_crc
                room -= file.size
                if room < 0 and file.header.index_count == mark.index_count:
                    self.unproved[name] = mark.digest
                    continue
            if (fault := fault_of(file, mark)) is not None:
                self._drop_from(name, fault)
        if missing and (first := min(missing)) <= max(names, default=""):
            self._drop_from(first, "it is missing")
        elif missing:
            self.damaged.append(DamagedFile(min(missing), "it is missing"))
            self._resume_from_end()

    def _drop_from(self, name: str, reason: str) -> None:
        """Drop a damaged file and all after it."""
        self.damaged.append(DamagedFile(name, reason))
        while self._files and self._files[-1].name >= name:
            self._delete(self._files.pop())
        self._is_end_complete = self._has_entries()
        self._resume_from_end()
        self._reopen_last()

    def _with_room(self, timestamp: int, done: list[tuple[IndexFile, Added | None]]) -> IndexFile:
        """Return the newest file, or a new one, which is then added to *done*."""
        if self._files and self._files[-1].room:
            return self._files[-1]
        after = self._files[-1].name if self._files else None
        name = file_name(timestamp, after, self._zone)
        file = IndexFile.create(
            f"{self._directory}/{name}",
            hash_slots=self._hash_slots,
            max_entries=self._max_entries,
            end_offset=self.end_offset,
            end_timestamp=self.end_timestamp,
            files=self._open_files,
        )
        self._files.append(file)
        self._is_directory_flushed = False
        done.append((file, None))
        return file

    def _take_back(self, done: list[tuple[IndexFile, Added | None]]) -> None:
        for file, added in reversed(done):
            if added is None:
                self._delete(self._files.pop())
            else:
                file.take_back(added)

    def _seal_surplus(self) -> None:
        """Limit the slots of full files in memory, however long the next flush takes.

        The entries are put already, so an error must not put them again: a file not sealed now is
        sealed with the next surplus, or by the next flush. Files that are being flushed are
        left out: that flush would write their header of before over that of the sealed file.
        """
        flushing = self._taken.files
        waiting = [f for f in self._files[:-1] if f.slots is not None and f not in flushing]
        try:
            for file in waiting[:-_UNSEALED_MAX]:
                file.seal()
        except FlushError as error:
            self.flush_error = error  # the next seal may succeed, so checkpoints must know
        except OSError:
            pass  # nothing is lost; if it persists, a flush reports it

    def _delete(self, file: IndexFile) -> None:
        self.unproved.pop(file.name, None)
        file.delete()
        self._is_directory_flushed = False

    def _delete_behind(self, marks: Mapping[str, IndexMark]) -> None:
        """Delete the files that were begun after the checkpoint that *marks* are of.

        A kill may have left any of their bytes, and the file before them not yet full. The log has
        what they had, behind that checkpoint.
        """
        with os.scandir(self._directory) as listing:
            found = [entry.name for entry in listing if is_file_name(entry.name)]
        last = max(marks, default="")
        for name in found:
            if name > last:
                os.unlink(f"{self._directory}/{name}")  # noqa: PTH108 - paths are strings here
                self._is_directory_flushed = False

    def _load(self, digests: Mapping[str, int] | None) -> None:
        with os.scandir(self._directory) as listing:
            found = {entry.name for entry in listing if is_file_name(entry.name)}
        for name in sorted(found | set(digests or ())):
            try:
                self._files.append(
                    self._load_file(name, None if digests is None else digests.get(name, -1))
                )
            except (DamagedIndexError, FileNotFoundError) as error:
                self.damaged.append(DamagedFile(name, str(error)))
                break
        for name in reversed(sorted(found)[len(self._files) :]):
            self._open_files.forget(f"{self._directory}/{name}")
            os.unlink(f"{self._directory}/{name}")  # noqa: PTH108 - paths are strings here
            self._is_directory_flushed = False
        self._is_end_complete = self._has_entries()
        if self.damaged:
            self._resume_from_end()

    def _load_file(self, name: str, digest: int | None) -> IndexFile:
        file = IndexFile.load(
            f"{self._directory}/{name}",
            hash_slots=self._hash_slots,
            max_entries=self._max_entries,
            files=self._open_files,
        )
        if self._files and self._files[-1].room:
            raise DamagedIndexError("the file before it is not full")
        if digest is not None and file.compute_digest() != digest:
            raise DamagedIndexError("its content has changed")
        if file.room:
            file.load_slots()
        elif digest is not None:
            file.digest = digest
        if file.header.index_count == 1:
            end, timestamp = self.end_offset, self.end_timestamp
            file.header = IndexHeader(timestamp, timestamp, end, end)
        if file.header.begin_offset < self.end_offset:
            raise DamagedIndexError("it begins before the end of the previous file")
        return file

    def _reopen_last(self) -> None:
        """Make the newest file writable again after a truncation."""
        if not self._files or self._files[-1].slots is not None or not self._files[-1].room:
            return
        file = self._files[-1]
        try:
            file.load_slots()
        except DamagedIndexError as error:
            self.damaged.append(DamagedFile(file.name, str(error)))
            self._delete(self._files.pop())
            self._resume_from_end()

    def _resume_from_end(self) -> None:
        end = self.end_offset
        self.resume_offset = end if self.resume_offset is None else min(end, self.resume_offset)
        if self._files and not self._files[-1].room:
            self.truncate(end)  # its record may have had more keys, in the dropped file

    def _has_entries(self) -> bool:
        return any(file.header.index_count > 1 for file in self._files[-2:])
