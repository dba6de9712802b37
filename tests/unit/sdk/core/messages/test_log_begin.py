"""The beginning of a broker's log, as its readers take it from the status."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eruca.contract.errors import UnavailableError
from eruca.contract.status import BrokerStatus, LogStatus, TierStatus
from eruca.core.messages.log_begin import log_begin

TIER = TierStatus(
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


def status(**begin: int | None) -> BrokerStatus:
    return BrokerStatus(
        cluster="eruca",
        broker_name="broker-a",
        broker_id=0,
        role="master",
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
            | begin
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


def test_with_a_tier_the_log_begins_where_the_broker_says() -> None:
    assert log_begin(status(begin_offset=100)) == 100
    assert log_begin(status(begin_offset=200)) == 200


def test_a_broker_that_does_not_report_it_feeds_what_is_on_its_disk() -> None:
    assert log_begin(status()) == 200


def test_while_it_is_unknown_what_the_tier_has_no_beginning_is_taken_for_it() -> None:
    with pytest.raises(UnavailableError, match="does not know yet"):
        log_begin(status(begin_offset=None))
