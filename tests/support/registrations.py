"""Registrations of brokers in a route table."""

from __future__ import annotations

from collections.abc import Sequence

from eruca.contract.fields import BrokerRole, Permission
from eruca.contract.routes import BrokerRegistration
from eruca.contract.topics import TopicConfig
from eruca_namesrv.route_table import Registered, RouteTable

HOST = "10.0.0.1:10911"
OTHER_HOST = "10.0.0.2:10911"


def topic(name: str, queues: int = 4, permission: Permission = "rw") -> TopicConfig:
    return TopicConfig(
        topic=name, read_queue_count=queues, write_queue_count=queues, permission=permission
    )


def registration(
    *topics: str | TopicConfig,
    host: str = HOST,
    cluster: str = "c",
    version: int = 1,
    expiry: float = 120,
    light: bool = False,
    epoch: int = 0,
    replica_id: int | None = None,
    role: BrokerRole | None = None,
    former: Sequence[str] = (),
) -> BrokerRegistration:
    listed = [topic(t) if isinstance(t, str) else t for t in topics]
    return BrokerRegistration(
        cluster=cluster,
        urls={"default": f"http://{host}"},
        store_host=host,
        data_version=version,
        topics=None if light else listed,
        expiry_seconds=expiry,
        epoch=epoch,
        replica_id=replica_id,
        role=role,
        former_store_hosts=list(former),
    )


def register(
    table: RouteTable, name: str, broker_id: int, told: BrokerRegistration, now: float = 0
) -> Registered:
    return table.register(name, broker_id, told, now=now, now_ms=round(now * 1000))
