"""Statuses of brokers, as they answer them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from eruca.contract.fields import BrokerRole
from eruca.contract.status import BrokerStatus, LogStatus, TierStatus

TIER: Final = TierStatus(
    min_offset=None,
    max_offset=None,
    manifest=0,
    segment_count=0,
    behind_bytes=0,
    failure=None,
    cache_bytes=0,
    cache_bytes_max=1,
    damaged_count=0,
    missing_count=0,
)


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
        tier=TIER,
        held_requests=0,
        held_requests_max=100,
        bytes_in_flight=0,
        bytes_in_flight_max=100,
        consume_bytes_in_flight=0,
        consume_bytes_in_flight_max=100,
        topics=0,
        groups=0,
    )
