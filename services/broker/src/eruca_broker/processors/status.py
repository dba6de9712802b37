"""The identity and state of the broker, from plain attributes, so that it costs almost nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eruca.contract.fields import BrokerRole
from eruca.contract.status import BrokerStatus, LogStatus, ProjectionStatus, TierStatus
from eruca_broker.core.records.times import moment
from eruca_broker.processors.budgets import ConsumeBudget, SendBudget
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering.scrub import TierScrub
from eruca_broker.store.tiering.tiering import Tiering
from eruca_chassis.clock import Clock


@dataclass(frozen=True, slots=True)
class Identity:
    """The attributes that do not change while the broker runs."""

    cluster: str
    broker_name: str
    broker_id: int
    store_host: str  # IP:port, as in its records
    version: str
    started_at: datetime
    flush_mode: Literal["sync", "async"]


class Status:
    """Reports the broker's status."""

    def __init__(
        self,
        identity: Identity,
        store: MessageStore,
        held: HeldRequests,
        senders: SendBudget,
        consumers: ConsumeBudget,
        *,
        role: Callable[[], BrokerRole],
        clock: Clock,
    ) -> None:
        self.tiering: Tiering | None = None  # None: there is no tier
        self.tier_scrub: TierScrub | None = None  # None: it is not scrubbed
        self._role = role
        self._identity = identity
        self._store = store
        self._held = held
        self._senders = senders
        self._consumers = consumers
        self._clock = clock

    def now(self) -> BrokerStatus:
        """Return the broker's current status."""
        identity, store = self._identity, self._store
        end, tier = store.log_max_offset, self._tier()
        return BrokerStatus(
            cluster=identity.cluster,
            broker_name=identity.broker_name,
            broker_id=identity.broker_id,
            role=self._role(),
            version=identity.version,
            store_host=identity.store_host,
            started_at=identity.started_at,
            now=moment(self._clock.now_ms()),
            flush_mode=identity.flush_mode,
            is_writable=store.refusal is None,
            refusal=None if store.refusal is None else store.refusal.detail,
            disk_used_ratio=store.disk_used_ratio,
            log=LogStatus(
                log_id=store.state.log_id or None,
                min_offset=store.log_min_offset,
                tier_min_offset=None if tier is None else tier.min_offset,
                begin_offset=store.whole_log.begin_offset,
                max_offset=end,
                flushed_offset=store.flushed_offset,
                segment_bytes=store.segment_bytes,
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
            tier=tier,
            held_requests=len(self._held),
            held_requests_max=self._held.size_max,
            bytes_in_flight=self._senders.used,
            bytes_in_flight_max=self._senders.maximum,
            consume_bytes_in_flight=self._consumers.used,
            consume_bytes_in_flight_max=self._consumers.maximum,
            topics=sum(not topic.is_system for topic in store.state.topics.values()),
            groups=len(list(store.state.groups)),
        )

    def _tier(self) -> TierStatus | None:
        tiering = self.tiering
        if tiering is None:
            return None
        manifest, scrub = tiering.manifest, self.tier_scrub
        return TierStatus(
            min_offset=None if manifest is None else manifest.min_offset,
            max_offset=None if manifest is None else manifest.end_offset,
            manifest=0 if manifest is None else manifest.number,
            segment_count=0 if manifest is None else len(manifest.segments),
            behind_bytes=tiering.behind_bytes,
            failure=tiering.failure,
            cache_bytes=tiering.cache.size,
            cache_bytes_max=tiering.cache.size_max,
            damaged_count=tiering.cache.damaged_count,
            missing_count=tiering.faults.missing_count,
            damaged_objects=tiering.faults.damaged_count,
            repaired_objects=0 if scrub is None else scrub.repaired_count,
            scrub_offset=None if scrub is None else scrub.offset,
            scrub_rounds=0 if scrub is None else scrub.rounds,
        )
