"""Statuses of brokers, as they answer them."""

from __future__ import annotations

from datetime import UTC, datetime

from eruca.contract.fields import BrokerRole
from eruca.contract.status import BrokerStatus, LogStatus, TierStatus


def tier_status(**changes: object) -> TierStatus:
    """Return the status of a healthy tier, with these changes."""
    healthy = TierStatus(
        min_offset=0,
        max_offset=1,
        manifest=1,
        segment_count=1,
        behind_bytes=0,
        failure=None,
        cache_bytes=0,
        cache_bytes_max=1,
        damaged_count=0,
        missing_count=0,
    )
    return healthy.model_copy(update=changes)


def broker_status(
    *, broker_id: int = 0, role: BrokerRole = "master", **log: int | None
) -> BrokerStatus:
    """Return the status of a broker with a tier, whose log has these fields, too."""
    return BrokerStatus(
        cluster="eruca",
        broker_name="a",
        broker_id=broker_id,
        role=role,
        version="0.1.0",
        store_host="127.0.0.1:10911",
        started_at=datetime(2026, 11, 1, tzinfo=UTC),
        flush_mode="async",
        is_writable=True,
        refusal=None,
        disk_used_ratio=0.5,
        log=LogStatus.model_validate(
            {
                "min_offset": 200,
                "max_offset": 300,
                "flushed_offset": 300,
                "segment_bytes": 100,
                "segment_count": 1,
            }
            | log
        ),
        projections=[],
        tier=tier_status(),
        held_requests=0,
        held_requests_max=100,
        bytes_in_flight=0,
        bytes_in_flight_max=100,
        consume_bytes_in_flight=0,
        consume_bytes_in_flight_max=100,
        topics=0,
        groups=0,
    )
