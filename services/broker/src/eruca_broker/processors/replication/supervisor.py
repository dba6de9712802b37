"""The supervisor: the life of a replica, one role after another (``core/replication/roles.py``).

::

              follow, or be the only one            lead(EpochBegan)          serve, keep the set
    standby ─────────────────────────────► term won ────────────────► master ─────────────────────┐
       ▲                                                                                          │
       └──── the log is truncated, if need be, and follows the next master ◄──── demoted ◄────────┘

One task runs the roles. Another one keeps the arbiter's row up to date, by a request that is held
until the row changes. The parts that answer requests are composed again for each role, by the
*stage*.

The supervisor decides nothing that could be decided without it: see ``core/replication``. A demoted
master's door is shut before its appends are given up. The other orders that matter are in the parts
of a role: :mod:`.candidacy` of a standby, :mod:`.term` of a master, and :mod:`.handing_over`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from eruca.contract.errors import ErucaError, NotReadyError
from eruca.services.http import HttpTransport
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.master_lease import Promise
from eruca_broker.core.replication.roles import ROLE, Role, Turn
from eruca_broker.core.state.events import EpochBegan
from eruca_broker.processors.replication.arbiter import Arbiter, KnownRow
from eruca_broker.processors.replication.candidacy import Candidacy, ReplicaFacts
from eruca_broker.processors.replication.door import RoleDoor
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.followed_master import FollowedMaster
from eruca_broker.processors.replication.handing_over import HandOver
from eruca_broker.processors.replication.peers import DEFAULT_NETWORK, Peers
from eruca_broker.processors.replication.repair import Repair
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.replication.stage import Stage
from eruca_broker.processors.replication.term import Term
from eruca_broker.processors.replication.watched_row import WatchedRow
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop

TURN_SECONDS: Final = 0.25  # between two looks at clocks: silence, lease, promise

_T = TypeVar("_T")

logger = structlog.get_logger(__name__)


class Supervisor:
    """Runs the roles of one replica.

    Args:
        stage: The broker around it.
        arbiter: Of the group's row.
        door: It refuses requests by the role, which is kept up to date.
        facts: About this replica.
        transport: For requests to other replicas; the owner closes it.
        clock: Its boottime is for promises.
    """

    def __init__(
        self,
        stage: Stage,
        arbiter: Arbiter,
        door: RoleDoor,
        *,
        facts: ReplicaFacts,
        transport: HttpTransport,
        clock: Clock,
    ) -> None:
        self.role = Role.STANDBY
        self.has_begun = asyncio.Event()  # the first role answers requests
        self._stage = stage
        self._watched = WatchedRow(arbiter, self._row_changed)
        self._door = door
        self._facts = facts
        self._transport = transport
        self._peers = Peers(transport)
        self._clock = clock
        self._promise = Promise(clock.boottime())
        self._store: MessageStore | None = None
        self._member: Member | None = None
        self._replication: Replication | None = None
        self._cut_to: int | None = None
        self._recovered_end = 0  # records before it were shown, confirmed or not, by the start
        self._known_confirmed: int | None = None  # the master had confirmed at the first proof
        self._shown = 0  # log offset before which this process knows everything to be confirmed
        self._known_epoch = 0  # the latest of the row, as a standby
        self._won: int | None = None  # epoch of the term that was won last, and has not ended
        self._term: Term | None = None  # that this replica leads
        self._begun_at = clock.boottime()
        self._following: FollowedMaster | None = None
        self._candidacy: Candidacy | None = None  # of the last standby
        self._news = asyncio.Event()
        self._handing_over = asyncio.Lock()
        self._hand_over = HandOver(self._watched, door, self._peers, clock)
        self._is_departing = False  # the process is about to end
        self._loop = BackgroundLoop("role", self._live, period_seconds=0)

    # --- For the broker ---------------------------------------------------------------------------

    @property
    def store(self) -> MessageStore:
        """The open store."""
        assert self._store is not None, "the store is open in every role"
        return self._store

    @property
    def _row(self) -> KnownRow | None:
        return self._watched.known

    @property
    def member(self) -> Member:
        """This store, as the group names it; also while it is opened again."""
        assert self._member is not None, "the store was opened"
        return self._member

    @property
    def epoch(self) -> int:
        """The epoch of the known row; 0 without one."""
        return 0 if self._row is None else self._row.group.epoch

    @property
    def is_in_sync(self) -> bool:
        """True if the row's in-sync set has this store."""
        return self._row is not None and self.member in self._row.group.in_sync

    def repair_of(self, store: MessageStore, replication: Replication) -> Repair:
        """Return the repair of *store*'s damaged records by other members' copies."""
        return Repair(store.upkeep, replication, self._member_urls, self._transport)

    def _member_urls(self) -> list[str]:
        row = self._row
        others = () if row is None else sorted(row.group.in_sync - {self.member})
        urls = [row.row.urls_of(member).get(DEFAULT_NETWORK) for member in others if row]
        return [url for url in urls if url is not None]

    def doubt(self) -> ErucaError | None:
        """Return why this replica cannot say that something does not exist; None: it can."""
        return self._door.doubt()

    def incapacity(self) -> ErucaError | None:
        """Return why this replica neither leads nor follows; None if it does."""
        if self.role is Role.MASTER:
            return None
        follower = None if self._replication is None else self._replication.follower
        if follower is not None and follower.reason is None:
            return None
        reason = "it knows no master" if follower is None else follower.reason
        return NotReadyError(f"this replica follows no master: {reason}")

    async def open(self) -> None:
        """Open the store; raises as the stage does."""
        await self._open()

    def start(self) -> None:
        """Begin the first role."""
        self._watched.start()
        self._loop.start()

    async def stop(self) -> None:
        """End the present role, and close the store."""
        await self._watched.stop()
        self._news.set()
        await self._loop.stop()
        if self._store is not None:
            await self._store.close()

    async def farewell(self) -> None:
        """Hand over before a stop; return once the successor leads, or if there is none.

        From then on it follows nobody: as soon as it had caught up it would be in sync again, and
        the others would have to wait until they notice that it is gone.
        """
        self._is_departing = True
        try:
            if self.role is Role.MASTER:
                if self._row is None or len(self._row.group.in_sync) > 1:
                    await self._hand_over.led_by(await self.hand_over(is_leaving=True))
            elif self.is_in_sync and self._following is not None and self._following.is_heard:
                await self._hand_over.leave(self.member, self._following)
        except ErucaError as error:
            logger.warning("not handed over", reason=str(error))

    async def hand_over(self, to: int | None = None, *, is_leaving: bool = False) -> KnownRow:
        """Let another replica become master; return the row that names it.

        Args:
            to: Its id; None: the one that has acknowledged most.
            is_leaving: Whether this replica is stopping, and leaves the in-sync set at once.

        Raises:
            ConflictError: There is no such replica in sync, or another one became master.
            UnavailableError: This replica is not the master, or the other one did not follow fast
                enough: this one remains the master.
        """
        async with self._handing_over:
            if self.role is not Role.MASTER or self._term is None:
                raise self._door.not_master()
            return await self._hand_over.to(
                to,
                term=self._term,
                store=self.store,
                is_leaving=is_leaving,
                step_down=partial(self._step_down, self._term),
            )

    # --- The row ----------------------------------------------------------------------------------

    def _row_changed(self, before: KnownRow | None, now: KnownRow | None) -> None:
        was_in_sync = before is not None and self.member in before.group.in_sync
        if was_in_sync != self.is_in_sync or (before and now and before.group != now.group):
            self._stage.place_changed()
        self._remember_row()
        self._news.set()

    def _remember_row(self) -> None:
        """Remember the latest row, durably, before anything is done by it (rule 13)."""
        latest, store = self._watched.latest_change, self._store
        if store is None or self._replication is None:
            return  # the store is being opened
        self._replication.known = latest
        if latest > self._watched.remembered:
            try:
                self._stage.remember_row(latest)
            except OSError as error:
                logger.error("the broker group's row is not remembered", reason=str(error))
                return
            self._watched.remembered = latest

    # --- Roles ------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Run one role to its end."""
        if self._watched.stopping.is_set():
            return
        if self._store is None:
            await self._open()
        if self.role is Role.DEMOTED:
            self._move(Turn.TERM_ENDED)  # its end has failed half-way
        if self.role is Role.TAKING_OVER:
            await self._lead()
        else:
            await self._stand_by()

    async def _open(self) -> None:
        """Open the store; truncate its log if the master said so."""
        self._door.is_closed = True
        store = await self._stage.open_store(self._cut_to)
        self._store, self._cut_to = store, None
        store.doubt = self._door.doubt_of_reading
        # It could not fetch meanwhile, which says nothing about the master.
        self._promise = Promise(self._clock.boottime())
        self._recovered_end = store.log_max_offset
        self._known_confirmed = None
        self._door.shows_confirmed = False
        replication, identity = Replication(store, self._clock), store.identity
        assert identity is not None, "a replica's store has an identity"
        replication.member = self._member = identity.member
        replication.former_uids = identity.former_uids
        replication.priority = self._facts.priority
        replication.keep_bytes = self._facts.keep_bytes
        self._replication = replication
        self._watched.remembered = max(self._watched.remembered, identity.known)
        self._remember_row()
        self._door.confirmed = lambda: store.visible_offset

    def _move(self, turn: Turn) -> None:
        """Change the role."""
        self.role = ROLE.step(self.role, turn)
        self._door.role = self.role
        assert self._replication is not None
        self._replication.role = self.role.value
        logger.info("role", role=self.role.value, turn=turn.value, epoch=self.epoch)
        self._aim()

    def _aim(self) -> None:
        """Let the door name the present master, and the set."""
        row, door = self._row, self._door
        assert self._replication is not None
        if row is None:
            door.master_urls, door.master_epoch = {}, 0
            return
        group = row.group
        self._replication.in_sync = group.in_sync
        self._replication.listed = frozenset(
            Member(replica.replica_id, replica.uid) for replica in row.row.replicas
        )
        door.min_in_sync = row.row.min_in_sync
        is_silent = self.role is Role.STANDBY and self._clock.boottime() > self._promise.until
        is_known = group.master != self.member and not is_silent
        door.master_urls = row.row.urls_of(group.master) if is_known else {}
        door.master_epoch = group.epoch

    async def _stand_by(self) -> None:
        """Follow the master until this replica wins a term, or its log must be truncated."""
        store, replication = self.store, self._replication
        assert replication is not None
        replication.role, replication.feed = self.role.value, None
        async with self._stage.working(store, replication, is_master=False):
            self._aim()
            self._door.is_closed = False
            self._stage.place_changed()
            self.has_begun.set()
            self._following = following = FollowedMaster(
                store,
                member=self.member,
                replication=replication,
                transport=self._transport,
                promise=self._promise,
                clock=self._clock,
                shown_offset=self._shown,
                on_end=self._news.set,
            )
            self._candidacy = Candidacy(
                store,
                member=self.member,
                replication=replication,
                watched=self._watched,
                peers=self._peers,
                promise=self._promise,
                facts=self._facts,
                begun_at=self._begun_at,
                clock=self._clock,
            )
            try:
                while self.role is Role.STANDBY and not self._watched.stopping.is_set():
                    self._news.clear()
                    await self._standby_turn(following)
                    if (cut_to := following.cut_to) is not None:
                        self._cut_to = cut_to
                        break
                    if self.role is Role.STANDBY:
                        await self._wait_for_news()
            finally:
                await following.stop()
                self._shown = max(self._shown, following.confirmed)
                if self._cut_to is not None:  # after an unclean election it may be less
                    self._shown = min(self._shown, self._cut_to)
                self._following = None
                # Before other parts find the store closed.
                self._door.is_closed = self._cut_to is not None
        if self._cut_to is not None:
            self._store = None
            await store.close()

    async def _standby_turn(self, following: FollowedMaster) -> None:
        """Do what the row demands now."""
        if self._row is not None and self._row.group.epoch > self._known_epoch:
            self._known_epoch = self._row.group.epoch
            self._promise.new_master(self._clock.boottime())
        self._aim()
        self._door.behind_seconds = following.behind_seconds
        following.note()
        if following.is_proved and not self._door.shows_confirmed:
            if self._known_confirmed is None:
                self._known_confirmed = following.confirmed
            self._door.shows_confirmed = (
                # All that the start has dispatched is confirmed …
                following.confirmed >= self._recovered_end
                # … and all that was confirmed when it began to follow is shown.
                and self.store.visible_offset >= self._known_confirmed
            )
        if self._is_departing:
            await following.stop()
        if self._is_departing or not self._watched.is_read:
            return
        assert self._candidacy is not None
        won = await self._candidacy.turn(following, won=self._won)
        if won is not None:
            self._won = won
            self._move(Turn.TERM_WON)

    async def _lead(self) -> None:
        """Lead the term that was won, to its end."""
        store, replication, row = self.store, self._replication, self._row
        assert replication is not None
        assert row is not None
        group, me = row.group, self.member
        if self._won != group.epoch:  # the term has ended before it began
            self._won = None
            self._move(Turn.SUPERSEDED)
            self._move(Turn.TERM_ENDED)
            return
        try:
            began = store.role.lead(
                EpochBegan(
                    group.epoch,
                    me.replica_id,
                    me.uid,
                    self._facts.store_host,
                    self._clock.now_ms(),
                    unclean=group.is_unclean,
                )
            )
        except ErucaError as error:  # nothing has been appended, so the term has not begun
            logger.error("the term cannot begin", epoch=group.epoch, reason=str(error))
            self._won = None
            self._move(Turn.DISK_FAILED)
            self._move(Turn.TERM_ENDED)
            await self._watched.pause()
            return
        feed = Feed(
            store,
            epoch=group.epoch,
            master=me,
            known=group.in_sync,
            clock=self._clock,
            shown_offset=self._shown,
        )
        replication.feed, replication.follower = feed, None
        self._term = term = Term(store, feed, self._watched, self._clock)
        self._door.lease_until = lambda: feed.lease_until
        self._door.in_sync_count = lambda: len(feed.copies.known)
        governing = asyncio.create_task(self._govern(term), name="govern")
        try:
            either: list[asyncio.Future[Any]] = [began, governing]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not governing.done() and not self._watched.stopping.is_set():
                began.result()  # raises if the record could not be written
                term.is_confirmed = True
                self._door.is_leaving, self._door.shows_confirmed = False, True
                self._move(Turn.EPOCH_CONFIRMED)
                async with self._stage.working(store, replication, is_master=True):
                    self._stage.place_changed()
                    self.has_begun.set()
                    await asyncio.wait({governing})
                    self._end(governing, feed)
        finally:
            await self._cancelled(governing)
            self._end(governing, feed)
            await term.end()
            feed.close()
            replication.feed = self._term = None
            self._won = None
            if self.role is Role.DEMOTED:
                self._move(Turn.TERM_ENDED)
        governing.result()  # raises what it did not expect

    def _end(self, governing: asyncio.Task[Turn], feed: Feed) -> None:
        """Step down, unless that is done or the process ends."""
        if self.role not in (Role.MASTER, Role.TAKING_OVER) or self._watched.stopping.is_set():
            return
        turn = Turn.SUPERSEDED
        if governing.done() and not governing.cancelled() and governing.exception() is None:
            turn = governing.result()
        # A term that never began confirms nothing. But a start dispatches unconfirmed records, too.
        if self.role is Role.MASTER:
            self._shown = max(self._shown, self.store.confirmed_offset)
        self._move(turn)  # the door shuts before anything is given up
        assert self._door.role is not Role.MASTER, "rule 12: a demoted master answers nothing"
        self._promise = Promise(self._clock.boottime())
        feed.close()
        self.store.role.follow()

    async def _govern(self, term: Term) -> Turn:
        """Keep the term's in-sync set; return what ends the term."""
        while True:
            self._news.clear()
            if self._watched.stopping.is_set():
                return Turn.SUPERSEDED  # as far as this process knows, it is
            if (turn := term.look()) is not None:
                return turn
            self._aim()
            await self._wait_for_news()

    # --- Handing over -----------------------------------------------------------------------------

    def _step_down(self, term: Term, turn: Turn) -> None:
        """Let the term end by a hand-over."""
        term.turn = turn
        # At once: a held request of the term is answered with the way to the new master.
        self._door.role = Role.DEMOTED
        row = self._row
        if row is not None and row.group.master != self.member:
            self._door.master_urls = row.row.urls_of(row.group.master)
            self._door.master_epoch = row.group.epoch
        self._news.set()

    # --- Waiting ----------------------------------------------------------------------------------

    async def _wait_for_news(self) -> None:
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._news.wait()
        except TimeoutError:
            pass  # clocks are looked at all the same

    async def _cancelled(self, task: asyncio.Task[_T] | None) -> None:
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
