"""The message store: one directory, one log, its projections, and the state folded from it.

The rest of the broker uses only this class. It owns the parts, each of which has one task::

    writer      appends, group commit            store/writer.py
    dispatcher  log → consume queues, key index  store/dispatcher.py, store/index_follower.py
    projections handle those that lag            store/projections.py
    queues      pulls                            store/queue_reader.py
    log reader  look-ups, the log feed           store/log_reader.py
    cold        reads that must wait for a disk  store/cold_reads.py
    state       topics, groups, offsets          core/state/state.py, a fold over control records
    timers      delayed messages                 core/state/timers.py, from queues and events
    retention   delete the oldest segments       store/retention.py

Everything here runs on the event loop's thread; only flushing and allocating leave it.

Directory, as RocketMQ lays it out::

    commitlog/  consumequeue/  index/  config/  checkpoint  abort  lock

``consumequeue.deleted`` exists while files of deleted topics wait to be freed.
``abort`` exists while the store is open: if the next start finds it, the last process did not close
the store. A store of a broker group has ``config/replica.json``, its identity (store/identity.py).
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec

import msgspec
import structlog

from eruca.contract.errors import (
    ErucaError,
    NotMasterForSureError,
    StoreFailedError,
    UnavailableError,
)
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Host
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.log.copied_run import RefusedRunError, prove_run
from eruca_broker.core.replication.epochs import EpochTable
from eruca_broker.core.replication.identity import Identity
from eruca_broker.core.state.events import (
    EVENTS_QUEUE_ID,
    EpochBegan,
    Event,
    StateSnapshot,
    encode_event,
)
from eruca_broker.core.state.record_groups import GROUP_HEADS
from eruca_broker.core.state.state import BrokerState
from eruca_broker.core.state.timers import PendingTimers
from eruca_broker.store.checkpoints import Checkpoints, Reach
from eruca_broker.store.cold_reads import ColdReads
from eruca_broker.store.config import config_snapshots
from eruca_broker.store.config.config_snapshots import ConfigSnapshot
from eruca_broker.store.config.handover import Handover
from eruca_broker.store.config.projection_digests import write_digests
from eruca_broker.store.dispatcher import Dispatcher
from eruca_broker.store.files.directory_lock import lock_directory
from eruca_broker.store.files.refusals import is_scarcity, refusal_of, renewed
from eruca_broker.store.identity import (
    ABORT_NAME,
    current_identity,
    doubt_mark,
    mark_as_open,
    read_mark,
    settle_identity,
)
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.index_follower import IndexFollower
from eruca_broker.store.log.appended import Appended, Done, GroupDone
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.log_reader import LogReader
from eruca_broker.store.projections import Projection, Projections
from eruca_broker.store.queue_places import QueuePlaces
from eruca_broker.store.queue_reader import QueueReader
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.lagging import KEY_INDEX
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.readable_log import ReadableLog
from eruca_broker.store.record_repair import mend
from eruca_broker.store.recovery.cut import Cut
from eruca_broker.store.recovery.recovery import Recovered, make_durable, recover
from eruca_broker.store.retention import Retention
from eruca_broker.store.settings import StoreSettings
from eruca_broker.store.state.past_states import PastStates
from eruca_broker.store.state.published_fold import PublishedFold
from eruca_broker.store.state.state_snapshots import StateSnapshots
from eruca_broker.store.tiered_keys import TieredKeys
from eruca_broker.store.tiered_log import TieredLog
from eruca_broker.store.traced_writer import TracedWriter
from eruca_broker.store.writer import Writer
from eruca_chassis.clock import Clock
from eruca_chassis.directories import make_directory, tighten
from eruca_chassis.file_lock import FileLock
from eruca_chassis.finishing import finished, finished_in_thread

logger = structlog.get_logger(__name__)

LOG_ID_SIZE: Final = 8  # random bytes: two logs of one broker name never share an id
_OPENED_COUNT: Final = 100  # queues that are opened at a time after a crash: some ms

P = ParamSpec("P")

Arrivals = Callable[[Sequence[tuple[str, int]]], None]


class MessageStore:
    """An open store; made by :meth:`open`, ended by :meth:`close`."""

    def __init__(
        self,
        directory: Path,
        settings: StoreSettings,
        clock: Clock,
        lock: FileLock,
        recovered: Recovered,
        *,
        is_marked: bool,
    ) -> None:
        self.directory = directory
        self.settings = settings
        # Read here, since recovery may have had to give up durable records.
        self.identity: Identity | None = current_identity(directory)
        self.state: BrokerState = recovered.state
        self.timers: PendingTimers = recovered.timers
        self.on_arrival: Arrivals = lambda _: None
        self.on_timers: Callable[[], None] = lambda: None  # the next may be due earlier
        self._clock = clock
        self._lock = lock
        self._log: CommitLog = recovered.log
        self._consume_queues: ConsumeQueues = recovered.queues
        self._index: KeyIndex = recovered.index
        self._log_reader = LogReader(self._log, self._index)
        self._dispatcher: Dispatcher = recovered.dispatcher
        # Returns why another replica may have messages that this one lacks; None: none has.
        self.doubt: Callable[[], UnavailableError | None] = self._doubt_of_replica
        self.queues = QueueReader(
            self._log,
            self._consume_queues,
            self._dispatcher,
            self.state,
            doubt=lambda: self.doubt(),
        )
        self.places = QueuePlaces(self.queues, self._consume_queues, self._log_reader)
        self.cold = ColdReads(settings.cold_rates, clock)
        self._index_follower = IndexFollower(recovered.dispatcher)
        self._projections = Projections(
            self._dispatcher,
            self._consume_queues,
            caught_up=lambda queues: self.on_arrival(queues),
            begin_of=self._begin_of,
        )
        self._checkpoints = Checkpoints(directory, self._consume_queues, self._index)
        self._handover = Handover(directory, self._consume_queues, self.timers, clock)
        self._saving_config = asyncio.Lock()
        self._snapshots = StateSnapshots(
            self.state,
            self.timers,
            self._consume_queues,
            recovered.snapshot_offset,
            new_log_id=secrets.token_hex(LOG_ID_SIZE),
            is_due=_needs_snapshot(recovered, is_replica=settings.is_replica),
        )
        published = PublishedFold(
            state=self.state,
            timers=self.timers,
            snapshots=self._snapshots,
            handover=self._handover,
            dispatcher=self._dispatcher,
            queues=self._consume_queues,
            reader=self._log_reader,
            is_replica=settings.is_replica,
            timers_set=lambda: self.on_timers(),
        )
        self._writer = _writer_class(settings)(
            self._log,
            self.queues,
            self._projections,
            settings,
            clock,
            last_store_timestamp=recovered.last_store_timestamp,
            head_of_segment=self._snapshot_batches,
            fold=published.fold,
            arrived=self._arrived,
        )
        self.log = ReadableLog(
            log=self._log,
            reader=self._log_reader,
            index=self._index,
            index_follower=self._index_follower,
            queues=self._consume_queues,
            dispatcher=self._dispatcher,
            writer=self._writer,
            state=self.state,
        )
        self.whole_log = TieredLog(self.log, self.state)
        self.past = PastStates(self._consume_queues, self._log_reader, self.whole_log, self.cold)
        self.keys = TieredKeys(self.log, self.whole_log, self.state)
        self._copying = asyncio.Lock()
        self._doubted_from = recovered.doubted_from
        self._is_marked = is_marked
        if recovered.shortage is not None:
            self.refusal = refusal_of(recovered.shortage, "a projection could not be written")
        self.cut: Cut | None = recovered.cut  # the part of the log that this start has truncated
        self.retention = Retention(recovered, self.queues, self._snapshots, self._writer)

    @classmethod
    async def open(cls, directory: Path, settings: StoreSettings, clock: Clock) -> MessageStore:
        """Open the store in *directory*, or create one; recover it after a crash.

        Raises:
            StoreLockedError: Another process has it open.
            WrongReplicaError: It belongs to another replica; nothing has been changed.
            InvalidCutError: The log cannot end where the settings say; nothing has been changed.
            CorruptLogError: Durable records are damaged; nothing has been changed.
            UnavailableError: The disk has no room for the state, with which a log begins.
            OSError: The disk refuses.
        """
        lock = _lock(directory, settings)
        try:
            mark = read_mark(directory)
            # Before the mark, by which a later start would take the kernel to be the same.
            settle_identity(directory, settings.replica_id, settings.flush_mode, mark)
            is_marked = mark_as_open(directory, settings.flush_mode)
            if not is_marked and settings.replica_id is not None:
                raise OSError(errno.ENOSPC, "no room to mark the store as open")
            # In a thread, so that health checks are answered while a long log is walked. If this is
            # cancelled, await the thread: the lock must be held while it repairs the files.
            recovered = await finished_in_thread(
                partial(recover, directory, settings, stopped_cleanly=mark is None)
            )
        except BaseException:
            lock.release()
            raise
        store = cls(directory, settings, clock, lock, recovered, is_marked=is_marked)
        try:
            await store._begin()
            if not (store._snapshots.is_due or store._doubted_from is not None):
                # Else ended timers may be only in RocketMQ's files, or not be durable.
                await store._handover.begin(store.visible_offset)
            if settings.cut_to is not None:
                await store.save_config()  # the files show a state that is no longer in the log
        except BaseException:
            store._let_go()
            raise
        return store

    async def close(self) -> None:
        """Make everything durable and leave the directory as after an orderly stop.

        If the disk refuses, the next start finds the store as after a crash.
        """
        self.cold.close()
        try:
            await self._writer.close()
            await self._leave_in_order()
        except (OSError, StoreFailedError, DamagedQueueError) as error:
            logger.error("store could not be closed in order", reason=str(error))
        finally:
            self._let_go()

    # --- Writing ----------------------------------------------------------------------------------

    @property
    def refusal(self) -> ErucaError | None:
        """The reason why appends are refused now, or None."""
        return self._writer.refusal

    @refusal.setter
    def refusal(self, error: ErucaError | None) -> None:
        self._writer.refusal = error

    def incapacity(self) -> ErucaError | None:
        """Return why nothing can be written until an operator acts; None if it can."""
        return self._writer.incapacity()

    def append(self, batch: Batch, born_host: Host | None = None) -> asyncio.Future[Receipt]:
        """Append a batch; the future is done once it is as durable as the settings promise.

        Raises:
            ErucaError: Writes are refused now, or the batch is too large; nothing has changed.
        """
        return self._writer.appended(batch, born_host)

    def append_then(
        self, batch: Batch, born_host: Host | None, done: Done, *, is_answered_first: bool = False
    ) -> None:
        """Append a batch as :meth:`append` does, but call *done* with the outcome.

        Args:
            batch: The batch.
            born_host: The peer's address; None: each record has its own already.
            done: Called once.
            is_answered_first: Whether *done* does nothing but answer a client, and may therefore be
                called before readers see the batch. The client's next request comes after that.

        Raises:
            ErucaError: Writes are refused now, or the batch is too large; nothing has changed, and
                *done* is not called.
        """
        self._writer.append(batch, born_host, done, is_answered_first=is_answered_first)

    def announce(self, append: Callable[[], None]) -> None:
        """Call *append* before the next batch is appended, or at the end of this tick.

        *append* appends records that are gathered until then, and must not raise.
        """
        self._writer.announce(append)

    def noting(self, gather: Callable[P, None]) -> Callable[P, None]:
        """Return *gather*, which gathers records that are announced, for a request of its own.

        If the store's work is traced, each call notes for whom it is.
        """
        return self._writer.noting(gather)

    def append_group(
        self,
        batches: Sequence[Batch],
        head: Event | None = None,
        *,
        despite_full_disk: bool = False,
    ) -> asyncio.Future[list[Receipt]]:
        """Append batches of the broker's own as one: all of them or none, back to back.

        Args:
            batches: At least one.
            head: An event that is recorded before them; if it heads a group, the batches are the
                group, and no crash separates them from it.
            despite_full_disk: Whether to try although writes are refused for a full disk: an
                operation that makes room must not wait for room.

        Raises:
            ErucaError: Writes are refused now, or all is too large; nothing has changed.
        """
        parts = self._group(head, batches)
        return self._writer.group_appended(parts, despite_full_disk=despite_full_disk)

    def append_group_then(
        self,
        batches: Sequence[Batch],
        born_host: Host | None,
        done: GroupDone,
        *,
        head: Event | None = None,
        despite_full_disk: bool = False,
    ) -> None:
        """Append batches as :meth:`append_group` does, but call *done* once with the outcome.

        Args:
            batches: At least one, unless there is a head.
            born_host: The peer's address; None: each record has its own already.
            done: Called with all of them, the head first.
            head: As for :meth:`append_group`.
            despite_full_disk: As for :meth:`append_group`.

        Raises:
            ErucaError: Writes are refused now, or all is too large; nothing has changed, and
                *done* is not called.
        """
        parts = self._group(head, batches)
        self._writer.append_group(parts, born_host, done, despite_full_disk=despite_full_disk)

    async def copy(self, run: memoryview, log_offset: int) -> None:
        """Append a run of the master's log to this replica, whose log ends at *log_offset*.

        Return once its records are as durable here as the settings promise. A cancelled call waits
        for that as well. They are visible once :meth:`confirm` covers them. Concurrent calls are
        executed one after the other.

        Args:
            run: The bytes as the master wrote them (:mod:`eruca_broker.core.log.copied_run`).
            log_offset: Log offset of the first byte.

        Raises:
            RefusedRunError: The run does not continue this log, or is not valid; nothing has
                changed.
            ErucaError: Writes are refused now, or the write failed; nothing has changed.
        """
        async with self._copying:
            end = self._log.end_offset
            if log_offset != end:
                raise RefusedRunError(f"expected a run at log offset {end}, found {log_offset}")
            proved = prove_run(
                run,
                end,
                room=self._log.room,
                segment_bytes=self.segment_bytes,
                log_id=self._log_id(),
                epoch=self.epochs().last,
            )
            await finished(self._writer.copied(proved))

    def begin_at(self, log_offset: int, *, segment_bytes: int) -> None:
        """Begin the log of this replica, which has no records, where its master's log begins.

        A master's log begins with a segment, and that with a snapshot of the state.

        Raises:
            UnavailableError: There is no room for its first segment.
        """
        assert self.is_replica
        try:
            self._log.begin_at(log_offset, segment_bytes)
        except OSError as error:
            self.refusal = refusal_of(error, "no room for the first segment of the log")
            raise renewed(self.refusal) from error
        self._writer.begin_at(log_offset)
        self._dispatcher.end_start(log_offset)

    @property
    def is_replica(self) -> bool:
        """True if this store appends only runs of a master's log, and nothing of its own."""
        return self._writer.is_replica

    def _doubt_of_replica(self) -> UnavailableError | None:
        return NotMasterForSureError("this is a replica's store") if self.is_replica else None

    @property
    def on_durable(self) -> Callable[[int], None] | None:
        """Called with :attr:`durable_offset` after it has moved; it may call :meth:`confirm`.

        None in a broker without replicas: what it appends is confirmed once it is durable. What a
        replica copies never is (rule 7).
        """
        return self._writer.on_durable

    @on_durable.setter
    def on_durable(self, hook: Callable[[int], None] | None) -> None:
        self._writer.on_durable = hook

    @property
    def on_written(self) -> Callable[[int], None] | None:
        """Called with the log's end after it has moved, before it is durable: replicas need it."""
        return self._writer.on_written

    @on_written.setter
    def on_written(self, hook: Callable[[int], None] | None) -> None:
        self._writer.on_written = hook

    def lead(self, event: EpochBegan) -> asyncio.Future[Receipt]:
        """Become the writer of a new epoch, in place; the future is done once it is confirmed.

        The log must be the copy of all that this replica has acknowledged, and no run on its way.
        *event* becomes the first record of the epoch (rule 2). Records that former masters left
        unconfirmed are confirmed with it, never before it. Queue offsets continue at the end of the
        log, not at what is visible.

        Args:
            event: The epoch's beginning; its place is set here.

        Raises:
            ErucaError: Writes are refused now, or there is no room; this is still a replica.
        """
        assert not self._copying.locked(), "a run is being copied"
        assert event.epoch > self.epochs().last, "rule 13: epochs ascend"
        event = msgspec.structs.replace(event, begun_at=self._log.end_offset)
        batch = self._event_batch(event)
        needs_snapshot = self._snapshots.is_due or not self._begins_with_snapshot()
        return self._writer.lead(batch, event, needs_snapshot=needs_snapshot)

    def follow(self) -> None:
        """Become a replica, in place.

        Callers of unconfirmed appends get OutcomeUnknownError. What they appended stays in the log:
        :meth:`confirm` publishes it, or the next start cuts it off. Appends that are not written
        yet are undone and get NotMasterForSureError.
        """
        self._writer.follow()

    def confirm(self, log_offset: int) -> None:
        """Publish everything durable before *log_offset*, which every member in sync holds.

        Batches that were appended together, and runs, become visible as a whole, so it may publish
        less. A lower offset than before changes nothing.
        """
        self._writer.confirm(log_offset)

    @property
    def tick_timestamp(self) -> int | None:
        """The store time of an append now, in ms; None before the first append of a tick."""
        return self._writer.tick_timestamp

    @property
    def last_store_timestamp(self) -> int:
        """Store time of the latest append, in ms; later appends have the same or a later one."""
        return self._writer.last_store_timestamp

    def is_leaving(self, topic: str) -> bool:
        """Tell whether a topic's deletion is not published yet."""
        return self._writer.is_leaving(topic)

    @property
    def unopened_files_max(self) -> int:
        """Number of queue files that may still be opened; connections must leave room for them."""
        return self._consume_queues.unopened_files_max

    @property
    def durability(self) -> str:
        """The durability of an acknowledged batch: "flushed" or "written"."""
        return self._writer.durability

    async def change(self, event: Event) -> int:
        """Record a change of state; return its log offset once it is durable and in effect.

        Raises:
            ErucaError: Writes are refused now; nothing has changed.
        """
        assert not getattr(event, "group_size", 0), "what belongs to it would be missing"
        assert not isinstance(event, EpochBegan), "an epoch begins with its first record"
        batch = self._event_batch(event)
        receipt = await self._writer.appended(batch, self.settings.store_host, event=event)
        return receipt.log_offset

    def change_all(self, events: Sequence[Event]) -> asyncio.Future[list[Receipt]]:
        """Record several changes of state as one; the future is done once they are in effect.

        Raises:
            ErucaError: Writes are refused now, or all is too large; nothing has changed.
        """
        return self._writer.group_appended([(self._event_batch(event), event) for event in events])

    # --- Reading ----------------------------------------------------------------------------------

    def epochs(self) -> EpochTable:
        """Return the epochs of the whole log, those that are not visible yet included.

        A replica compares them with its master's, and nothing may begin an epoch again.
        """
        epochs = self.state.log_epochs
        coming = [e for e, _ in self._writer.unpublished_events() if isinstance(e, EpochBegan)]
        if coming:
            epochs = epochs.copy()
            for event in coming:
                epochs.apply(event)
        return epochs.table

    # --- State -----------------------------------------------------------------------------------

    @property
    def log_min_offset(self) -> int:
        """Log offset of the first record present."""
        return self._log.min_offset

    @property
    def log_max_offset(self) -> int:
        """Log offset of the next record."""
        return self._log.written_offset

    @property
    def flushed_offset(self) -> int:
        """Everything before it survives a power failure."""
        return self._writer.flushed_offset

    @property
    def durable_offset(self) -> int:
        """Everything before it is as durable here as the settings promise."""
        return self._writer.durable_offset

    @property
    def visible_offset(self) -> int:
        """Everything before it can be read."""
        return self._dispatcher.queued_offset

    @property
    def confirmed_offset(self) -> int:
        """Everything before it is published; after a start, all that the log holds."""
        return self.visible_offset

    @property
    def segment_bytes(self) -> int:
        """Bytes of one segment of the log."""
        return self._log.segment_bytes

    @property
    def segment_count(self) -> int:
        """Number of segments of the log."""
        return len(self._log.segments)

    @property
    def disk_used_ratio(self) -> float:
        """The used fraction of the disk, 0 to 1."""
        usage = shutil.disk_usage(self.directory)
        return usage.used / (usage.used + usage.free)

    def projections(self) -> list[Projection]:
        """Return the progress of each projection, and its fault if it has one."""
        unflushed = {
            "consume_queues": self._checkpoints.queues_error,
            "key_index": self._index.flush_error,
        }
        return [
            projection.or_failure(unflushed.get(projection.name))
            for projection in self._projections.progress()
        ]

    # --- Upkeep, called by the loops --------------------------------------------------------------

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
                doubt_mark(self.directory, self.settings.flush_mode)
            raise

    async def checkpoint(self) -> None:
        """Flush log and projections, then record the flushed offsets.

        Raises:
            StoreFailedError: The disk failed to flush the log; final.
            OSError, DamagedQueueError: A projection is incomplete, or cannot be flushed; the log's
                flushed offset is recorded all the same.
        """
        delayed = None if self._snapshots.is_due else self._handover.progress(self.visible_offset)
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

    async def save_config(self) -> None:
        """Write topics, offsets and groups as the JSON files that RocketMQ keeps in ``config/``.

        Raises:
            OSError: A file could not be written; its predecessor remains.
        """
        if self._snapshots.is_due:
            return  # only RocketMQ's files may have the state, so keep them
        async with self._saving_config:  # two calls would write the same temporary files
            snapshot = ConfigSnapshot.of(self.state, now_ms=self._clock.now_ms())
            # The encoding runs there, too: with many groups it is much slower than the copy.
            await finished_in_thread(partial(config_snapshots.save, self.directory, snapshot))

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
        mended = await mend(self._log, self._log_reader, log_offset, copy)
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
        if self.refusal is None and self._snapshots.is_due and not self.is_replica:
            await self._begin()

    # --- Inside -----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Write the state into a log that does not contain all of it.

        Without room for it, a store that has a log is served as it is.
        """
        if not self._snapshots.is_due or self.is_replica:
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
            self.refusal = refusal_of(error, "the state could not be written")
        except UnavailableError as error:
            if is_new or isinstance(error, StoreFailedError):
                raise
            self.refusal = error

    async def _settle(self) -> None:
        """Complete the writes that a start had no room for.

        Raises:
            OSError: There is still no room.
        """
        if not self._is_marked:
            self._is_marked = mark_as_open(self.directory, self.settings.flush_mode)
            if not self._is_marked:
                raise OSError(errno.ENOSPC, "no room to mark the store as open")
        if self._doubted_from is not None:
            end = self._log.written_offset
            await finished_in_thread(partial(make_durable, self._log, self._doubted_from, end))
            self._doubted_from = None

    async def _prepare_next(self) -> None:
        with suppress(OSError):  # no room: the roll that needs the segment reports it
            await finished_in_thread(self._log.prepare_next)

    def _let_go(self) -> None:
        self._index_follower.stop()
        self._consume_queues.close()
        self._index.close()
        self._log.close()
        self._lock.release()

    async def _leave_in_order(self) -> None:
        while self._consume_queues.has_unopened:
            self._consume_queues.open_some(_OPENED_COUNT)
            await asyncio.sleep(0)
            if self._consume_queues.damaged:
                await self._projections.retry()
        await self.checkpoint()
        self._index.save()
        await self.save_config()
        if not self._snapshots.is_due:
            await self._handover.complete(self.visible_offset)
        write_digests(self.directory, self._consume_queues, self._index)
        (self.directory / ABORT_NAME).unlink(missing_ok=True)

    def _begin_of(self, topic: str) -> int:
        """Return the log offset from which records belong to the present topic of that name."""
        known = self.state.topics.get(topic)
        return known.created_at if known else 0

    def _snapshot_batches(self) -> Sequence[tuple[Batch, Event]]:
        return self._snapshots.batches(
            self._writer,
            segment_bytes=self.segment_bytes,
            batch_of=self._event_batch,
        )

    def _log_id(self) -> str:
        """Return the log's id, also if it is not visible yet; empty: the log has none."""
        coming = [event for event, _ in self._writer.unpublished_events()]
        ids = (event.log_id for event in reversed(coming) if isinstance(event, StateSnapshot))
        return next(ids, self.state.log_id)

    def _begins_with_snapshot(self) -> bool:
        """Tell whether the last segment of the log contains a whole snapshot, visible or not."""
        if not self._log.segments or not self._log_id():
            return False
        latest = self._snapshots.latest_with(self._writer.unpublished_events())
        return latest >= self._log.segments[-1].base_offset

    def _group(
        self, head: Event | None, batches: Sequence[Batch]
    ) -> list[tuple[Batch, Event | None]]:
        parts: list[tuple[Batch, Event | None]] = [(batch, None) for batch in batches]
        if head is None:
            return parts
        if isinstance(head, GROUP_HEADS):
            size = sum(batch.size for batch in batches)
            assert head.group_size == size, "by its size a start tells a torn group"
        return [(self._event_batch(head), head), *parts]

    def _event_batch(self, event: Event) -> Batch:
        record = encode_event(event, now_ms=self._clock.now_ms(), host=self.settings.store_host)
        return batch_of_records(EVENTS_TOPIC, EVENTS_QUEUE_ID, [record])

    def _arrived(self, appended: Sequence[Appended]) -> None:
        """Tell readers of published batches."""
        self._index_follower.notice()
        arrived = list(dict.fromkeys((a.batch.topic, a.batch.queue_id) for a in appended))
        if arrived:
            self.on_arrival(arrived)


def _lock(directory: Path, settings: StoreSettings) -> FileLock:
    make_directory(directory)  # durably: flushing the log does not flush its parent directory
    tighten(directory, group_access=settings.has_group_access)
    return lock_directory(directory)


def _needs_snapshot(recovered: Recovered, *, is_replica: bool) -> bool:
    """Tell whether the log lacks a part of the state.

    A log of RocketMQ's, or of an earlier version, gets its id with a snapshot. A replica gets its
    snapshots with the master's log, or writes one when it becomes the master.
    """
    if is_replica:
        return recovered.is_imported
    return recovered.needs_snapshot or not recovered.state.log_id


def _writer_class(settings: StoreSettings) -> Callable[..., Writer]:
    """Return what makes the store's writer: with spans or, at no cost, without."""
    return Writer if settings.tracing is None else partial(TracedWriter, settings.tracing)
