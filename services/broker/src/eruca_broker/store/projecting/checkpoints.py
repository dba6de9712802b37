"""Checkpoints of an open store: flush its projections, then record the durable offsets.

The order ensures that only durable data is promised::

    1. reach       the loop's thread takes the unflushed files, and their log offset (`Reach`)
    2. flush       of the log, in a thread, at least up to there: otherwise a power failure could
                   leave entries of lost records
    3. flush       of the projections, in a thread; later entries belong to the next checkpoint
    4. write       the marks, then the checkpoint

Crash rule: a failed flush is final, as for the log. The kernel may report the next one as a
success, so there is no further checkpoint. The next start adds the entries after the last one
again. The log's flushed offset is recorded all the same: damage before it is not a torn tail. Every
other error loses nothing, such as a full disk without room for a header: the next checkpoint
completes the work.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from eruca_broker.store.config.projection_marks import Marks, write_marks
from eruca_broker.store.files.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from eruca_broker.store.files.unflushed import Unflushed
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.index.unflushed import UnflushedIndex
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_chassis.files.flushing import FlushError
from eruca_chassis.finishing import finished_in_thread


class Reach(NamedTuple):
    """The extent of the projections at one moment, and the files to flush for it."""

    log_offset: int  # they contain everything before it, and nothing after it
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
        self.queues_error: FlushError | None = None  # of the flush that ended all checkpoints

    def reach(self, log_offset: int, timestamp: int) -> Reach:
        """Take the work that makes the projections durable up to *log_offset*.

        Args:
            log_offset: The queues and the index have everything before it, and nothing after it.
            timestamp: Store time in ms of a record before it: the last one, or an earlier one.

        Raises:
            FlushError: An earlier flush of theirs failed; there is no further checkpoint.
        """
        queues, index = self._queues.take_unflushed(), self._index.take_unflushed()
        if (failed := self.queues_error or self._index.flush_error) is not None:
            raise FlushError(failed.errno, unflushed_reason(failed))
        marks = Marks(log_offset, self._queues.marks(), self._index.marks())
        return Reach(log_offset, timestamp, marks, queues, index)

    async def write(self, reach: Reach, flushed_offset: int) -> None:
        """Flush the projections, and write a checkpoint.

        Args:
            reach: What :meth:`reach` returned, before the log was flushed.
            flushed_offset: Log offset up to which the log has been flushed since.

        Raises:
            FlushError: A flush of theirs failed; there is no further checkpoint.
            OSError: A file could not be opened or written; the next call retries.
        """
        assert flushed_offset >= reach.log_offset, (
            "a power failure would leave entries of no record"
        )
        await finished_in_thread(partial(self._flush, reach.queues, reach.key_index))
        # The index's timestamp is for RocketMQ, which must not trust a file without its slots;
        # Eruca finds the index's end in its own files.
        await finished_in_thread(partial(write_marks, self._directory, reach.marks))
        saved, timestamp = self._index.saved_timestamp, reach.timestamp
        reached = Checkpoint(timestamp, timestamp, saved, reach.log_offset, flushed_offset)
        await finished_in_thread(partial(write_checkpoint, self._directory, reached))

    async def note_flushed(self, flushed_offset: int) -> None:
        """Record the log's flushed offset; promise no more of the projections than before.

        Raises:
            OSError: It could not be recorded.
        """
        await finished_in_thread(partial(self._note_flushed, flushed_offset))

    def _note_flushed(self, flushed_offset: int) -> None:
        last = read_checkpoint(self._directory) or Checkpoint(0, 0, 0, 0, 0)
        write_checkpoint(self._directory, last._replace(flushed_offset=flushed_offset))

    def _flush(self, queues: Unflushed, index: UnflushedIndex) -> None:
        try:
            queues.sync()
        except FlushError as error:
            self.queues_error = error
            raise
        try:
            index.sync()
        except FlushError as error:
            self._index.flush_error = error
            raise


def unflushed_reason(error: FlushError) -> str:
    """Return the fault of a projection whose flush failed, and the fix."""
    return (
        f"a flush failed ({error.strerror}), so there are no more checkpoints; "
        "check the disk, then restart the broker, which rebuilds what may be lost"
    )
