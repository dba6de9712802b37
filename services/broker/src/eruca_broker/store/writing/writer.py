"""The writer: the one place where the log grows.

An append goes through the stages of :data:`.log.appended.APPEND`; each has one cause::

    accepted    append()          offsets are fixed, the batch is stamped; it is not visible yet
    written     end of the tick   one pwritev per segment for all batches of the tick, and one
                                  for its first bytes; while a flush is in progress, at its end,
                                  since the batches would wait anyway
    flushed     (sync mode)       one fdatasync for all that wait, on the flusher's thread
    durable     thereafter        it is as durable here as the store promises
    confirmed   confirm()         so it is at every member of the in-sync set; at once in a broker
                                  without replicas
    published   thereafter        projections fed, events folded, pulls woken, senders answered
                                  (the sender of a lone record first)

A batch becomes visible only when it is confirmed, so no consumer reads a message that a crash, or
the loss of this machine, may lose. :meth:`Writer.confirm` never divides a batch, nor batches that
were appended together.

Events are folded when they are published, in the log's order. :meth:`Writer.unpublished_events`
returns the others to callers that need the future state. A topic that is being deleted accepts no
messages: they would follow its end.

Failure: a failed write undoes everything accepted since the last one, offsets included, and refuses
each of its appends; the log is as it was. If room, open files or memory were short,
:meth:`Writer.probe` finds out whether they are available again. A failed flush is final: the kernel
may have dropped the pages, so nothing is acknowledged until the store has been opened again. A
failed projection refuses nothing, unless a resource is short
(:mod:`eruca_broker.store.projecting.projections`).

The writer of a *replica* (``StoreSettings.is_replica``) accepts runs of the master's log instead of
batches (:mod:`eruca_broker.core.log.copied_run`). A run is already stamped. Its batches pass
through the same stages together, as one write, like batches of its own. Its caller waits until it
is durable. Several runs may wait for their confirmation.

The role changes in place. :meth:`Writer.lead` appends the record that begins an epoch; what former
masters left unconfirmed is confirmed together with it, never before it. :meth:`Writer.follow` takes
back what is not written yet. What is written stays in the log, without callers: the next master
confirms it, or has it cut off.

Source: RocketMQ 5.3, ``CommitLog.asyncPutMessage``, ``GroupCommitService``.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Final, ParamSpec

import structlog

from eruca.contract.errors import (
    DiskFullError,
    ErucaError,
    NotMasterForSureError,
    NotReadyError,
    OutcomeUnknownError,
    StoreFailedError,
    TooLargeError,
    TopicNotFoundError,
)
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import BLANK_SIZE_MIN, Host
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.log.copied_run import ProvedRun, RefusedRunError, StoredBatch
from eruca_broker.core.state.events import (
    EVENTS_QUEUE_ID,
    EpochBegan,
    Event,
    StateSnapshot,
    TopicDeleted,
)
from eruca_broker.core.state.record_groups import GROUP_HEADS
from eruca_broker.store.files.refusals import failed_flush, refusal_of, renewed, stuck_flush
from eruca_broker.store.log.appended import Act, Appended, Done, GroupDone, move
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.log.receipts import Receipt, receipt_to, receipts_to
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.projecting.projections import Projections
from eruca_broker.store.pulling.queue_reader import QueueReader
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.settings import FlushMode, StoreSettings
from eruca_chassis.clock import Clock
from eruca_chassis.finishing import finished_in_thread

FLUSH_SECONDS_MAX: Final = 30.0  # a longer flush counts as stuck; disks retry for less
P = ParamSpec("P")
_END: Final = attrgetter("end_offset")
_FOLLOWS: Final = "this broker follows another master now"
_NOT_BEGUN: Final = "this broker could not begin its term"

logger = structlog.get_logger(__name__)


class Writer:
    """Accepts batches, and takes them through all states to publication."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueReader,
        projections: Projections,
        settings: StoreSettings,
        clock: Clock,
        *,
        last_store_timestamp: int,
        head_of_segment: Callable[[], Sequence[tuple[Batch, Event]]],
        fold: Callable[[Sequence[tuple[Event, int]]], None],
        arrived: Callable[[Sequence[Appended]], None],
    ) -> None:
        self._log = log
        self._queues = queues
        self._projections = projections
        self._store_host = settings.store_host
        self._is_sync = settings.flush_mode is FlushMode.SYNC
        self.is_replica = settings.is_replica
        self.durability = "flushed" if self._is_sync else "written"  # of published batches
        self._clock = clock
        self._head_of_segment = head_of_segment
        self._fold = fold
        self._arrived = arrived
        self.on_written: Callable[[int], None] | None = None  # called with the log's end
        self.on_durable: Callable[[int], None] | None = None  # see MessageStore
        self._loop = asyncio.get_running_loop()
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix="flusher")
        self._next_offsets: dict[tuple[str, int], int] = {}
        # What a failed write restores; None: the offset was not known.
        self._before_write: dict[tuple[str, int], int | None] = {}
        self._is_amid_tick = False  # a batch has been accepted or announced in this tick
        self._announced: list[Callable[[], None]] = []  # append batches that come before the next
        self._accepted: list[Appended] = []
        self._written: list[Appended] = []  # sync mode: waiting for the next flush
        self._flushing: list[Appended] = []  # … for the flush in progress
        self._durable: list[Appended] = []  # waiting for their confirmation
        self._coming: deque[tuple[Event, int]] = deque()  # events that are not folded yet
        self._leaving: Counter[str] = Counter()  # topics whose deletion is not published yet
        self._epoch_end = 0  # a confirmation reaches at least this far: after the epoch's record
        self._flush_failed = False  # final: written bytes may not be durable
        self._flush: asyncio.Future[None] | None = None  # the one in progress
        self._flush_began_at = 0.0  # … and its beginning, on the monotonic clock
        self.flushed_offset = log.written_offset
        self.visible_timestamp = last_store_timestamp  # store time of the last visible record, ms
        self.last_store_timestamp = last_store_timestamp  # … of the last one that was accepted
        self._refusal: ErucaError | None = None

    @property
    def durable_offset(self) -> int:
        """Log offset before which everything is as durable here as the settings promise."""
        return self.flushed_offset if self._is_sync else self._log.written_offset

    @property
    def refusal(self) -> ErucaError | None:
        """The reason why appends are refused now, or None. Each change is logged."""
        return self._refusal

    @refusal.setter
    def refusal(self, error: ErucaError | None) -> None:
        before, self._refusal = self._refusal, error
        if isinstance(error, NotReadyError):
            return  # the broker is stopping
        if error is None and before is not None:
            logger.info("writes are accepted again")
        elif error is not None and type(error) is not type(before):
            logger.error("writes are refused", reason=error.detail)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message.

        Raises:
            UnavailableError: The queue's files cannot be read, so it is unknown.
        """
        key = (topic, queue_id)
        offset = self._next_offsets.get(key)
        if offset is None:
            if topic in self._leaving:
                return 0  # the visible queue is its predecessor's
            _, offset = self._queues.local_range(topic, queue_id)
            self._next_offsets[key] = offset
        return offset

    def known_next_offsets(self) -> dict[tuple[str, int], int]:
        """Return the next offset of every queue appended to since the start.

        Queues of a topic whose deletion is accepted are not among them, but those of its successor
        are.
        """
        return self._next_offsets

    def unpublished_events(self) -> Iterator[tuple[Event, int]]:
        """Return the events that are not in the state yet, with their log offsets, in order."""
        return iter(self._coming)

    def unpublished(self) -> Iterator[Appended]:
        """Return the batches that are not published yet, in the log's order."""
        return chain(self._durable, self._flushing, self._written, self._accepted)

    @property
    def end_offset(self) -> int:
        """Log offset after the last accepted record."""
        return self._log.end_offset

    def run_end(self, log_offset: int, limit: int) -> int:
        """Return the log offset at which a run of unpublished batches ends.

        The run begins at *log_offset* and ends at *limit* or before it, but contains at least one
        batch. It divides no batches that were appended together: a replica that became master with
        a part of them would publish that part. Without a written batch it is empty.
        """
        end = log_offset
        for batches in (self._durable, self._flushing, self._written):
            count = bisect_right(batches, limit, key=_END)
            is_whole = count == len(batches)
            while count and batches[count - 1].is_amid_group:
                count -= 1
            if count:
                end = max(end, batches[count - 1].end_offset)
            if not is_whole:
                if end == log_offset:
                    first = bisect_right(batches, log_offset, key=_END)
                    end = next(a.end_offset for a in batches[first:] if not a.is_amid_group)
                break
        return end

    def is_amid_group(self, log_offset: int) -> bool:
        """Tell whether a group of records that is not published yet is divided by *log_offset*."""
        last: Appended | None = None
        for appended in self.unpublished():
            if appended.log_offset >= log_offset:
                break
            if appended.event is not None:
                last = appended  # a group contains no event but its head
        if last is None or not isinstance(last.event, GROUP_HEADS):
            return False
        return last.end_offset + last.event.group_size > log_offset

    @property
    def tick_timestamp(self) -> int | None:
        """The store time of an append now; None before the first append of a tick."""
        return self.last_store_timestamp if self._is_amid_tick else None

    def is_leaving(self, topic: str) -> bool:
        """Tell whether a topic's deletion is not published yet."""
        return topic in self._leaving

    def announce(self, append: Callable[[], None]) -> None:
        """Call *append* before the next batch is accepted, at the latest when this tick is written.

        So records can be gathered meanwhile, and are in the log in the order of their arrival all
        the same. *append* must not raise, because others wait behind it.
        """
        self._announced.append(append)
        self._begin_tick()

    def noting(self, gather: Callable[P, None]) -> Callable[P, None]:
        """Return *gather*; the writer of a traced store returns one that notes for whom it is."""
        return gather

    def append(
        self,
        batch: Batch,
        born_host: Host | None,
        done: Done | None,
        *,
        event: Event | None = None,
        is_answered_first: bool = False,
    ) -> None:
        """Accept a batch; call *done* when it is published, or when it has failed.

        Args:
            batch: The batch.
            born_host: The peer's address; None: each record has its own already.
            done: Called once.
            event: The event that the batch contains.
            is_answered_first: Whether *done* does nothing but answer a client. If nothing else is
                published with the batch, it is then called before the projections are fed: the
                client goes on meanwhile. Its next request, as any other, comes behind all of that.

        Raises:
            ErucaError: The store refuses writes now; nothing has changed, *done* is not called.
        """
        if self._announced:
            self._append_announced()
        if self.refusal is not None or self.is_replica:
            raise self._refused()
        if batch.topic in self._leaving:
            raise TopicNotFoundError(f"topic {batch.topic!r} is being deleted")
        if not self._log.fits(batch.size):
            self.next_offset(batch.topic, batch.queue_id)  # raises before anything has changed
            self._roll(batch.size)
        appended = self._accept(batch, born_host, done, event)
        appended.is_answered_first = is_answered_first

    def appended(
        self, batch: Batch, born_host: Host | None, *, event: Event | None = None
    ) -> asyncio.Future[Receipt]:
        """Accept a batch as :meth:`append` does; the future is done when it is published."""
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self.append(batch, born_host, receipt_to(future, self.durability), event=event)
        return future

    def append_group(
        self,
        parts: Sequence[tuple[Batch, Event | None]],
        born_host: Host | None,
        done: GroupDone,
        *,
        despite_full_disk: bool = False,
    ) -> None:
        """Accept several batches, back to back in one segment and one write: all or none.

        Args:
            parts: At least one batch, each with the event that it contains, if any.
            born_host: The peer's address; None: each record has its own already.
            done: Called once for all of them.
            despite_full_disk: Whether to try although writes are refused for a full disk.

        Raises:
            ErucaError: The store refuses writes now; nothing has changed, *done* is not called.
        """
        if self._announced:
            self._append_announced()
        is_full = isinstance(self.refusal, DiskFullError)
        if self.is_replica or (self.refusal is not None and not (is_full and despite_full_disk)):
            raise self._refused()
        for batch, _ in parts:
            if batch.topic in self._leaving:
                raise TopicNotFoundError(f"topic {batch.topic!r} is being deleted")
            self.next_offset(batch.topic, batch.queue_id)  # raises before anything has changed
        size = sum(batch.size for batch, _ in parts)
        if not self._log.fits(size):
            self._roll(size)
        begin = self._log.end_offset
        appended = [self._accept(batch, born_host, None, event) for batch, event in parts]
        assert self._log.end_offset - begin == size, "something lies amid a group"
        _bind(appended)

        def settle(outcome: Appended | ErucaError) -> None:
            done(outcome if isinstance(outcome, ErucaError) else appended)

        appended[-1].done = settle

    def group_appended(
        self, parts: Sequence[tuple[Batch, Event | None]], *, despite_full_disk: bool = False
    ) -> asyncio.Future[list[Receipt]]:
        """Accept a group as :meth:`append_group` does; the future is done when it is published."""
        future: asyncio.Future[list[Receipt]] = self._loop.create_future()
        done = receipts_to(future, self.durability)
        self.append_group(parts, None, done, despite_full_disk=despite_full_disk)
        return future

    def copied(self, run: ProvedRun) -> asyncio.Future[Receipt]:
        """Accept a run that continues the log; the future is done when it is durable here.

        It is published as a whole, once all of it is confirmed: it may contain batches that the
        master appended together, and nothing shows that.

        Raises:
            RefusedRunError: A queue offset in it does not follow; nothing has changed.
            ErucaError: The store refuses writes now, or has no room; nothing has changed.
        """
        assert self.is_replica, "only a replica appends runs"
        assert run.log_offset == self._log.end_offset, "rule 4: a run continues the log"
        if self.refusal is not None:
            raise renewed(self.refusal)
        foreign_count = self._check_places(run.batches)
        try:
            self._log.add_copied(run.stretches)
        except OSError as error:
            self._log.take_back()
            self.refusal = refusal_of(error, "no room for a new segment of the log")
            raise renewed(self.refusal) from error
        appended = [
            Appended(
                stored.batch,
                stored.queue_offset,
                stored.log_offset,
                stored.store_timestamp,
                stored.entries,
                event=stored.event,
                is_copied=True,
                is_foreign=number < foreign_count,
            )
            for number, stored in enumerate(run.batches)
        ]
        for taken in appended:
            self._take(taken)
        _bind(appended)
        assert appended[-1].end_offset == self._log.end_offset, "a run ends after a record"
        future: asyncio.Future[Receipt] = self._loop.create_future()
        appended[-1].done = receipt_to(future, self.durability)
        self._end_tick()
        return future

    def begin_at(self, log_offset: int) -> None:
        """Go on at *log_offset*, where the log, which has no records, begins now."""
        assert next(self.unpublished(), None) is None, "the log has records"
        assert log_offset == self._log.written_offset
        self.flushed_offset = log_offset

    async def write_snapshot(self) -> None:
        """Write the state into the log now; create the first segment if there is none yet.

        Raises:
            ErucaError: There is no room for it, or a part of it is larger than a segment.
        """
        assert not self.is_replica, "a replica appends nothing but runs"
        if not self._log.segments:
            self._roll(0)
        else:
            self._accept_snapshot(self._snapshot())
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._accepted[-1].done = receipt_to(future, self.durability)
        await future

    def lead(
        self, batch: Batch, event: EpochBegan, *, needs_snapshot: bool
    ) -> asyncio.Future[Receipt]:
        """Become the writer of a new epoch, which begins with *event*.

        It is the first thing that this term adds to the log (rule 2), except for a blank record if
        the segment has no room for it. A snapshot follows it in a new segment, or if the log needs
        one. If the write fails, the store is a replica again.

        Args:
            batch: The event's control record.
            event: The event.
            needs_snapshot: Whether the last segment does not begin with a snapshot.

        Raises:
            ErucaError: The store refuses writes now, or has no room; nothing has changed.
        """
        assert self.is_replica, "a master that leads begins no further term"
        assert not self._accepted, "a run is being written"
        assert event.begun_at == self._log.end_offset, "rule 2: it is the epoch's first record"
        if self.refusal is not None:
            raise renewed(self.refusal)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self.is_replica = False
        try:
            if not self._log.fits(batch.size):
                self._log.roll()
                needs_snapshot = True
            done = receipt_to(future, self.durability)
            began = self._accept(batch, self._store_host, done, event)
            for part, snapshot in self._snapshot() if needs_snapshot else ():
                if not self._log.fits(part.size):
                    self._log.roll()
                self._accept(part, self._store_host, None, snapshot)
        except (OSError, ErucaError) as error:
            refusal: ErucaError | None = None
            if isinstance(error, OSError):
                refusal = self.refusal = refusal_of(error, "no room for a new segment of the log")
            accepted, self._accepted = self._accepted, []
            self._log.drop_added()
            self._take_back(accepted, refusal or NotMasterForSureError(_NOT_BEGUN))
            self.is_replica = True
            if refusal is not None:
                raise renewed(refusal) from error
            raise
        self._epoch_end = began.end_offset
        return future

    def follow(self) -> None:
        """Become a replica; tell the callers of unconfirmed appends that their outcome is unknown.

        What is not written yet is undone, and its callers get NotMasterForSureError. Nothing
        changes at a replica.
        """
        if self.is_replica:
            return
        self.is_replica = True
        self._epoch_end = 0
        accepted, self._accepted = self._accepted, []
        waiting = [*self._durable, *self._flushing, *self._written]
        if accepted:
            self._log.drop_added()
            self._take_back(accepted, NotMasterForSureError(_FOLLOWS), Act.FOLLOW)
        for appended in waiting:
            appended.abandon(OutcomeUnknownError("the broker ceased to be master"))

    @property
    def can_flush(self) -> bool:
        """True if no flush has failed, so that written bytes can be made durable."""
        return not self._flush_failed

    def incapacity(self) -> ErucaError | None:
        """Return why nothing can be written until an operator acts; None if it can.

        A temporary shortage, such as a full disk, is not a reason: messages are read meanwhile,
        which may make room.
        """
        if isinstance(self.refusal, StoreFailedError):
            return renewed(self.refusal)
        if self._flush is not None:
            seconds = time.monotonic() - self._flush_began_at
            if seconds > FLUSH_SECONDS_MAX:
                return stuck_flush(seconds)
        return None

    async def flush(self) -> None:
        """Make everything written up to now durable; later writes are left to the next flush.

        Raises:
            StoreFailedError: The disk failed; final.
        """
        target = self._log.written_offset
        while self.flushed_offset < target:
            if self._flush_failed:
                assert self.refusal is not None
                raise renewed(self.refusal)
            await asyncio.wait([self._begin_flush()])

    def write(self) -> None:
        """Write everything accepted, and publish or flush it."""
        if self._announced:
            self._append_announced()
        accepted, self._accepted = self._accepted, []
        if not accepted:
            return
        if isinstance(self.refusal, StoreFailedError):
            self._log.take_back()
            self._take_back(accepted, self.refusal)
            return
        try:
            self._write_log(accepted)
        except OSError as error:
            self.refusal = refusal_of(error, "the log could not be written")
            self._take_back(accepted, self.refusal)
            return
        move(accepted, Act.WRITE)
        assert accepted[-1].end_offset == self._log.written_offset, "more is written than accepted"
        self._before_write.clear()
        self._written.extend(accepted)
        if self._is_sync:
            self._begin_flush()
        if self.on_written is not None:  # first: replicas write it at the same time
            self.on_written(self._log.written_offset)
        if not self._is_sync:
            written, self._written = self._written, []
            self._keep(written, Act.NO_FLUSH)

    def confirm(self, log_offset: int) -> None:
        """Publish the durable batches before *log_offset*, in the log's order.

        Every member of the in-sync set holds everything before it. Nothing becomes visible by
        other means (rule 7), and nothing is taken back: a lower offset than before changes nothing.
        A batch, and batches that were appended together, become visible as a whole.
        """
        waiting, durable_offset = self._durable, self.durable_offset
        # A master knows what its predecessors confirmed only by its own epoch's first record.
        if not waiting or min(log_offset, durable_offset) < self._epoch_end:
            return
        if log_offset >= durable_offset:
            confirmed, self._durable = waiting, []
        else:
            count = bisect_right(waiting, log_offset, key=_END)
            while count and waiting[count - 1].is_amid_group:
                count -= 1
            if not count:
                return
            confirmed, self._durable = waiting[:count], waiting[count:]
            assert confirmed[-1].end_offset <= log_offset, "visible before it is confirmed (rule 7)"
        assert not confirmed[-1].is_amid_group, "the rest of a group is not durable"
        move(confirmed, Act.CONFIRM)
        self._publish(confirmed)

    async def probe(self) -> None:
        """Accept writes again if the shortage, of room or another resource, has ended."""
        refusal = self.refusal
        if refusal is None or isinstance(refusal, StoreFailedError | NotReadyError):
            return
        try:
            await self._projections.retry()
            await finished_in_thread(self._log.make_next)
        except (OSError, DamagedQueueError):
            return
        if self.refusal is refusal:  # unless another one has replaced it meanwhile
            self.refusal = None

    async def close(self) -> None:
        """Finish what was accepted; refuse everything from now on.

        Unconfirmed batches stay in the log, where the next start finds them.

        Raises:
            StoreFailedError: The disk failed: not everything is durable.
            OSError: A projection is incomplete.
        """
        try:
            self.write()
            while self.flushed_offset < self._log.written_offset:
                await self.flush()
            await self._projections.retry()
        finally:
            self.refusal = self.refusal or NotReadyError("the broker is stopping")
            self._flusher.shutdown()
            for appended in self._durable:
                appended.abandon(OutcomeUnknownError("the broker is stopping"))

    def _accept(
        self, batch: Batch, born_host: Host | None, done: Done | None, event: Event | None
    ) -> Appended:
        key = (batch.topic, batch.queue_id)
        queue_offset = self.next_offset(*key)
        self._begin_tick()
        log_offset, store_timestamp = self._log.end_offset, self.last_store_timestamp
        entries = batch.stamp(
            queue_offset=queue_offset,
            log_offset=log_offset,
            store_timestamp=store_timestamp,
            store_host=self._store_host,
            born_host=born_host,
        )
        appended = Appended(batch, queue_offset, log_offset, store_timestamp, entries, done, event)
        added_at = self._log.add(batch.records)
        assert added_at == log_offset, "records are stamped with another place"
        self._take(appended)
        return appended

    def _take(self, appended: Appended) -> None:
        """Record a batch, whose place is assigned, as accepted."""
        batch, event = appended.batch, appended.event
        key = (batch.topic, batch.queue_id)
        self.last_store_timestamp = max(self.last_store_timestamp, appended.store_timestamp)
        if appended.entries:
            self._before_write.setdefault(key, self._next_offsets.get(key))
            end = appended.queue_offset + batch.count
            if appended.is_foreign and appended.queue_offset:  # RocketMQ may repeat offsets
                end = max(end, self._next_offsets.get(key) or 0)
            self._next_offsets[key] = end
        if event is not None:
            self._expect(appended, event)
        self._accepted.append(appended)

    def _expect(self, appended: Appended, event: Event) -> None:
        """Record an event that will be folded once it is published."""
        self._coming.append((event, appended.log_offset))
        if isinstance(event, TopicDeleted):
            self._leaving[event.topic] += 1
            # Its successor's queues begin at offset 0, which may be before this is published.
            for gone in [key for key in self._next_offsets if key[0] == event.topic]:
                self._before_write.setdefault(gone, self._next_offsets.pop(gone))
        elif isinstance(event, StateSnapshot) and appended.is_copied:
            # Perhaps nothing else knows the ends of queues whose messages have expired.
            for end in event.queue_ends:
                if (queue := (end.topic, end.queue_id)) not in self._next_offsets:
                    self._before_write.setdefault(queue, None)
                    self._next_offsets[queue] = end.next_offset

    def _check_places(self, batches: Sequence[StoredBatch]) -> int:
        """Refuse batches whose queue offsets do not follow; a deleted topic begins at 0 again.

        RocketMQ wrote the batches before the log's first event. There a queue may begin at 0 again
        at any time, or repeat offsets; a start accepts that, too (the dispatcher). Return the
        number of these batches.
        """
        expected: dict[tuple[str, int], int] = {}
        deleted: set[str] = set()
        is_foreign = not self.next_offset(EVENTS_TOPIC, EVENTS_QUEUE_ID)
        foreign_count = 0
        for stored in batches:
            is_foreign = is_foreign and stored.event is None
            foreign_count += is_foreign
            if not stored.entries:
                if not is_foreign:
                    raise RefusedRunError(
                        f"expected a record of a queue at log offset {stored.log_offset}, found a "
                        "prepared or rolled back one"
                    )
                continue
            key = (stored.batch.topic, stored.batch.queue_id)
            if key not in expected:
                expected[key] = 0 if key[0] in deleted else self.next_offset(*key)
            # A log whose beginning is deleted has queues that begin anywhere.
            is_old = key[0] not in deleted and key[0] not in self._leaving
            is_first = not expected[key] and self._log.min_offset and is_old
            is_known = is_foreign and stored.queue_offset < expected[key]
            if stored.queue_offset != expected[key] and not is_first and not is_known:
                raise RefusedRunError(
                    f"{key[0]}/{key[1]}: expected queue offset {expected[key]} at log offset "
                    f"{stored.log_offset}, found {stored.queue_offset}"
                )
            end = stored.queue_offset + stored.batch.count
            expected[key] = max(end, expected[key]) if stored.queue_offset and is_known else end
            if isinstance(stored.event, TopicDeleted):
                topic = stored.event.topic
                deleted.add(topic)
                expected = {key: end for key, end in expected.items() if key[0] != topic}
        return foreign_count

    def _begin_tick(self) -> None:
        if not self._is_amid_tick:  # all batches of a tick share the first one's store time
            self._is_amid_tick = True
            self._loop.call_soon(self._end_tick)
            # A clock set back must not make store times go backwards within a queue.
            self.last_store_timestamp = max(self._clock.now_ms(), self.last_store_timestamp)

    def _end_tick(self) -> None:
        is_written = self._flush is None or not self._is_sync
        if is_written and self._announced:
            self._append_announced()
        self._is_amid_tick = False  # first: what is published now may append
        if is_written:
            self.write()

    def _append_announced(self) -> None:
        announced, self._announced = self._announced, []
        for append in announced:
            append()

    def _roll(self, size: int) -> None:
        """Continue in a new segment, which begins with a snapshot and has room for *size* bytes.

        If they do not fit into one segment, several are begun. Those after the snapshot's first one
        do not begin with a snapshot, so retention keeps all from there on.
        """
        self._check_size(size, "the batch")
        snapshot = self._snapshot()
        self._begin_segment()
        self._accept_snapshot(snapshot)
        if not self._log.fits(size):
            self._begin_segment()

    def _check_size(self, size: int, what: str) -> None:
        if size + BLANK_SIZE_MIN > self._log.segment_bytes:
            raise TooLargeError(
                f"{what}'s {size} bytes do not fit into a segment of the log, "
                f"{self._log.segment_bytes} bytes"
            )

    def _snapshot(self) -> Sequence[tuple[Batch, Event]]:
        """Return the snapshot for a new segment; raise TooLargeError if it does not fit."""
        parts = self._head_of_segment()
        for batch, _ in parts:
            self._check_size(batch.size, "a part of the state")
        return parts

    def _accept_snapshot(self, parts: Sequence[tuple[Batch, Event]]) -> None:
        for batch, event in parts:
            if not self._log.fits(batch.size):
                self._begin_segment()
            self._accept(batch, self._store_host, None, event)

    def _begin_segment(self) -> None:
        try:
            self._log.roll()
        except OSError as error:
            self.write()  # batches accepted so far are not affected
            self.refusal = refusal_of(error, "no room for a new segment of the log")
            raise renewed(self.refusal) from error

    def _refused(self) -> ErucaError:
        """Return why an append is refused; nothing has been done."""
        if self.refusal is None:
            return NotMasterForSureError(_FOLLOWS)
        return renewed(self.refusal)

    def _take_back(
        self, accepted: Sequence[Appended], refusal: ErucaError, act: Act = Act.WRITE_FAILED
    ) -> None:
        for key, offset in self._before_write.items():
            if offset is None:
                self._next_offsets.pop(key, None)
            else:
                self._next_offsets[key] = offset
        self._before_write.clear()
        if any(isinstance(appended.event, EpochBegan) for appended in accepted):
            self.is_replica = True  # rule 3: its term has not begun
            self._epoch_end = 0
        move(accepted, act)
        self._fail(accepted, refusal)

    def _keep(self, batches: list[Appended], act: Act) -> None:
        """Let durable batches wait for their confirmation; without replicas that is implied."""
        move(batches, act)
        durable_offset = self.durable_offset
        assert batches[-1].end_offset == durable_offset, "durable before it is as promised"
        self._durable.extend(batches)
        if batches[-1].is_copied:
            for appended in batches:
                if appended.is_copied:
                    appended.settle(appended)
        if self.on_durable is not None:
            self.on_durable(durable_offset)
        elif not self.is_replica:
            self.confirm(durable_offset)

    def _publish(self, published: list[Appended]) -> None:
        move(published, Act.PUBLISH)
        visible_offset = published[-1].end_offset
        assert visible_offset <= self.durable_offset, "visible before it is as promised"
        if len(published) == 1 and published[0].is_answered_first:
            published[0].settle(published[0])
        self._project(published, visible_offset)
        self.visible_timestamp = max(self.visible_timestamp, published[-1].store_timestamp)
        self._arrived(published)  # last: what it wakes may append, and a snapshot needs all of it
        for appended in published:
            self._conclude(appended)
            appended.settle(appended)

    def _write_log(self, accepted: Sequence[Appended]) -> None:
        """Write *accepted* into the log's files; raise OSError if the disk refuses."""
        self._log.write()

    def _project(self, published: list[Appended], visible_offset: int) -> None:
        """Feed the projections with *published*, which end at *visible_offset*; fold the events."""
        whole = [(published, visible_offset)]
        for part, end_offset in _parted(published, visible_offset) if self._leaving else whole:
            shortage = self._projections.feed(part, end_offset)
            if shortage is not None:
                self.refusal = shortage
            events = [(a.event, a.log_offset) for a in part if a.event is not None]
            for event in events:
                assert self._coming.popleft() == event, "events are folded in the log's order"
            self._fold(events)

    def _fail(self, failed: Sequence[Appended], error: ErucaError) -> None:
        lost = {appended.log_offset for appended in failed if appended.event is not None}
        self._coming = deque(coming for coming in self._coming if coming[1] not in lost)
        for appended in failed:
            self._conclude(appended)
            appended.settle(renewed(error))

    def _conclude(self, appended: Appended) -> None:
        """Drop a topic from those being deleted: its deletion is published or has failed."""
        if isinstance(appended.event, TopicDeleted):
            assert self._leaving[appended.event.topic] > 0
            self._leaving[appended.event.topic] -= 1
            self._leaving += Counter()  # drops zero counts

    def _begin_flush(self) -> asyncio.Future[None]:
        """Flush the written bytes on the flusher's thread; or return the flush in progress."""
        if self._flush is None:
            target = self._log.written_offset
            self._flush_began_at = time.monotonic()
            assert not self._flushing
            self._flushing, self._written = self._written, []
            move(self._flushing, Act.FLUSH)
            segments = self._log.segments_between(self.flushed_offset, target)
            self._flush = self._loop.run_in_executor(self._flusher, _flush_all, segments)
            self._flush.add_done_callback(partial(self._flushed, target))
        return self._flush

    def _flushed(self, target: int, flush: asyncio.Future[None]) -> None:
        self._flush = None
        if flush.cancelled():
            return
        error = flush.exception()
        if isinstance(error, OSError):
            self._flush_failed = True
            self.refusal = failed_flush(error)
            failing = self._flushing, self._written
            self._flushing, self._written = [], []
            for failed in failing:
                move(failed, Act.FLUSH_FAILED)
                self._fail(failed, self.refusal)
            self.write()  # … refuses batches accepted meanwhile
            return
        if error is not None:
            raise error
        assert self.flushed_offset <= target <= self._log.written_offset
        self.flushed_offset = target
        flushed, self._flushing = self._flushing, []
        if flushed:
            self._keep(flushed, Act.FLUSHED)
        self.write()
        if self._written:
            self._begin_flush()


def _bind(group: Sequence[Appended]) -> None:
    """Let batches that were appended together be published together."""
    for appended in group[:-1]:
        appended.is_amid_group = True


def _parted(
    published: Sequence[Appended], end_offset: int
) -> Iterator[tuple[Sequence[Appended], int]]:
    """Split *published*, which end at *end_offset*, after each deletion of a topic.

    A deletion must take effect before later records are dispatched. A run may contain records of a
    topic that was created again.

    Yields:
        The batches of a part, and the log offset of its end.
    """
    first = 0
    for number, appended in enumerate(published[:-1], start=1):
        if isinstance(appended.event, TopicDeleted):
            yield published[first:number], published[number].log_offset
            first = number
    yield published[first:], end_offset


def _flush_all(segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.flush()
