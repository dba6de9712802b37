"""A standby's candidacy: by the arbiter's row it follows a master, or asks for a term itself.

It decides nothing that could be decided without it: see ``core/replication/roles.py``. It carries
out, with these orders, each of which matters:

- A replica stops its follower before it asks for a term: while its request may be on its way, it
  must not promise anything to the master (rule 10).
- It asks the others what they know before it takes a term, and before it repeats a request for one
  (rule 13).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import structlog

from eruca.contract.broker_groups import GroupFlushMode, Replica
from eruca_broker.core.replication.appointments import is_released
from eruca_broker.core.replication.broker_group import BrokerGroup, Member, founded
from eruca_broker.core.replication.master_lease import Promise
from eruca_broker.core.replication.roles import (
    Course,
    Outcome,
    Standing,
    bar_of,
    course,
    founding_delay,
    have_all_lost_places,
    is_behind,
    rank_of,
    recovery_wait,
    succession_of,
    term_of,
    unclean_master,
)
from eruca_broker.processors.replication.arbiter import (
    GroupRow,
    KnownRow,
    StaleVersionError,
    UnansweredError,
)
from eruca_broker.processors.replication.followed_master import FollowedMaster
from eruca_broker.processors.replication.peers import Peers
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.replication.watched_row import WatchedRow
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """The constant facts about this replica."""

    urls: dict[str, str]  # by network
    store_host: str  # IP:port, as in its records
    priority: int
    keep_bytes: int  # of the log, that retention keeps for replicas that need them
    min_in_sync: int
    flush_mode: GroupFlushMode
    recovery_wait_seconds: float


_ARBITER_BEHIND: Final = (
    "the arbiter's row is older than the last epoch of a replica's log, or than a row that a "
    "replica knows: the arbiter has lost changes; raise the row: eruca broker repair-arbiter"
)

logger = structlog.get_logger(__name__)


class Candidacy:
    """The decisions of one open store while it is a standby.

    Args:
        store: The replica's store.
        member: It, as the group names it.
        replication: Knows whether its log has damage.
        watched: The arbiter's row.
        peers: The other replicas.
        promise: Of this process, not to propose itself.
        facts: About this replica.
        begun_at: Boottime of the process's start.
        clock: Its boottime is for promises.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        member: Member,
        replication: Replication,
        watched: WatchedRow,
        peers: Peers,
        promise: Promise,
        facts: ReplicaFacts,
        begun_at: float,
        clock: Clock,
    ) -> None:
        self.refused: str | None = None  # why the row was refused last
        self.lost_since: float | None = None  # all members have lost their places
        self._store = store
        self._member = member
        self._replication = replication
        self._watched = watched
        self._peers = peers
        self._promise = promise
        self._facts = facts
        self._begun_at = begun_at
        self._clock = clock
        self._asked_for: tuple[str | None, str] | None = None  # version and reason

    async def turn(self, following: FollowedMaster, *, won: int | None) -> int | None:
        """Do what the row demands now; return the epoch of a term that this replica has won.

        Args:
            following: The master that it follows.
            won: The epoch of the term that this process has won last, and that has not ended.
        """
        row, me = self._watched.known, self._standing(following)
        group = None if row is None else row.group
        match course(group, me, won):
            case Course.REFUSE:
                await following.stop()
                self._refuse(_ARBITER_BEHIND)
            case Course.FOUND:
                delay = founding_delay(me, is_empty=not me.end)
                if self._clock.boottime() - self._begun_at >= delay:
                    asked = self._asked(founded(me.member))
                    return await self._propose(
                        following, None, asked, "the first store of its name"
                    )
            case Course.LEAD:
                return won
            case Course.TAKE_TERM:
                assert row is not None
                return await self._take_term(following, row, me)
            case Course.FOLLOW:
                assert row is not None
                await following.follow(row)
                await self._enlist(row)
                return await self._elect(following, row)
        return None

    def _refuse(self, reason: str) -> None:
        if reason != self.refused:
            logger.error("this replica follows nobody", reason=reason)
        self.refused = reason

    async def _take_term(
        self, following: FollowedMaster, row: KnownRow, me: Standing
    ) -> int | None:
        """Take the next term: the row names this replica as the master."""
        if self._store.refusal is not None:
            return None  # another member takes over; or the upkeep finds that there is room again
        await following.stop()  # it is about to lead; and each fetch would promise more
        if self._clock.boottime() < self._promise.until and not is_released(
            row.group, me, author=row.by, followed=following.master
        ):
            # Rule 10: the former master may know nothing of this, and still have its lease.
            return None
        if await self._is_behind(row, await self._peers.standings(self._others(row))):
            return None  # an operator raises the row
        reason = "it is the master, and has started again, or was appointed"
        return await self._propose(following, row, self._asked(term_of(row.group, me)), reason)

    def _others(self, row: KnownRow) -> list[Replica]:
        own_id = self._member.replica_id
        return [replica for replica in row.row.replicas if replica.replica_id != own_id]

    async def _is_behind(self, row: KnownRow, standings: list[Standing]) -> bool:
        """Tell whether the row is older than another replica's log, and take no term then."""
        listed = {replica.replica_id: replica.uid for replica in row.row.replicas}
        known = [  # a foreign store at a replica's address says nothing about this group
            one
            for one in standings
            if listed.get(one.member.replica_id) in (one.member.uid, *one.former_uids)
        ]
        if not (self._watched.is_older(row) or is_behind(row.change, known)):
            return False
        try:
            latest = await self._watched.read()
        except UnansweredError:
            return True
        if latest is not None and latest.version == row.version:
            self._refuse(_ARBITER_BEHIND)
        return True

    def _standing(self, following: FollowedMaster) -> Standing:
        store = self._store
        assert store.identity is not None, "a replica's store has an identity"
        return Standing(
            self._member,
            store.role.epochs().last,
            store.log_max_offset,
            store.identity.former_uids,
            self._facts.priority,
            following.skew_seconds,
            self._replication.is_damaged,
        )

    async def _enlist(self, row: KnownRow) -> None:
        """Enter this replica, and its URLs, into the row."""
        mine = self._listed()
        if mine in row.row.replicas or self._watched.is_older(row):
            return
        try:
            await self._watched.swap(
                row.version, row.row.with_replica(mine), f"replica {self._member} is there"
            )
        except (StaleVersionError, UnansweredError):
            return  # the next turn has another row, or tries again

    async def _elect(self, following: FollowedMaster, row: KnownRow) -> int | None:
        """Propose this replica if the master is silent and nobody should go first."""
        if self._store.refusal is not None:
            return None  # its disk is full, or has failed: as a master it would be of no use
        boottime, me = self._clock.boottime, self._standing(following)
        ids = {replica.replica_id for replica in row.row.replicas}
        is_sure = recovery_wait(ids, me, self._facts.recovery_wait_seconds) == 0
        if boottime() < self._promise.propose_at(0) and not is_sure:
            return None
        bar = bar_of(row.group, me)
        standings = await self._peers.standings(self._others(row))
        if await self._is_behind(row, standings):
            return None
        if have_all_lost_places(row.group, [me, *standings]):
            return await self._recover(following, row, me, [me, *standings], at_once=is_sure)
        self.lost_since = None
        if bar is not None or boottime() < self._promise.propose_at(
            rank_of(row.group, me, standings)
        ):
            return None
        try:
            latest = await self._watched.read()
        except UnansweredError:
            return None
        if latest is None or latest.version != row.version:
            return None
        reason = f"master {row.group.master} is silent"
        asked = self._asked(succession_of(row.group, me))
        return await self._propose(following, row, asked, reason)

    async def _recover(
        self,
        following: FollowedMaster,
        row: KnownRow,
        me: Standing,
        standings: list[Standing],
        *,
        at_once: bool,
    ) -> int | None:
        """Take an unclean term if every member may have lost records, and this one fewest."""
        now = self._clock.boottime()
        if self.lost_since is None:
            self.lost_since = now
            logger.warning("every replica in sync may have lost messages", in_sync=len(standings))
        wait = 0.0 if at_once else self._facts.recovery_wait_seconds
        if now - self.lost_since >= wait and unclean_master(standings) == me.member:
            asked = self._asked(row.group.forced(me.member))
            reason = "every replica in sync may have lost messages; this one has the longest log"
            return await self._propose(following, row, asked, reason)
        return None

    async def _propose(
        self, following: FollowedMaster, row: KnownRow | None, asked: GroupRow, reason: str
    ) -> int | None:
        """Ask the arbiter for a term that follows *row*."""
        expected = None if row is None else row.version

        async def may_repeat() -> bool:
            if row is None:
                return True
            return not await self._is_behind(row, await self._peers.standings(self._others(row)))

        # It must promise nothing while the request may be on its way (rule 10).
        await following.stop()
        if (expected, reason) != self._asked_for:  # not again while no controller answers
            logger.info("term asked for", epoch=asked.group.epoch, reason=reason)
        self._asked_for = (expected, reason)
        outcome = await self._watched.settle_term(expected, asked, reason, may_repeat=may_repeat)
        return asked.group.epoch if outcome is Outcome.WON else None

    def _listed(self) -> Replica:
        """Return this replica's entry of the row."""
        member, facts = self._member, self._facts
        return Replica(
            replica_id=member.replica_id,
            uid=member.uid,
            urls=facts.urls,
            priority=facts.priority,
        )

    def _asked(self, group: BrokerGroup) -> GroupRow:
        """Return the row in which this replica leads *group*."""
        known = GroupRow(group) if self._watched.known is None else self._watched.known.row
        facts = self._facts
        return replace(
            known, group=group, min_in_sync=facts.min_in_sync, flush_mode=facts.flush_mode
        ).with_replica(self._listed())
