"""This broker's part in its group: what replication works with at present.

A broker's role changes while it runs. Endpoints and metrics ask this object, which the role keeps
up to date: a master has a feed, a standby has a follower, a broker of its own has neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from eruca.contract.broker_groups import ReplicaName
from eruca.contract.errors import ForeignReplicaError, NotMasterError
from eruca.contract.replication import ReplicationRole, ReplicationStatus
from eruca_broker.core.log.retention import kept_from
from eruca_broker.core.replication.broker_group import NO_CHANGE, Member
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.follower import Follower
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering.copying import TierCopies
from eruca_chassis.clock import Clock


class Replication:
    """The part of one broker, as a role sets it.

    Attributes:
        role: The broker's role now.
        member: Its store, as the group names it; None: it is standalone.
        former_uids: Those under which its store may have lost records, latest first.
        priority: The operator's preference for it as a master.
        in_sync: The in-sync set, as the arbiter last told.
        listed: All replicas of the group, likewise.
        keep_bytes: Bytes of the log that retention keeps for replicas that need them.
        feed: Of a master's term, from its beginning to its end.
        follower: Of a standby.
        tier: Has closed segments of the log for a standby; None: there is no tier.
        known: The latest row of the group that this process knows.
        is_damaged: Whether its log has damage that no other replica could repair.
    """

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self.role: ReplicationRole = "standalone"
        self.member: Member | None = None
        self.former_uids: tuple[str, ...] = ()
        self.priority = 0
        self.in_sync: frozenset[Member] = frozenset()
        self.listed: frozenset[Member] = frozenset()
        self.keep_bytes = 0
        self.feed: Feed | None = None
        self.follower: Follower | None = None
        self.tier: TierCopies | None = None
        self.known = NO_CHANGE
        self.is_damaged = False
        self._store = store
        self._clock = clock

    def the_feed(self) -> Feed:
        """Return the feed.

        Raises:
            ForeignReplicaError: The broker has no replicas.
            NotMasterError: It is not the master.
        """
        if self.feed is not None:
            return self.feed
        if self.member is None:
            raise ForeignReplicaError(
                "this broker has no replicas: it is standalone",
                fix="set ERUCA_BROKER_CONTROLLER_URLS of all replicas, and of this broker",
            )
        raise NotMasterError("this replica is not the master, so it has no log to copy")

    def kept_from(self) -> int | None:
        """Return the log offset from which retention keeps the log for others; None: for nobody."""
        if self.feed is None:
            return None
        ends = dict(self.feed.copies.held)
        others = self.listed - {self.member}
        log_end = self._store.log_max_offset
        return kept_from(map(ends.get, others), log_end=log_end, keep_bytes=self.keep_bytes)

    def status(self) -> ReplicationStatus:
        """Return the broker's part in its group, and its progress."""
        store, feed, follower, member = self._store, self.feed, self.follower, self.member
        lease = inf if feed is None else feed.lease_until - self._clock.boottime()
        followed = feed or follower
        return ReplicationStatus(
            role=self.role,
            replica_id=None if member is None else member.replica_id,
            uid=None if member is None else member.uid,
            former_uids=list(self.former_uids),
            priority=self.priority,
            epoch=0 if followed is None else followed.epoch,
            last_epoch=store.role.epochs().last,
            known_epoch=self.known.epoch,
            known_number=self.known.number,
            damaged=self.is_damaged,
            min_offset=store.log_min_offset,
            end=store.log_max_offset,
            durable=store.durable_offset,
            confirmed=store.confirmed_offset,
            kept_from=self.kept_from(),
            in_sync=_names(self.in_sync if feed is None else feed.copies.known),
            sole_master_seconds=None if lease == inf else max(lease, 0.0),
            replicas=[] if feed is None else feed.replicas(),
            following=None if follower is None else follower.status(),
        )


def _names(members: Iterable[Member]) -> list[ReplicaName]:
    return [ReplicaName(replica_id=m.replica_id, uid=m.uid) for m in sorted(members)]
