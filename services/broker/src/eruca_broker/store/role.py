"""The role of a store: it copies a master's log, or it writes the log of its broker group.

A broker group has one log. Its master appends to it, and every other replica copies it byte for
byte (:mod:`eruca_broker.core.log.copied_run`). A store changes its role in place, without being
closed::

    replica   begin_at, copy   lead ↓
    master    append           follow ↑

In both roles :meth:`StoreRole.confirm` publishes what every member in sync holds. The store of a
broker without replicas is a master that confirms by itself. Source of the rules by number: the
broker's DESIGN.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from eruca.contract.errors import NotMasterForSureError, UnavailableError
from eruca_broker.core.log.copied_run import RefusedRunError, prove_run
from eruca_broker.core.replication.epochs import EpochTable
from eruca_broker.core.state.events import EpochBegan, StateSnapshot
from eruca_broker.core.state.state import BrokerState
from eruca_broker.store.files.refusals import refusal_of, renewed
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.state.state_snapshots import StateSnapshots
from eruca_broker.store.writing.control_records import ControlRecords
from eruca_broker.store.writing.writer import Writer
from eruca_chassis.finishing import finished


class StoreRole:
    """The role of one open store.

    Args:
        log: The files.
        writer: Appends to them, in either role.
        dispatcher: Learns where a replica's log begins.
        snapshots: Know which part of the log a snapshot covers.
        state: The epochs of the visible log, and its id.
        control: Encodes the beginning of an epoch.
    """

    def __init__(
        self,
        *,
        log: CommitLog,
        writer: Writer,
        dispatcher: Dispatcher,
        snapshots: StateSnapshots,
        state: BrokerState,
        control: ControlRecords,
    ) -> None:
        self._log = log
        self._writer = writer
        self._dispatcher = dispatcher
        self._snapshots = snapshots
        self._state = state
        self._control = control
        self._copying = asyncio.Lock()

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
                segment_bytes=self._log.segment_bytes,
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
            refusal = refusal_of(error, "no room for the first segment of the log")
            self._writer.refusal = refusal
            raise renewed(refusal) from error
        self._writer.begin_at(log_offset)
        self._dispatcher.end_start(log_offset)

    @property
    def is_replica(self) -> bool:
        """True if this store appends only runs of a master's log, and nothing of its own."""
        return self._writer.is_replica

    def doubt(self) -> UnavailableError | None:
        """Return why this store may lack messages that another has; None: it does not."""
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
        batch = self._control.batch(event)
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

    def epochs(self) -> EpochTable:
        """Return the epochs of the whole log, those that are not visible yet included.

        A replica compares them with its master's, and nothing may begin an epoch again.
        """
        epochs = self._state.log_epochs
        coming = [e for e, _ in self._writer.unpublished_events() if isinstance(e, EpochBegan)]
        if coming:
            epochs = epochs.copy()
            for event in coming:
                epochs.apply(event)
        return epochs.table

    def _log_id(self) -> str:
        """Return the log's id, also if it is not visible yet; empty: the log has none."""
        coming = [event for event, _ in self._writer.unpublished_events()]
        ids = (event.log_id for event in reversed(coming) if isinstance(event, StateSnapshot))
        return next(ids, self._state.log_id)

    def _begins_with_snapshot(self) -> bool:
        """Tell whether the last segment of the log contains a whole snapshot, visible or not."""
        if not self._log.segments or not self._log_id():
            return False
        latest = self._snapshots.latest_with(self._writer.unpublished_events())
        return latest >= self._log.segments[-1].base_offset
