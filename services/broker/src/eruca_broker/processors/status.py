"""The identity and state of the broker, from plain attributes, so that it costs almost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eruca.contract.fields import BrokerRole
from eruca.contract.status import BrokerStatus, LogStatus, ProjectionStatus
from eruca_broker.core.records.times import moment
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.budget import Budget


@dataclass(frozen=True, slots=True)
class Identity:
    """The attributes that do not change while the broker runs."""

    cluster: str
    broker_name: str
    broker_id: int
    role: BrokerRole
    store_host: str  # IP:port, as in its records
    version: str
    started_at: datetime
    flush_mode: Literal["sync", "async"]


def broker_status(
    identity: Identity,
    store: MessageStore,
    held: HeldRequests,
    in_flight: Budget,
    consume_in_flight: Budget,
    *,
    now_ms: int,
) -> BrokerStatus:
    """Return the broker's current status."""
    end = store.log_max_offset
    return BrokerStatus(
        cluster=identity.cluster,
        broker_name=identity.broker_name,
        broker_id=identity.broker_id,
        role=identity.role,
        version=identity.version,
        store_host=identity.store_host,
        started_at=identity.started_at,
        now=moment(now_ms),
        flush_mode=identity.flush_mode,
        is_writable=store.refusal is None,
        refusal=None if store.refusal is None else store.refusal.detail,
        disk_used_ratio=store.disk_used_ratio,
        log=LogStatus(
            log_id=store.state.log_id or None,
            min_offset=store.log_min_offset,
            max_offset=end,
            flushed_offset=store.flushed_offset,
            segment_size=store.segment_size,
            segment_count=store.segment_count,
        ),
        projections=[
            ProjectionStatus(
                name=p.name,
                log_offset=p.log_offset,
                behind_bytes=max(end - p.log_offset, 0),
                failure=p.failure,
            )
            for p in store.projections()
        ],
        held_requests=len(held),
        held_requests_max=held.size_max,
        bytes_in_flight=in_flight.used,
        bytes_in_flight_max=in_flight.maximum,
        consume_bytes_in_flight=consume_in_flight.used,
        consume_bytes_in_flight_max=consume_in_flight.maximum,
        topics=sum(not topic.is_system for topic in store.state.topics.values()),
        groups=len(list(store.state.groups)),
    )
