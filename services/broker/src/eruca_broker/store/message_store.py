"""The message store: one directory, one log, its projections, and the state folded from it.

The rest of the broker uses only this class and its public parts. Each part has one task::

    writer      appends, group commit            store/writing
    dispatcher  log → consume queues, key index  store/projecting
    projections handle those that lag            store/projecting/projections.py
    queues      pulls                            store/pulling
    log, keys   look-ups, the log feed           store/reading
    cold        reads that must wait for a disk  store/reading/cold_reads.py
    state       topics, groups, offsets          core/state/state.py, a fold over control records
    timers      delayed messages                 core/state/timers.py, from queues and events
    role        copy a master, or be the master  store/role.py
    upkeep      flush, checkpoint, repair        store/upkeep
    retention   delete the oldest segments       store/upkeep/retention.py

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
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec

import structlog

from eruca.contract.errors import (
    ErucaError,
    StoreFailedError,
    UnavailableError,
)
from eruca.contract.records import Host
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.replication.identity import Identity
from eruca_broker.core.state.events import (
    EpochBegan,
    Event,
)
from eruca_broker.core.state.state import BrokerState
from eruca_broker.core.state.timers import PendingTimers
from eruca_broker.store.config.handover import Handover
from eruca_broker.store.files.directory_lock import lock_directory
from eruca_broker.store.files.refusals import refusal_of
from eruca_broker.store.identity import (
    current_identity,
    mark_as_open,
    read_mark,
    settle_identity,
)
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.appended import Appended, Done, GroupDone
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.projecting.checkpoints import Checkpoints
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.projecting.index_follower import IndexFollower
from eruca_broker.store.projecting.projections import Projection, Projections
from eruca_broker.store.pulling.queue_reader import QueueReader
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.reading.cold_reads import ColdReads
from eruca_broker.store.reading.log_reader import LogReader
from eruca_broker.store.reading.queue_places import QueuePlaces
from eruca_broker.store.reading.readable_log import ReadableLog
from eruca_broker.store.reading.tiered_keys import TieredKeys
from eruca_broker.store.reading.tiered_log import TieredLog
from eruca_broker.store.recovery.cut import Cut
from eruca_broker.store.recovery.recovery import Recovered, recover
from eruca_broker.store.role import StoreRole
from eruca_broker.store.settings import StoreSettings
from eruca_broker.store.state.past_states import PastStates
from eruca_broker.store.state.published_fold import PublishedFold
from eruca_broker.store.state.state_snapshots import StateSnapshots
from eruca_broker.store.upkeep.retention import Retention
from eruca_broker.store.upkeep.upkeep import StoreUpkeep
from eruca_broker.store.writing.control_records import ControlRecords
from eruca_broker.store.writing.traced_writer import TracedWriter
from eruca_broker.store.writing.writer import Writer
from eruca_chassis.clock import Clock
from eruca_chassis.files.directories import make_directory, tighten
from eruca_chassis.files.file_lock import FileLock
from eruca_chassis.finishing import finished_in_thread

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
        self.doubt: Callable[[], UnavailableError | None] = lambda: self.role.doubt()
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
        handover = Handover(directory, self._consume_queues, self.timers, clock)
        self._control = ControlRecords(settings.store_host, clock)
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
            handover=handover,
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
        self.role = StoreRole(
            log=self._log,
            writer=self._writer,
            dispatcher=self._dispatcher,
            snapshots=self._snapshots,
            state=self.state,
            control=self._control,
        )
        self.upkeep = StoreUpkeep(
            directory,
            settings,
            clock,
            recovered,
            writer=self._writer,
            reader=self._log_reader,
            projections=self._projections,
            checkpoints=self._checkpoints,
            snapshots=self._snapshots,
            handover=handover,
            is_marked=is_marked,
        )
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
            await store.upkeep.begin()
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
            await self.upkeep.leave_in_order()
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
        parts = self._control.group(head, batches)
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
        parts = self._control.group(head, batches)
        self._writer.append_group(parts, born_host, done, despite_full_disk=despite_full_disk)

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
        batch = self._control.batch(event)
        receipt = await self._writer.appended(batch, self.settings.store_host, event=event)
        return receipt.log_offset

    def change_all(self, events: Sequence[Event]) -> asyncio.Future[list[Receipt]]:
        """Record several changes of state as one; the future is done once they are in effect.

        Raises:
            ErucaError: Writes are refused now, or all is too large; nothing has changed.
        """
        return self._writer.group_appended(
            [(self._control.batch(event), event) for event in events]
        )

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

    # --- Inside -----------------------------------------------------------------------------------

    def _let_go(self) -> None:
        self._index_follower.stop()
        self._consume_queues.close()
        self._index.close()
        self._log.close()
        self._lock.release()

    def _begin_of(self, topic: str) -> int:
        """Return the log offset from which records belong to the present topic of that name."""
        known = self.state.topics.get(topic)
        return known.created_at if known else 0

    def _snapshot_batches(self) -> Sequence[tuple[Batch, Event]]:
        return self._snapshots.batches(
            self._writer,
            segment_bytes=self.segment_bytes,
            batch_of=self._control.batch,
        )

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
