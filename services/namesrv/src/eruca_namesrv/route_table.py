"""The route table: the live brokers, and the queues each topic has on them.

Pure. Time comes in as ``now`` (seconds of a monotonic clock). A change goes out as the set of
topics whose route changed. Everything is soft state that each broker's next registration restores.

The rules, and where they differ from RocketMQ's:

- A registration lasts ``expiry_seconds``: it expires when strictly *more* than that has passed
  since the last heartbeat. A broker name without brokers disappears, with its topics.
- Topics are taken from a master (id 0). They stay while any broker of the name lives: readers may
  use a standby, and senders see that there is no master. While no topics of a name are known, a
  replica's are taken, too: the master may be away since before the name server started.
- The master with the larger epoch wins: it takes the place of the one before at once, without
  waiting for its expiry. A master whose epoch is smaller than any that a live broker of the name
  has registered is refused. RocketMQ compares state versions instead and may prefer the master that
  was replaced (its issue 6316).
- A registration with topics replaces all of the broker name's topics. RocketMQ by default keeps
  topics that are no longer listed, so deleted topics linger. Here a registration is complete.
- A registration without topics is a heartbeat. If a master's version differs from the one its
  topics came with, the answer requests them.
- An address (``store_host``) has one id per broker name. Registering another id drops the old one:
  so a broker changes its role.
- Without a larger epoch, an id that is registered at another address is not reassigned: the
  newcomer is refused until that registration ends. It may be the same broker, restarted elsewhere
  after a crash, or another one with a copied name; the name server cannot tell them apart. The
  second kind would replace the first broker in the routes and hide its messages. RocketMQ compares
  state versions and silently ignores the older one.
- A topic's order config is the one with the highest version among its brokers. So it is known
  while any of them lives, even to a name server that has just started. RocketMQ keeps it only in
  the name servers' key-value table.
- RocketMQ refuses an unknown broker that lists exactly one topic, because it could be an
  incremental registration; Eruca has no incremental registrations.

Source: RocketMQ 5.3, ``RouteInfoManager``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    OverloadedError,
    StaleEpochError,
    ValidationError,
)
from eruca.contract.fields import MASTER_ID, STANDALONE_EPOCH, BrokerRole, Permission
from eruca.contract.routes import BrokerRegistration, QueueData, RouteBroker, TopicRoute
from eruca.contract.topics import OrderConfig, TopicConfig

RETRY_SECONDS: Final = 30.0  # a registration period: places may become free within it


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """One broker process, at its last registration."""

    cluster: str
    broker_name: str
    broker_id: int
    epoch: int  # of the master that it is or follows
    role: BrokerRole
    replica_id: int | None
    urls: Mapping[str, str]  # by network
    store_host: str
    former_store_hosts: tuple[str, ...]  # of the group's former masters
    data_version: int
    expiry_seconds: float
    seen_at: float  # monotonic clock
    seen_at_ms: int  # wall clock

    @property
    def deadline(self) -> float:
        """The last moment at which the broker counts as alive."""
        return self.seen_at + self.expiry_seconds


class Queues(NamedTuple):
    """A topic's queues on one broker name."""

    read_count: int
    write_count: int
    permission: Permission
    order: tuple[int, str] | None = None  # its order config's version, and the config


@dataclass(slots=True)
class LiveGroup:
    """A broker name: its brokers by id, and its master's topics.

    Invariant: no live master has a smaller epoch than the group, unless a standby has registered
    the larger one and the new master has not registered yet.
    """

    cluster: str
    brokers: dict[int, LiveBroker] = field(default_factory=dict)
    topics: dict[str, Queues] = field(default_factory=dict)
    topics_version: tuple[int, int] | None = None  # epoch and data version they came with
    epoch: int = STANDALONE_EPOCH  # the largest registered since the group has had a broker


@dataclass(frozen=True, slots=True)
class Registered:
    """The outcome of a registration."""

    needs_topics: bool  # the broker must register again, with its topics
    changed_topics: frozenset[str]
    is_new: bool = False  # the id was free until now


class RouteTable:
    """Everything a name server knows about brokers.

    Nothing expires by itself: call :meth:`expire` with the current time before reading.
    """

    def __init__(self, *, brokers_max: int, topics_max: int) -> None:
        self.brokers_max = brokers_max
        self.topics_max = topics_max
        self.broker_count = 0  # of all groups
        self.topic_entry_count = 0  # of all groups: a topic counts once for each broker name
        self._groups: dict[str, LiveGroup] = {}  # each has a broker
        self._names_by_topic: dict[str, set[str]] = {}  # each topic has a name
        self._earliest_deadline = math.inf  # a lower bound of all brokers' deadlines

    def register(
        self,
        broker_name: str,
        broker_id: int,
        registration: BrokerRegistration,
        *,
        now: float,
        now_ms: int,
    ) -> Registered:
        """Apply a broker's registration or heartbeat.

        Raises:
            ValidationError: The role does not fit the id.
            StaleEpochError: A master of a larger epoch is known.
            ConflictError: The name belongs to another cluster, or the id to another address.
            OverloadedError: ``brokers_max`` or ``topics_max`` would be exceeded.
        """
        role = role_of(broker_id, registration)
        group = self._groups.get(broker_name) or LiveGroup(registration.cluster)
        holder = group.brokers.get(broker_id)
        self._check(broker_name, broker_id, registration, group)
        broker = LiveBroker(
            cluster=registration.cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            epoch=registration.epoch,
            role=role,
            replica_id=registration.replica_id,
            urls=registration.urls,
            store_host=registration.store_host,
            former_store_hosts=tuple(registration.former_store_hosts),
            data_version=registration.data_version,
            expiry_seconds=registration.expiry_seconds,
            seen_at=now,
            seen_at_ms=now_ms,
        )
        self._groups[broker_name] = group
        where_before = _where(group)
        for old_id in _other_ids(group, broker):
            del group.brokers[old_id]
            self.broker_count -= 1
        self.broker_count += holder is None
        group.cluster = registration.cluster
        group.brokers[broker_id] = broker
        group.epoch = max(group.epoch, registration.epoch)
        self._earliest_deadline = min(self._earliest_deadline, broker.deadline)

        changed: set[str] = set()
        version = (registration.epoch, registration.data_version)
        if registration.topics is not None and _brings_topics(group, broker_id, broker.epoch):
            changed |= self._replace_topics(broker_name, group, registration.topics)
            group.topics_version = version
        if _where(group) != where_before:
            changed |= group.topics.keys()
        hosts = {live.store_host for live in group.brokers.values()}
        assert len(hosts) == len(group.brokers), "an address has one id per broker name"
        assert broker_id != MASTER_ID or broker.epoch == group.epoch, "a master was succeeded"
        self._check_counts()
        return Registered(
            needs_topics=(
                _brings_topics(group, broker_id, broker.epoch) and group.topics_version != version
            ),
            changed_topics=frozenset(changed),
            is_new=holder is None or holder.store_host != broker.store_host,
        )

    def unregister(
        self, broker_name: str, broker_id: int, *, store_host: str | None
    ) -> frozenset[str]:
        """Remove a broker that is shutting down; return the topics whose route changed.

        With *store_host* the broker is removed only at that address: a broker that was replaced
        must not remove its successor.

        Raises:
            BrokerNotFoundError: The broker is not registered (any more).
            ConflictError: The id is registered at another address.
        """
        group = self._groups.get(broker_name)
        broker = group.brokers.get(broker_id) if group else None
        if group is None or broker is None:
            raise BrokerNotFoundError(f"broker {broker_name}/{broker_id} is not registered")
        if store_host is not None and broker.store_host != store_host:
            raise ConflictError(
                f"broker {broker_name}/{broker_id} is registered at {broker.store_host}, "
                f"not at {store_host}"
            )
        return self._drop(broker_name, group, [broker_id])

    def overdue(self, now: float) -> list[LiveBroker]:
        """Return the brokers that :meth:`expire` would drop."""
        if now <= self._earliest_deadline:
            return []
        return [broker for broker in self.brokers() if broker.deadline < now]

    def expire(self, now: float) -> frozenset[str]:
        """Remove every expired broker; return the topics whose route changed."""
        if now <= self._earliest_deadline:
            return frozenset()
        changed: set[str] = set()
        for broker_name, group in list(self._groups.items()):
            ids = [i for i, broker in group.brokers.items() if broker.deadline < now]
            if ids:
                changed |= self._drop(broker_name, group, ids)
        self._earliest_deadline = min(
            (broker.deadline for broker in self.brokers()), default=math.inf
        )
        assert self._earliest_deadline >= now, "an expired broker is left"
        return frozenset(changed)

    def route(self, topic: str) -> TopicRoute | None:
        """Return the topic's route, sorted by broker name, or None if no live broker has it."""
        names = sorted(self._names_by_topic.get(topic, ()))
        if not names:
            return None
        queues = {name: self._groups[name].topics[topic] for name in names}
        # A broker that was away during a change holds an older version, or none.
        orders = [its.order for its in queues.values() if its.order is not None]
        return TopicRoute(
            topic=topic,
            queues=[_queue_data(name, its) for name, its in queues.items()],
            brokers=[_route_broker(name, self._groups[name]) for name in names],
            order_config=max(orders)[1] if orders else None,
        )

    @property
    def knows_topics(self) -> bool:
        """Tell whether the topics of any live broker are known; otherwise none can be missing."""
        return any(group.topics_version is not None for group in self._groups.values())

    def topics(self) -> Collection[str]:
        """Return the topics of all live brokers, unordered."""
        return self._names_by_topic.keys()

    def brokers(self) -> Iterator[LiveBroker]:
        """Yield every live broker, ordered by name and id."""
        for _, group in sorted(self._groups.items()):
            for _, broker in sorted(group.brokers.items()):
                yield broker

    def _check(
        self,
        broker_name: str,
        broker_id: int,
        registration: BrokerRegistration,
        group: LiveGroup,
    ) -> None:
        """Raise if the registration is refused; change nothing."""
        if broker_id == MASTER_ID and registration.epoch < group.epoch:
            raise StaleEpochError(
                f"broker {broker_name} is in epoch {group.epoch}; a master of epoch "
                f"{registration.epoch} is registered no more",
                fix="let it follow the current master; a broker that has left its group needs a "
                "unique ERUCA_BROKER_NAME",
            )
        others = [
            broker
            for broker in group.brokers.values()
            if broker.store_host != registration.store_host
        ]
        for other in others:
            if other.broker_id != broker_id and other.cluster != registration.cluster:
                raise ConflictError(
                    f"broker name {broker_name} belongs to cluster {other.cluster}, "
                    f"where {other.store_host} serves it",
                    fix="give this broker a unique name",
                )
            is_succeeded = broker_id == MASTER_ID and other.epoch < registration.epoch
            if other.broker_id == broker_id and not is_succeeded:
                raise ConflictError(
                    f"broker {broker_name}/{broker_id} is registered at {other.store_host}, "
                    f"not at {registration.store_host}",
                    fix="give this broker a unique ERUCA_BROKER_NAME, or stop the other one; "
                    f"one that has died is registered for up to {other.expiry_seconds:g} s",
                )
        is_new = broker_id not in group.brokers
        left_count = self.broker_count - (len(group.brokers) - len(others))  # without its old id
        if is_new and left_count >= self.brokers_max:
            raise OverloadedError(
                f"{self.brokers_max} brokers are registered, and brokers_max allows no more",
                retry_after_seconds=RETRY_SECONDS,
            )
        is_taken = _brings_topics(group, broker_id, registration.epoch)
        listed = registration.topics if is_taken else None
        grown = self.topic_entry_count - len(group.topics) + len(listed or ())
        if listed is not None and grown > self.topics_max:
            raise OverloadedError(
                f"{len(listed)} topics of {broker_name} would exceed topics_max, {self.topics_max}",
                retry_after_seconds=RETRY_SECONDS,
            )

    def _replace_topics(
        self, broker_name: str, group: LiveGroup, listed: Iterable[TopicConfig]
    ) -> set[str]:
        before = group.topics
        after = {
            config.topic: Queues(
                config.read_queue_count,
                config.write_queue_count,
                config.permission,
                _order(config.order_config),
            )
            for config in listed
        }
        for topic in before.keys() - after.keys():
            self._forget_topic(topic, broker_name)
        for topic in after.keys() - before.keys():
            self._names_by_topic.setdefault(topic, set()).add(broker_name)
        self.topic_entry_count += len(after) - len(before)
        group.topics = after
        return {topic for topic, _ in before.items() ^ after.items()}

    def _drop(self, broker_name: str, group: LiveGroup, ids: Iterable[int]) -> frozenset[str]:
        for broker_id in ids:
            del group.brokers[broker_id]
            self.broker_count -= 1
        changed = frozenset(group.topics)
        if not group.brokers:
            for topic in group.topics:
                self._forget_topic(topic, broker_name)
            self.topic_entry_count -= len(group.topics)
            del self._groups[broker_name]
        self._check_counts()
        return changed

    def _check_counts(self) -> None:
        """Check the counts, by which the limits are kept, against the tables."""
        assert len(self._groups) <= self.broker_count <= self.brokers_max
        assert len(self._names_by_topic) <= self.topic_entry_count <= self.topics_max
        assert bool(self._names_by_topic) == bool(self.topic_entry_count)

    def _forget_topic(self, topic: str, broker_name: str) -> None:
        names = self._names_by_topic[topic]
        names.remove(broker_name)
        if not names:
            del self._names_by_topic[topic]


def role_of(broker_id: int, registration: BrokerRegistration) -> BrokerRole:
    """Return the broker's role; raise ValidationError unless exactly id 0 is the master's."""
    role = registration.role or ("master" if broker_id == MASTER_ID else "standby")
    if (role == "master") != (broker_id == MASTER_ID):
        expected = "master" if broker_id == MASTER_ID else "standby or learner"
        raise ValidationError.at(
            "/body/role", f"expected {expected} for broker id {broker_id}, found {role}"
        )
    return role


def _brings_topics(group: LiveGroup, broker_id: int, epoch: int) -> bool:
    """Tell whether the topics of a broker with this id and epoch count for its name."""
    is_replica = epoch > STANDALONE_EPOCH
    return broker_id == MASTER_ID or (is_replica and group.topics_version is None)


def _other_ids(group: LiveGroup, broker: LiveBroker) -> list[int]:
    return [
        other.broker_id
        for other in group.brokers.values()
        if other.store_host == broker.store_host and other.broker_id != broker.broker_id
    ]


def _where(group: LiveGroup) -> object:
    """Return a group's part of a route without its queues, for comparison."""
    return (
        group.cluster,
        group.epoch,
        {
            broker_id: (broker.urls, broker.store_host, broker.role, broker.replica_id)
            for broker_id, broker in group.brokers.items()
        },
    )


def _order(config: OrderConfig | None) -> tuple[int, str] | None:
    """Return an order config as (version, text)."""
    return None if config is None else (config.version, config.text)


def _queue_data(broker_name: str, queues: Queues) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_count=queues.read_count,
        write_queue_count=queues.write_count,
        permission=queues.permission,
    )


def _route_broker(broker_name: str, group: LiveGroup) -> RouteBroker:
    brokers = sorted(group.brokers.items())
    return RouteBroker(
        cluster=group.cluster,
        broker_name=broker_name,
        urls={broker_id: dict(broker.urls) for broker_id, broker in brokers},
        store_hosts={broker_id: broker.store_host for broker_id, broker in brokers},
        epoch=group.epoch,
        roles={broker_id: broker.role for broker_id, broker in brokers},
        replica_ids={
            broker_id: broker.replica_id for broker_id, broker in brokers if broker.replica_id
        },
    )
