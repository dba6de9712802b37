"""The replicas of a broker: which one to read from, and which records they have.

All replicas of a broker group have the records that any of its masters wrote. A standby is in the
in-sync set: it has everything that was acknowledged, and shows it a moment after the master does. A
learner may be far behind. Brokers of one name that are no group (epoch 0) have nothing in common.
"""

from __future__ import annotations

from eruca.contract.fields import MASTER_ID, STANDALONE_EPOCH
from eruca.contract.records import Host
from eruca.contract.routes import BrokerAddress, BrokerGroup


def reader_of(group: BrokerGroup) -> BrokerAddress | None:
    """Return the broker to read from: the master, or another replica while there is none."""
    readable = [
        broker
        for broker in group.brokers
        if broker.broker_id == MASTER_ID or group.epoch > STANDALONE_EPOCH
    ]
    return min(readable, key=_readiness, default=None)


def in_sync_standbys(group: BrokerGroup) -> list[BrokerAddress]:
    """Return the replicas that can serve a reader instead of the master, by broker id."""
    return [
        broker
        for broker in group.brokers
        if broker.role == "standby" and broker.epoch == group.epoch > STANDALONE_EPOCH
    ]


def store_hosts_of(group: BrokerGroup) -> set[Host]:
    """Return the addresses in the records of :func:`reader_of`'s broker."""
    if group.epoch == STANDALONE_EPOCH:
        reader = reader_of(group)
        return set() if reader is None else {Host.from_text(reader.store_host)}
    hosts = (*(broker.store_host for broker in group.brokers), *group.former_store_hosts)
    return set(map(Host.from_text, hosts))


def holder_of(group: BrokerGroup, host: Host) -> BrokerAddress | None:
    """Return the broker that has the records with this store host, if it is one of *group*."""
    if group.epoch > STANDALONE_EPOCH:
        return reader_of(group) if host in store_hosts_of(group) else None
    its_own = (b for b in group.brokers if Host.from_text(b.store_host) == host)
    return next(its_own, None)


def _readiness(broker: BrokerAddress) -> tuple[bool, bool, int]:
    return broker.broker_id != MASTER_ID, broker.role == "learner", broker.broker_id
