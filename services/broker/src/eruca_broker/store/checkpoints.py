"""Checkpoints of an open store: its projections are flushed, and what is durable then is noted.

Order, in which nothing is promised that is not durable::

    1. reach       the loop's thread takes what is unflushed, and how far that goes (`Reach`)
    2. flush       of the log, in a thread: at least up to there, or a power cut would leave
                   entries of records that are gone
    3. flush       of the projections, in a thread; entries that come meanwhile are the next
                   checkpoint's
    4. write       the marks, then the checkpoint

Crash rule: a flush that fails is final, as the log's is. The kernel may call the next one a
success, so there is no further checkpoint; the next start puts what may have been lost again, from
the last one on. How far the log is flushed is noted all the same: damage before that is no torn
tail. Every other error, such as a header for which a full disk has no room, loses nothing: the next
checkpoint does again what this one left undone.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from eruca_broker.store.config.projection_marks import Marks, write_marks
from eruca_broker.store.files.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from eruca_broker.store.files.unflushed import Unflushed
from eruca_broker.store.index.key_index import KeyIndex, UnflushedIndex
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_chassis.finishing import finished_in_thread
from eruca_chassis.flushing import FlushError


class Reach(NamedTuple):
    """Extent of the projections at one moment, and the files that are to be flushed for it."""

    log_offset: int  # before which they lack nothing, and behind which they have nothing
    timestamp: int  # store time in ms of a record before it
    marks: Marks
    queues: Unflushed
    key_index: UnflushedIndex


class Checkpoints:
    """Writes the checkpoints of the store in *directory*, one at a time."""

    def __init__(self, directory: Path, queues: ConsumeQueues, index: KeyIndex) -> None:
        self._directory = directory
        self._queues = queues
        self._index = index
        self._queues_error: FlushError | None = None  # their files may have lost pages
        self._index_error: FlushError | None = None

    @property
    def queues_error(self) -> FlushError | None:
        """The flush of a consume queue that failed and ended all checkpoints, or None."""
        return self._queues_error

    @property
    def index_error(self) -> FlushError | None:
        """The flush of the key index that failed and ended all checkpoints, or None."""
        return self._index_error or self._index.flush_error

    def reach(self, log_offset: int, timestamp: int) -> Reach:
        """Take what is to be flushed for the projections to be durable up to *log_offset*.

        Args:
            log_offset: The queues and the index have all before it, and nothing behind it.
            timestamp: Store time in ms of a record before it: the last one, or an earlier one.

        Raises:
            FlushError: A flush of theirs failed before; there is no further checkpoint.
        """
        queues, index = self._queues.take_unflushed(), self._index.take_unflushed()
        if (failed := self.queues_error or self.index_error) is not None:
            raise FlushError(failed.errno, unflushed_reason(failed))
        marks = Marks(log_offset, self._queues.marks(), self._index.marks())
        return Reach(log_offset, timestamp, marks, queues, index)

    async def write(self, reach: Reach, flushed_offset: int) -> None:
        """Flush the projections, and write a checkpoint.

        Args:
            reach: What :meth:`reach` returned, before the log was flushed.
            flushed_offset: Log offset before which the log is flushed since.

        Raises:
            FlushError: A flush of theirs failed; there is no further checkpoint.
            OSError: Something could not be opened or written; the next call tries again.
        """
        assert flushed_offset >= reach.log_offset, "a power cut would leave entries of no record"
        await finished_in_thread(partial(self._flush, reach.queues, reach.key_index))
        # The index counts for RocketMQ, which must not believe a file without its slots; here it
        # says itself how far it has come.
        await finished_in_thread(partial(write_marks, self._directory, reach.marks))
        saved, timestamp = self._index.saved_timestamp, reach.timestamp
        reached = Checkpoint(timestamp, timestamp, saved, reach.log_offset, flushed_offset)
        await finished_in_thread(partial(write_checkpoint, self._directory, reached))

    async def note_flushed(self, flushed_offset: int) -> None:
        """Note how far the log is flushed, and promise no more of the projections than before.

        Raises:
            OSError: It could not be noted.
        """
        await finished_in_thread(partial(self._note_flushed, flushed_offset))

    def _note_flushed(self, flushed_offset: int) -> None:
        last = read_checkpoint(self._directory) or Checkpoint(0, 0, 0, 0, 0)
        write_checkpoint(self._directory, last._replace(flushed_offset=flushed_offset))

    def _flush(self, queues: Unflushed, index: UnflushedIndex) -> None:
        try:
            queues.sync()
        except FlushError as error:
            self._queues_error = error
            raise
        try:
            index.sync()
        except FlushError as error:
            self._index_error = error
            raise


def unflushed_reason(error: FlushError) -> str:
    """Return the fault of a projection whose flush failed, and the fix."""
    return (
        f"a flush failed ({error.strerror}), so there are no more checkpoints; "
        "check the disk, then restart the broker, which rebuilds what may be lost"
    )
