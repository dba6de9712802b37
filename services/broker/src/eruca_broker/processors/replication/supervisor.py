"""The supervisor: the life of a replica, one role after another (``core/replication/roles.py``).

::

              follow, or be the only one            lead(EpochBegan)          serve, keep the set
    standby ─────────────────────────────► term won ────────────────► master ─────────────────────┐
       ▲                                                                                          │
       └──── the log is truncated, if need be, and follows the next master ◄──── demoted ◄────────┘

One task runs the roles. Another one keeps the arbiter's row up to date, by a request that is held
until the row changes. The parts that answer requests are composed again for each role, by the
*stage*.

The supervisor decides nothing that could be decided without it: see ``core/replication``. It
carries out, with these orders, each of which matters:

- A replica stops its follower before it asks for a term: while its request may be on its way, it
  must not promise anything to the master (rule 10).
- A master waits for a newcomer before it asks the arbiter to name it, and for a member that leaves
  until the arbiter has answered (rule 6).
- A master that hands over closes its door, waits for its successor to have everything, becomes a
  replica, and only then names the successor. So no append is in doubt.
- A demoted master's door is shut before its appends are given up.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

import structlog

from eruca.contract.broker_groups import GroupFlushMode, Replica
from eruca.contract.errors import (
    ConflictError,
    ErucaError,
    NotMasterForSureError,
    NotReadyError,
    StaleEpochError,
    StoreFailedError,
)
from eruca.services.http import HttpTransport
from eruca_broker.core.replication.broker_group import BrokerGroup, Member, founded
from eruca_broker.core.replication.master_lease import Promise
from eruca_broker.core.replication.roles import (
    ROLE,
    Course,
    Outcome,
    Role,
    Standing,
    Turn,
    bar_of,
    course,
    founding_delay,
    have_all_lost_places,
    rank_of,
    recovery_wait,
    succession_of,
    term_of,
    unclean_master,
)
from eruca_broker.core.state.events import EpochBegan
from eruca_broker.processors.replication.arbiter import (
    Arbiter,
    GroupRow,
    KnownRow,
    StaleVersionError,
    UnansweredError,
)
from eruca_broker.processors.replication.door import RETRY_SECONDS, RoleDoor
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.followed_master import FollowedMaster
from eruca_broker.processors.replication.peers import DEFAULT_NETWORK, Peers
from eruca_broker.processors.replication.repair import Repair
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.replication.term import Term
from eruca_broker.processors.replication.watched_row import WatchedRow
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop

WATCH_SECONDS: Final = 20.0  # for which the arbiter may hold the request for the row
TURN_SECONDS: Final = 0.25  # between two looks at clocks: silence, lease, promise
RETRY_PAUSE_SECONDS: Final = 0.2  # before the arbiter is asked again
PAUSED_SECONDS: Final = 2.0  # a longer gap between two looks: this process was stopped
HAND_OVER_SECONDS: Final = 2.0  # for the successor to have everything
SUCCESSOR_SECONDS: Final = 5.0  # for the successor to lead, before this process ends
SUCCESSOR_PAUSE_SECONDS: Final = 0.05
ALIVE_SECONDS: Final = 2.0  # since its last fetch, for a replica that is to take over

_T = TypeVar("_T")

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """The constant facts about this replica."""

    urls: dict[str, str]  # by network
    store_host: str  # IP:port, as in its records
    priority: int
    min_in_sync: int
    flush_mode: GroupFlushMode
    recovery_wait_seconds: float


class Stage(Protocol):
    """The broker around its role."""

    async def open_store(self, cut_to: int | None) -> MessageStore:
        """Open the store as a replica's; first truncate its log at *cut_to*, if given."""
        ...

    def working(
        self, store: MessageStore, replication: Replication, *, is_master: bool
    ) -> AbstractAsyncContextManager[None]:
        """Answer requests by parts for the role, and run its loops, for the block."""
        ...

    def place_changed(self) -> None:
        """Inform the name servers of the broker's new place in its group."""
        ...


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
        self._shown = 0  # log offset before which this process knows everything to be confirmed
        self._won: int | None = None  # epoch of the term that was won last, and has not ended
        self._term: Term | None = None  # that this replica leads
        self._lost_since: float | None = None  # all members have lost their places
        self._begun_at = clock.boottime()
        self._following: FollowedMaster | None = None
        self._news = asyncio.Event()
        self._handing_over = asyncio.Lock()
        self._is_departing = False  # the process is about to end
        self._refused: str | None = None  # the reason that was logged last
        self._asked_for: tuple[str | None, str] | None = None  # … and the term
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
        return Repair(store, replication, self._member_urls, self._transport)

    def _member_urls(self) -> list[str]:
        row = self._row
        others = () if row is None else sorted(row.group.in_sync - {self.member})
        urls = [row.row.urls_of(member).get(DEFAULT_NETWORK) for member in others if row]
        return [url for url in urls if url is not None]

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
                    await self._led_by(await self.hand_over(is_leaving=True))
            elif self.is_in_sync and self._following is not None and self._following.is_heard:
                await self._leave()
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
            term = self._term
            if self.role is not Role.MASTER or term is None:
                raise self._door.not_master()
            successor = term.successor(to)
            self._door.is_leaving = term.is_handing_over = True
            try:
                async with asyncio.timeout(HAND_OVER_SECONDS):
                    await term.bring_level(successor)
            except BaseException as error:
                self._door.is_leaving = term.is_handing_over = False
                if isinstance(error, TimeoutError | UnansweredError):
                    raise NotMasterForSureError(
                        f"replica {successor} did not have everything, or no controller answered, "
                        f"within {HAND_OVER_SECONDS:g} s; this one remains the master",
                        retry_after_seconds=RETRY_SECONDS,
                    ) from error
                if isinstance(error, StaleEpochError):
                    raise ConflictError("another replica became master meanwhile") from error
                raise
            # Everything is confirmed, so no append is in doubt. Nothing more is appended.
            self.store.follow()
            turn = Turn.SUPERSEDED
            try:
                if await term.appoint(successor, is_leaving=is_leaving) is Outcome.WON:
                    turn = Turn.HANDED_OVER
            finally:
                self._step_down(term, turn)  # whatever happened, it appends no more in this term
            if turn is not Turn.HANDED_OVER:
                raise ConflictError("the broker group has changed meanwhile; ask again")
            assert self._row is not None
            return self._row

    # --- The row ----------------------------------------------------------------------------------

    def _row_changed(self, before: KnownRow | None, now: KnownRow | None) -> None:
        was_in_sync = before is not None and self.member in before.group.in_sync
        if was_in_sync != self.is_in_sync or (before and now and before.group != now.group):
            self._stage.place_changed()
        self._news.set()

    def _listed(self) -> Replica:
        """Return this replica's entry of the row."""
        member, facts = self.member, self._facts
        return Replica(
            replica_id=member.replica_id,
            uid=member.uid,
            urls=facts.urls,
            priority=facts.priority,
        )

    def _asked(self, group: BrokerGroup) -> GroupRow:
        """Return the row in which this replica leads *group*."""
        known = GroupRow(group) if self._row is None else self._row.row
        facts = self._facts
        return replace(
            known, group=group, min_in_sync=facts.min_in_sync, flush_mode=facts.flush_mode
        ).with_replica(self._listed())

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
        # It could not fetch meanwhile, which says nothing about the master.
        self._promise = Promise(self._clock.boottime())
        self._recovered_end = store.log_max_offset
        self._door.shows_confirmed = False
        replication, identity = Replication(store, self._clock), store.identity
        assert identity is not None, "a replica's store has an identity"
        replication.member = self._member = identity.member
        replication.former_uid = identity.former_uid
        replication.priority = self._facts.priority
        self._replication = replication
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
        self._aim()
        self._door.behind_seconds = following.behind_seconds
        following.note()
        if following.is_proved and following.confirmed >= self._recovered_end:
            self._door.shows_confirmed = True  # all that the start has dispatched is confirmed
        if self._is_departing:
            await following.stop()
        if self._is_departing or not self._watched.is_read:
            return
        row, me = self._row, self._standing(following)
        group = None if row is None else row.group
        match course(group, me, self._won):
            case Course.REFUSE:
                await following.stop()
                self._refuse(
                    "the arbiter's row is older than this log's last epoch: it has lost changes; "
                    "raise it: eruca broker repair-arbiter"
                )
            case Course.FOUND:
                delay = founding_delay(me, is_empty=not me.end)
                if self._clock.boottime() - self._begun_at >= delay:
                    asked = self._asked(founded(me.member))
                    await self._propose(following, None, asked, "the first store of its name")
            case Course.LEAD:
                self._move(Turn.TERM_WON)
            case Course.TAKE_TERM:
                assert row is not None
                has_failed = isinstance(self.store.refusal, StoreFailedError)
                if has_failed and len(row.group.in_sync) > 1:
                    return  # another member takes over
                reason = "it is the master, and has started again, or was appointed"
                await self._propose(
                    following, row.version, self._asked(term_of(row.group, me)), reason
                )
            case Course.FOLLOW:
                assert row is not None
                await following.follow(row)
                await self._enlist(row)
                await self._elect(following, row)

    def _refuse(self, reason: str) -> None:
        if reason != self._refused:
            logger.error("this replica follows nobody", reason=reason)
        self._refused = reason

    def _standing(self, following: FollowedMaster) -> Standing:
        store, replication = self.store, self._replication
        assert replication is not None
        assert store.identity is not None
        return Standing(
            self.member,
            store.epochs().last,
            store.log_max_offset,
            store.identity.former_uids,
            self._facts.priority,
            following.skew_seconds,
            replication.is_damaged,
        )

    async def _enlist(self, row: KnownRow) -> None:
        """Enter this replica, and its URLs, into the row."""
        mine = self._listed()
        if mine in row.row.replicas:
            return
        try:
            await self._watched.swap(
                row.version, row.row.with_replica(mine), f"replica {self.member} is there"
            )
        except (StaleVersionError, UnansweredError):
            return  # the next turn has another row, or tries again

    async def _elect(self, following: FollowedMaster, row: KnownRow) -> None:
        """Propose this replica if the master is silent and nobody should go first."""
        if self.store.refusal is not None:
            return  # its disk is full, or has failed: as a master it would be of no use
        boottime, me = self._clock.boottime, self._standing(following)
        others = [r for r in row.row.replicas if r.replica_id != me.member.replica_id]
        ids = {replica.replica_id for replica in row.row.replicas}
        is_sure = recovery_wait(ids, me, self._facts.recovery_wait_seconds) == 0
        if boottime() < self._promise.propose_at(0) and not is_sure:
            return
        bar = bar_of(row.group, me)
        standings = await self._peers.standings(others)
        if have_all_lost_places(row.group, [me, *standings]):
            await self._recover(following, row, me, [me, *standings], at_once=is_sure)
            return
        self._lost_since = None
        if bar is not None or boottime() < self._promise.propose_at(
            rank_of(row.group, me, standings)
        ):
            return
        try:
            latest = await self._watched.read()
        except UnansweredError:
            return
        if latest is None or latest.version != row.version:
            return
        reason = f"master {row.group.master} is silent"
        asked = self._asked(succession_of(row.group, me))
        await self._propose(following, row.version, asked, reason)

    async def _recover(
        self,
        following: FollowedMaster,
        row: KnownRow,
        me: Standing,
        standings: list[Standing],
        *,
        at_once: bool,
    ) -> None:
        """Take an unclean term if every member may have lost records, and this one fewest."""
        now = self._clock.boottime()
        if self._lost_since is None:
            self._lost_since = now
            logger.warning("every replica in sync may have lost messages", in_sync=len(standings))
        wait = 0.0 if at_once else self._facts.recovery_wait_seconds
        if now - self._lost_since >= wait and unclean_master(standings) == me.member:
            asked = self._asked(row.group.forced(me.member))
            reason = "every replica in sync may have lost messages; this one has the longest log"
            await self._propose(following, row.version, asked, reason)

    async def _propose(
        self, following: FollowedMaster, expected: str | None, asked: GroupRow, reason: str
    ) -> None:
        """Ask the arbiter for a term."""
        # It must promise nothing while the request may be on its way (rule 10).
        await following.stop()
        if (expected, reason) != self._asked_for:  # not again while no controller answers
            logger.info("term asked for", epoch=asked.group.epoch, reason=reason)
        self._asked_for = (expected, reason)
        outcome = await self._watched.settle_term(expected, asked, reason)
        if outcome is Outcome.WON:
            self._won = asked.group.epoch
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
        began = store.lead(
            EpochBegan(
                group.epoch,
                me.replica_id,
                me.uid,
                self._facts.store_host,
                self._clock.now_ms(),
                unclean=group.is_unclean,
            )
        )
        feed = Feed(store, epoch=group.epoch, master=me, known=group.in_sync, clock=self._clock)
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
        self._promise = Promise(self._clock.boottime())
        feed.close()
        self.store.follow()

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

    async def _led_by(self, row: KnownRow) -> None:
        """Wait until the master that *row* names leads, so that redirected requests succeed."""
        url = row.row.urls_of(row.group.master).get(DEFAULT_NETWORK)
        if url is None:
            return
        until = self._clock.monotonic() + SUCCESSOR_SECONDS
        while self._clock.monotonic() < until:
            status = await self._peers.status(url)
            if status is not None and status.role == "master":
                return
            await asyncio.sleep(SUCCESSOR_PAUSE_SECONDS)

    async def _leave(self) -> None:
        """Leave the in-sync set, so that the master need not wait for this replica's silence."""
        row, following = self._row, self._following
        assert row is not None
        if following is not None:
            await following.stop()
        group = replace(row.group, in_sync=row.group.in_sync - {self.member})
        try:
            await self._watched.swap(
                row.version, replace(row.row, group=group), f"replica {self.member} stops"
            )
        except (StaleVersionError, UnansweredError) as error:
            logger.info("not removed from the in-sync set", reason=str(error))

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
