"""Maintain an open store: flush, checkpoint, repair, and complete what a disk had no room for.

The loops call these steps (:mod:`eruca_broker.loops.upkeep`); opening and closing a store are the
first and the last of them. The files of a directory that they keep up to date::

    commitlog/  consumequeue/  index/     flush, checkpoint, the repairs
    checkpoint                            checkpoint
    config/                               save_config
    abort                                 begin, probe_disk; close deletes it
"""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from eruca.contract.errors import StoreFailedError, UnavailableError
from eruca_broker.store.config import config_snapshots
from eruca_broker.store.config.config_snapshots import ConfigSnapshot
from eruca_broker.store.config.handover import Handover
from eruca_broker.store.config.projection_digests import write_digests
from eruca_broker.store.files.refusals import is_scarcity, refusal_of
from eruca_broker.store.identity import ABORT_NAME, doubt_mark, mark_as_open
from eruca_broker.store.projecting.checkpoints import Checkpoints, Reach
from eruca_broker.store.projecting.projections import Projections
from eruca_broker.store.queues.lagging import KEY_INDEX
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.reading.log_reader import LogReader
from eruca_broker.store.recovery.recovery import Recovered, make_durable
from eruca_broker.store.settings import StoreSettings
from eruca_broker.store.state.state_snapshots import StateSnapshots
from eruca_broker.store.upkeep.record_repair import mend
from eruca_broker.store.writing.writer import Writer
from eruca_chassis.clock import Clock
from eruca_chassis.finishing import finished_in_thread

logger = structlog.get_logger(__name__)

_OPENED_COUNT: Final = 100  # queues that are opened at a time after a crash: some ms


class StoreUpkeep:
    """The upkeep of one open store.

    Args:
        directory: The store's directory.
        settings: Its settings.
        clock: Times of the saved configuration.
        parts: The store's parts.
        writer: Flushes the log, and refuses writes for which there is no room.
        reader: Reads damaged records.
        projections: Retries those that lag.
        checkpoints: Records what is durable.
        snapshots: Know whether the log lacks a part of the state.
        handover: Keeps RocketMQ's notes on delayed messages.
        is_marked: Whether the directory says that the store is open.
    """

    def __init__(
        self,
        directory: Path,
        settings: StoreSettings,
        clock: Clock,
        parts: Recovered,
        *,
        writer: Writer,
        reader: LogReader,
        projections: Projections,
        checkpoints: Checkpoints,
        snapshots: StateSnapshots,
        handover: Handover,
        is_marked: bool,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._log = parts.log
        self._consume_queues = parts.queues
        self._index = parts.index
        self._dispatcher = parts.dispatcher
        self._state = parts.state
        self._doubted_from = parts.doubted_from
        self._writer = writer
        self._reader = reader
        self._projections = projections
        self._snapshots = snapshots
        self._handover = handover
        self._checkpoints = checkpoints
        self._is_marked = is_marked
        self._saving_config = asyncio.Lock()

    async def begin(self) -> None:
        """Complete what opening has left to write, before the store is used.

        Raises:
            UnavailableError: There is no room for the state, with which a log begins.
            OSError: The disk refuses.
        """
        await self._write_state()
        if not (self._snapshots.is_due or self._doubted_from is not None):
            # Else ended timers may be only in RocketMQ's files, or not be durable.
            await self._handover.begin(self._dispatcher.queued_offset)
        if self._settings.cut_to is not None:
            await self.save_config()  # the files show a state that is no longer in the log

    @property
    def can_flush(self) -> bool:
        """True if written bytes can be made durable."""
        return self._writer.can_flush

    async def flush(self) -> None:
        """Make everything written durable; raises StoreFailedError."""
        try:
            await self._writer.flush()
        except StoreFailedError:
            with suppress(OSError):  # the disk has failed; the caller raises the error that counts
                doubt_mark(self._directory, self._settings.flush_mode)
            raise

    async def checkpoint(self) -> None:
        """Flush log and projections, then record the flushed offsets.

        Raises:
            StoreFailedError: The disk failed to flush the log; final.
            OSError, DamagedQueueError: A projection is incomplete, or cannot be flushed; the log's
                flushed offset is recorded all the same.
        """
        delayed = (
            None
            if self._snapshots.is_due
            else self._handover.progress(self._dispatcher.queued_offset)
        )
        if self._doubted_from is not None or not self._is_marked:
            await self.flush()
            await self._settle()
        try:
            reach = await self._reach()
        except (OSError, DamagedQueueError):
            await self.flush()
            await self._note_flushed()
            raise
        await self.flush()  # asynchronous flushing has the projections ahead of it
        try:
            await self._checkpoints.write(reach, self._writer.flushed_offset)
            if delayed is not None:  # the ended timers in it are durable now
                await self._handover.save(delayed)
        except OSError:
            await self._note_flushed()
            raise

    async def save_config(self) -> None:
        """Write topics, offsets and groups as the JSON files that RocketMQ keeps in ``config/``.

        Raises:
            OSError: A file could not be written; its predecessor remains.
        """
        if self._snapshots.is_due:
            return  # only RocketMQ's files may have the state, so keep them
        async with self._saving_config:  # two calls would write the same temporary files
            snapshot = ConfigSnapshot.of(self._state, now_ms=self._clock.now_ms())
            # The encoding runs there, too: with many groups it is much slower than the copy.
            await finished_in_thread(partial(config_snapshots.save, self._directory, snapshot))

    async def mend_projections(self) -> None:
        """Verify and repair some files that a crash may have damaged, and those found damaged.

        Raises:
            OSError, DamagedQueueError: Not possible now.
        """
        self._consume_queues.open_some(_OPENED_COUNT)
        while (prove := self._index.prove_next()) is not None:
            proof = await finished_in_thread(prove)
            if self._index.proved(proof):
                self._dispatcher.rebuild_index(proof.name)
        if self._consume_queues.damaged or KEY_INDEX in self._dispatcher.lagging:
            await self._projections.retry()

    async def mend(self, log_offset: int, copy: bytes) -> bool:
        """Write a peer's copy of damaged records in their place, durably (rule 11).

        Return False if the records are sound.

        Args:
            log_offset: The beginning of the first record.
            copy: Whole records of one segment, at least one.

        Raises:
            RecordNotFoundError: The place is outside the log.
            RefusedCopyError: The copy is damaged, or is not that of these records.
            OSError: The disk refuses; the records are still damaged.
        """
        mended = await mend(self._log, self._reader, log_offset, copy)
        if mended:
            logger.info("damaged records are repaired", log_offset=log_offset, size=len(copy))
        return mended

    async def prepare_next_segment(self) -> None:
        """Create the next segment in a thread once the current one is half full."""
        if (
            self._log.segments
            and 2 * (self._log.end_offset - self._log.segments[-1].base_offset)
            > self._log.segment_bytes
        ):
            await self._prepare_next()

    def stop_warming(self) -> None:
        """Stop warming the next segment, so that a shutdown does not wait for it."""
        self._log.stop_warming()

    async def probe_disk(self) -> None:
        """Accept writes again if the full disk has room, or another shortage has ended."""
        try:
            await self._settle()
        except OSError:
            return
        await self._writer.probe()
        if self._writer.refusal is None and self._snapshots.is_due and not self._writer.is_replica:
            await self._write_state()

    async def leave_in_order(self) -> None:
        """Leave the directory as after an orderly stop; the writer is closed.

        Raises:
            StoreFailedError, OSError, DamagedQueueError: Something could not be made durable.
        """
        while self._consume_queues.has_unopened:
            self._consume_queues.open_some(_OPENED_COUNT)
            await asyncio.sleep(0)
            if self._consume_queues.damaged:
                await self._projections.retry()
        await self.checkpoint()
        self._index.save()
        await self.save_config()
        if not self._snapshots.is_due:
            await self._handover.complete(self._dispatcher.queued_offset)
        write_digests(self._directory, self._consume_queues, self._index)
        (self._directory / ABORT_NAME).unlink(missing_ok=True)

    async def _reach(self) -> Reach:
        """Bring all projections to one log offset, and take their unflushed parts.

        Raises:
            OSError, DamagedQueueError: One lacks something.
        """
        self._consume_queues.delete_left_over()
        await finished_in_thread(self._consume_queues.free_deleted)
        await self._projections.retry()  # nothing is awaited behind it, so nothing can follow
        self._dispatcher.catch_up_index()
        return self._checkpoints.reach(
            self._dispatcher.queued_offset, self._writer.visible_timestamp
        )

    async def _note_flushed(self) -> None:
        with suppress(OSError):  # the caller raises the error that counts
            await self._checkpoints.note_flushed(self._writer.flushed_offset)

    async def _write_state(self) -> None:
        """Write the state into a log that does not contain all of it.

        Without room for it, a store that has a log is served as it is.
        """
        if not self._snapshots.is_due or self._writer.is_replica:
            return
        is_new = not self._log.segments
        try:
            if is_new:
                await self._prepare_next()
            await self._writer.write_snapshot()
            await self._writer.flush()
            # From here on the log is Eruca's; RocketMQ's files must not be read again.
            self._snapshots.is_due = False
            await self.save_config()
        except OSError as error:
            self._snapshots.is_due = True
            if is_new or not is_scarcity(error):
                raise
            self._writer.refusal = refusal_of(error, "the state could not be written")
        except UnavailableError as error:
            if is_new or isinstance(error, StoreFailedError):
                raise
            self._writer.refusal = error

    async def _settle(self) -> None:
        """Complete the writes that a start had no room for.

        Raises:
            OSError: There is still no room.
        """
        if not self._is_marked:
            self._is_marked = mark_as_open(self._directory, self._settings.flush_mode)
            if not self._is_marked:
                raise OSError(errno.ENOSPC, "no room to mark the store as open")
        if self._doubted_from is not None:
            end = self._log.written_offset
            await finished_in_thread(partial(make_durable, self._log, self._doubted_from, end))
            self._doubted_from = None

    async def _prepare_next(self) -> None:
        with suppress(OSError):  # no room: the roll that needs the segment reports it
            await finished_in_thread(self._log.prepare_next)
