"""All consume queues of a store: ``consumequeue/{topic}/{queue_id}/``.

Queues are opened on first use, and hold no descriptor of their own: one limit, ``open_files_max``,
is shared by all. A queue object takes about a kilobyte, so a hundred thousand of them are
affordable; their entries stay on disk.

At start-up the store calls :meth:`ConsumeQueues.verify` after an orderly close, or
:meth:`ConsumeQueues.recover_all` after a crash. Both return the damaged queues. Each of them is
then removed with :meth:`ConsumeQueues.delete` and put again from the log; the others stay. A queue
found damaged while the store is open counts as damaged at the next start, however it is closed.

A deleted topic's files, of which there may be thousands, are only moved into a directory beside
this one. :meth:`ConsumeQueues.free_deleted` frees them in a thread; the next start frees files that
remain after a stop.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from eruca.contract.errors import UnavailableError
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.files.refusals import is_scarcity
from eruca_broker.store.files.unflushed import Unflushed
from eruca_broker.store.queues.consume_queue import ENTRIES_PER_FILE, ConsumeQueue, QueueMark
from eruca_broker.store.queues.held_entries import HeldEntries
from eruca_broker.store.queues.lagging import Key, queue_damaged, reason_of
from eruca_broker.store.queues.queue_check import (
    QueueDigest,
    check_digests,
    check_structure,
    file_digests,
)
from eruca_broker.store.queues.queue_files import DamagedQueueError, QueueFiles
from eruca_chassis.files.directories import DIRECTORY_MODE, make_directory

DELETED_SUFFIX: Final = ".deleted"  # of the directory for the files of deleted topics
OPEN_FILES_MAX: Final = 512  # descriptors of consume queues; half of a common process limit

_log = structlog.get_logger(__name__)


class DamagedQueue(NamedTuple):
    """A queue that must be deleted and rebuilt, and the reason."""

    topic: str
    queue_id: int
    reason: str


class QueueEnd(NamedTuple):
    """The end of a queue at some time."""

    max_offset: int  # queue offset of the next entry
    log_end: int  # log offset after the last entry's record


class ConsumeQueues:
    """The consume queues below *directory*, created on demand. Used from one thread."""

    def __init__(
        self,
        directory: Path,
        *,
        entries_per_file: int = ENTRIES_PER_FILE,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        make_directory(directory)
        self._directory = str(directory)
        self._deleted = f"{directory}{DELETED_SUFFIX}"
        self._deleted_count = 0
        self.free_deleted()
        self._entries_per_file = entries_per_file
        self._open_files = OpenFiles(open_files_max)
        self._unflushed = Unflushed()
        self._taken = Unflushed()
        self.held = HeldEntries()
        self._queues: dict[Key, ConsumeQueue | None] = dict.fromkeys(_list(directory))
        self._digests: dict[Key, QueueDigest] = {}  # of verified queues
        self._marks: dict[Key, QueueMark] = {}  # of flushed queues
        self._unopened: set[Key] = set()  # not opened since a crash; their marks describe them
        self._limit = 0  # log offset up to which those marks hold
        self.min_log_offset = 0  # the beginning of the log
        self.damaged: dict[Key, str] = {}  # found so when opened or read since a crash; the fault
        self._distrusted: dict[Key, str] = {}  # with the fault of an entry
        self._left_over: set[str] = set()  # deleted topics whose files may still be there

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the existing queues, as (topic, queue id)."""
        return iter(list(self._queues))

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, key: Key) -> bool:
        return key in self._queues

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue; an empty one if it does not exist yet.

        Raises:
            DamagedQueueError: Its files differ from what was written.
            OSError: The disk refused.
        """
        key = (topic, queue_id)
        return self._queues.get(key) or self._open(key)

    def existing(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue that has or had entries, or None; never create one.

        Raises:
            DamagedQueueError: Its files differ from what was written.
        """
        key = (topic, queue_id)
        return self.queue(topic, queue_id) if key in self._queues else None

    def items(self) -> Iterator[tuple[str, int, ConsumeQueue]]:
        """Iterate over the existing queues; open each."""
        for topic, queue_id in self:
            yield topic, queue_id, self.queue(topic, queue_id)

    @property
    def unopened_files_max(self) -> int:
        """Number of files that may still be opened within the limit."""
        return self._open_files.room

    @property
    def distrusted(self) -> Mapping[Key, str]:
        """The queues with invalid entries, each with the fault."""
        return self._distrusted

    def distrust(self, topic: str, queue_id: int, fault: str) -> UnavailableError:
        """Record that a queue has an invalid entry: the next start rebuilds it.

        Returns:
            The error for a reader of the queue.
        """
        key = (topic, queue_id)
        damage = queue_damaged(key, fault)
        if self._distrusted.setdefault(key, damage.detail) is damage.detail:
            directory = self._path(topic, queue_id)
            _log.error("a consume queue is damaged", directory=directory, fault=fault)
        return damage

    def delete(self, topic: str, queue_id: int) -> None:
        """Delete one queue with its files, damaged or not."""
        self._queues.pop((topic, queue_id), None)
        self._forget((topic, queue_id))
        assert topic, "the directory of all queues would be deleted"
        directory = self._path(topic, queue_id)
        self._open_files.forget_below(directory)
        self.held.forget_below(directory)
        with suppress(FileNotFoundError):
            shutil.rmtree(directory)
        self._unflushed.directories.add(f"{self._directory}/{topic}")

    def delete_topic(self, topic: str) -> None:
        """Delete all queues of a topic at once, and move their files away.

        If the disk refuses, :meth:`delete_left_over` tries again.
        """
        for key in [key for key in self._queues if key[0] == topic]:
            del self._queues[key]
            self._forget(key)
        self._left_over.add(topic)
        with suppress(OSError):
            self._delete_files(topic)

    def delete_left_over(self) -> None:
        """Delete the remaining files of deleted topics.

        Raises:
            OSError: Some remain. No queue of such a topic can be opened meanwhile.
        """
        for topic in list(self._left_over):
            self._delete_files(topic)

    def free_deleted(self) -> None:
        """Free the space of deleted topics' files; may be called in another thread.

        The next call retries files that the disk refuses to delete.
        """
        shutil.rmtree(self._deleted, ignore_errors=True)

    def truncate(self, log_offset: int) -> None:
        """Remove, in all queues, the entries of records at or after *log_offset*."""
        for key in self:
            if not (key in self._unopened and self._limit <= log_offset):
                self.queue(*key).truncate(log_offset)

    def delete_expired(self, min_log_offset: int) -> Iterator[int]:
        """Move each queue's minimum to the log's, delete files before it; yield their number.

        Queues may be created and deleted between two steps: new ones have no expired entries. A
        queue that is damaged or unreadable keeps its files, and does not stop the others.

        Raises:
            OSError: A resource such as descriptors is short; no queue is at fault.
        """
        for key in self:
            deleted = 0
            try:
                queue = self.existing(*key)
                if queue is not None:
                    deleted = queue.delete_expired(min_log_offset)
            except (OSError, DamagedQueueError) as error:
                if isinstance(error, OSError) and is_scarcity(error):
                    raise
                self.distrust(*key, reason_of(error))
            yield deleted

    def trust(
        self, marks: Iterable[QueueMark], limit: int, min_log_offset: int
    ) -> list[DamagedQueue]:
        """Trust a checkpoint's marks after a crash; each queue is verified on first use.

        Args:
            marks: The mark of each queue.
            limit: Log offset up to which they had their entries.
            min_log_offset: The beginning of the log.

        Returns:
            The queues whose files are missing.
        """
        assert limit >= min_log_offset, "the marks describe a part of the log that is gone"
        self._marks = {mark[:2]: mark for mark in marks}
        self._limit, self.min_log_offset = limit, min_log_offset
        self._unopened = set(self._queues)
        lost = sorted(self._marks.keys() - self._queues.keys())
        return [DamagedQueue(*key, "its files are missing") for key in lost]

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's next entry, without opening its files.

        Raises:
            DamagedQueueError: Its files differ from what was written.
        """
        key = (topic, queue_id)
        if key in self._unopened:  # without a mark it was created later, for records that are gone
            mark = self._marks.get(key)
            return 0 if mark is None else mark.max_offset
        queue = self.existing(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def noted_end(self, topic: str, queue_id: int) -> int:
        """Return the offset of a damaged queue's next entry, according to its mark."""
        mark, queue = self._marks.get((topic, queue_id)), self._queues.get((topic, queue_id))
        return max(mark.max_offset if mark else 0, queue.max_offset if queue else 0)

    def note_damage(self, topic: str, queue_id: int, fault: str) -> None:
        """Record that a queue is damaged and must be rebuilt."""
        if (topic, queue_id) not in self.damaged:
            self.damaged[topic, queue_id] = fault
            _log.error("a consume queue is damaged and is rebuilt from the log", fault=fault)

    def noted_ends(self, log_offset: int) -> dict[Key, QueueEnd]:
        """Return the ends of the queues whose marks have a record after *log_offset*."""
        return {
            mark[:2]: QueueEnd(mark.max_offset, mark.log_end)
            for mark in self._marks.values()
            if mark.log_end > log_offset
        }

    def marks(self) -> list[QueueMark]:
        """Return the marks of all queues, valid once they are flushed."""
        for key, queue in self._queues.items():
            if queue is not None and queue.is_mark_due and key not in self._distrusted:
                if (mark := queue.mark(*key)) is None:
                    self._marks.pop(key, None)
                else:
                    self._marks[key] = mark
                queue.is_mark_due = False
        return list(self._marks.values())

    def note_files(self) -> None:
        """Read the files of all queues, so that each has a mark from now on; slow."""
        for key, queue in self._queues.items():
            if queue is not None and queue.crcs is None and key not in self._distrusted:
                queue.crcs = dict(file_digests(queue.files, queue.max_offset, {}))

    def open_some(self, count: int) -> None:
        """Open queues not used since a crash, so that uncertain entries in them are removed.

        Raises:
            OSError: The disk refused.
        """
        for key in list(self._unopened)[:count]:
            with suppress(DamagedQueueError):  # it is recorded, and the queue rebuilt
                self.queue(*key)

    @property
    def has_unopened(self) -> bool:
        """True while there are queues not used since a crash."""
        return bool(self._unopened)

    def take_unflushed(self) -> Unflushed:
        """Return the work that makes all entries up to now durable.

        Its ``sync`` may be called in another thread, one at a time. Work that it leaves undone,
        because it failed or was not called, is part of the next call's result.
        """
        self._unflushed.add_all(self._taken)
        self._taken = self._unflushed.take()
        return self._taken

    def digests(self) -> list[QueueDigest]:
        """Return the digest of every queue, for :meth:`verify` to compare with later.

        A file that was full when it was verified is not read again.
        """
        return [self._digest(key) for key in self]

    def verify(self, digests: Iterable[QueueDigest] | None, *, log_end: int) -> list[DamagedQueue]:
        """Return the queues that differ from *digests*.

        Args:
            digests: The digest of every queue. None: there are none, so that only entries are found
                that contradict each other or the log.
            log_end: The end of the log: no entry may point after it.
        """
        damaged = []
        expected = None if digests is None else {item[:2]: item for item in digests}
        for key in sorted(self._queues.keys() | (expected or {}).keys()):
            try:
                files = self._discover(key)
                if expected is None:
                    check_structure(files, log_end)
                elif key in expected:
                    check_digests(files, expected[key])
                    self._digests[key] = expected[key]
                else:
                    raise DamagedQueueError("it did not exist when the store was closed")
            except DamagedQueueError as error:
                damaged.append(DamagedQueue(*key, str(error)))
        return damaged

    def recover_all(self, limit: int) -> list[DamagedQueue]:
        """Open every queue after a crash; return the damaged. See :meth:`ConsumeQueue.recover`.

        Args:
            limit: Log offset up to which all queues had been flushed.
        """
        damaged = []
        for key in self:
            try:
                self._open(key, limit)
            except DamagedQueueError as error:
                damaged.append(DamagedQueue(*key, str(error)))
        return damaged

    def close(self) -> None:
        """Close all files. Nothing is flushed."""
        self._open_files.close()

    def _path(self, topic: str, queue_id: int) -> str:
        return f"{self._directory}/{topic}/{queue_id}"

    def _forget(self, key: Key) -> None:
        self._digests.pop(key, None)
        self._marks.pop(key, None)
        self._unopened.discard(key)
        self.damaged.pop(key, None)
        self._distrusted.pop(key, None)

    def _delete_files(self, topic: str) -> None:
        assert topic, "the directory of all queues would be deleted"
        directory = f"{self._directory}/{topic}"
        self._open_files.forget_below(directory)
        self.held.forget_below(directory)
        self._deleted_count += 1
        if os.path.lexists(directory):
            os.makedirs(self._deleted, DIRECTORY_MODE, exist_ok=True)  # noqa: PTH103 - paths are strings here
            os.rename(directory, f"{self._deleted}/{self._deleted_count}")  # noqa: PTH104
        self._unflushed.directories.add(self._directory)
        self._left_over.discard(topic)

    def _open(self, key: Key, limit: int | None = None) -> ConsumeQueue:
        if key[0] in self._left_over:  # else it would begin with another topic's entries
            self._delete_files(key[0])
        if key in self._unopened:
            return self._open_marked(key)
        queue = ConsumeQueue.open(
            self._path(*key),
            entries_per_file=self._entries_per_file,
            open_files=self._open_files,
            unflushed=self._unflushed,
            limit=limit,
            holding=self.held,
        )
        known = self._digests.get(key)
        if known is not None and known.max_offset == queue.max_offset:
            queue.crcs = dict(known.files)
        self._queues[key] = queue
        return queue

    def _open_marked(self, key: Key) -> ConsumeQueue:
        if key in self.damaged:
            raise DamagedQueueError(self.damaged[key])
        files = self._files(key)
        queue = ConsumeQueue(files)
        mark = self._marks.get(key)
        try:
            if mark is not None:
                queue.recover_marked(mark, self.min_log_offset)
            else:  # it was created later
                queue.recover(self._limit)
                if queue.max_offset:
                    raise DamagedQueueError(f"{files.directory}: no checkpoint has its entries")
        except DamagedQueueError as error:
            self.note_damage(*key, str(error))
            raise
        self._unopened.discard(key)
        self._queues[key] = queue
        return queue

    def _digest(self, key: Key) -> QueueDigest:
        if key in self._distrusted:
            return QueueDigest(*key, max_offset=0, files=())  # as if it had no entries
        known = self._digests.get(key)
        queue = self._queues[key]
        if known is not None and (queue is None or queue.changed_from is None):
            return known
        queue = queue or self._open(key)
        full: dict[int, int] = {}
        if known is not None:
            unchanged = min(known.max_offset, queue.changed_from or 0)
            full_count = unchanged // self._entries_per_file
            full = {number: crc for number, crc in known.files if number < full_count}
        files = file_digests(queue.files, queue.max_offset, full)
        return QueueDigest(*key, queue.max_offset, files)

    def _discover(self, key: Key) -> QueueFiles:
        files = self._files(key)
        files.discover()
        return files

    def _files(self, key: Key) -> QueueFiles:
        return QueueFiles(
            self._path(*key),
            *(self._entries_per_file, self._open_files, self._unflushed, self.held),
        )


def _list(directory: Path) -> Iterator[Key]:
    with os.scandir(directory) as topics:
        for topic in topics:
            if topic.is_dir():
                with os.scandir(topic) as queues:
                    for queue in queues:
                        # Like RocketMQ, skip names that are not numbers.
                        if queue.name.isdecimal() and queue.name == str(int(queue.name)):
                            yield topic.name, int(queue.name)
