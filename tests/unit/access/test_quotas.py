"""Quotas: rates by buckets, within their bounds whatever happens; limits of what is under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.access import PolicyDocument
from eruca.contract.errors import QuotaExceededError
from eruca.core.access.quotas import Quotas
from eruca_access.quotas import BURST_SECONDS, METERS_MAX, Meter, QuotaBook, QuotaMetrics

SHOP = "user:shop"


def quotas_of(*quotas: dict[str, Any], **roles: list[str]) -> Quotas:
    return Quotas(PolicyDocument.model_validate({"quotas": list(quotas), "roles": roles}))


def pause_told(meter: Meter, now: float, size: int) -> float | None:
    """Begin a request; return the pause that a refusal asks for, None if there is none."""
    try:
        meter.begin(now, size)
    except QuotaExceededError as error:
        return error.retry_after_seconds
    return None


@dataclass
class Bucket:
    """The model: what has been spent since the start, and when."""

    rate: float
    spent: list[tuple[float, float]]

    def most_in_any_span(self) -> float:
        """Return by how much the spending of some span exceeds the rate and the burst."""
        worst = 0.0
        for first, (start, _) in enumerate(self.spent):
            total = 0.0
            for at, amount in self.spent[first:]:
                total += amount
                worst = max(worst, total - self.rate * (at - start + BURST_SECONDS))
        return worst


@given(
    st.floats(0.5, 50),
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(0, 40)), min_size=1, max_size=60),
)
def test_no_span_of_time_has_more_than_its_rate_a_burst_and_one_request(
    rate: float, arrivals: list[tuple[float, int]]
) -> None:
    meter = Meter(SHOP, {"bytes_in_per_second": rate})
    model, now = Bucket(rate, []), 100.0
    for pause, size in arrivals:
        now += pause
        if pause_told(meter, now, size) is None:
            model.spent.append((now, size))
    largest = max((amount for _, amount in model.spent), default=0)
    assert model.most_in_any_span() <= largest + 1e-6


@given(st.floats(1, 100), st.integers(1, 50))
def test_a_principal_that_waits_as_told_gets_its_rate(rate: float, count: int) -> None:
    meter, now = Meter(SHOP, {"requests_per_second": rate}), 0.0
    for _ in range(count):
        if (pause := pause_told(meter, now, 0)) is not None:
            assert pause > 0
            now += pause
            meter.begin(now + 1e-9, 0)
    assert now <= count / rate


def test_what_is_known_afterwards_becomes_a_debt() -> None:
    meter = Meter(SHOP, {"bytes_out_per_second": 100})
    meter.begin(0.0, 0)
    meter.sent(0.0, 1_000)
    with pytest.raises(QuotaExceededError) as refused:
        meter.begin(1.0, 0)
    assert refused.value.quota == "bytes_out_per_second"
    assert refused.value.retry_after_seconds == pytest.approx(8.0)
    meter.begin(9.0, 0)


def test_requests_under_way_are_limited_and_a_refusal_takes_nothing() -> None:
    meter = Meter(SHOP, {"requests_under_way_max": 2})
    meter.begin(0.0, 0)
    meter.begin(0.0, 0)
    for _ in range(3):
        with pytest.raises(QuotaExceededError, match="requests_under_way_max is 2"):
            meter.begin(0.0, 0)
    meter.end()
    meter.begin(0.0, 0)
    assert meter.refusals == {"requests_under_way_max": 3}


def test_a_share_of_a_budget_is_limited() -> None:
    meter = Meter(SHOP, {"in_flight_share": 0.25})
    meter.hold("bodies", 1_000, 200)
    meter.hold("others", 1_000, 250)
    with pytest.raises(QuotaExceededError):
        meter.hold("bodies", 1_000, 51)
    meter.give("bodies", 200)
    meter.hold("bodies", 1_000, 250)


def test_the_most_specific_quota_wins_limit_by_limit() -> None:
    quotas = quotas_of(
        {"to": ["role:tenant"], "requests_per_second": 10, "bytes_in_per_second": 100},
        {"to": ["role:slow"], "requests_per_second": 5},
        {"to": [SHOP], "requests_per_second": 50},
        tenant=[SHOP, "user:b"],
        slow=["user:b"],
    )
    assert quotas.limits_of(SHOP) == {"requests_per_second": 50, "bytes_in_per_second": 100}
    assert quotas.limits_of("user:b") == {"requests_per_second": 5, "bytes_in_per_second": 100}
    assert quotas.limits_of("oidc:a/c", ("role:slow",)) == {"requests_per_second": 5}
    assert quotas.limits_of("user:d") == {}


def test_other_quotas_do_not_fill_a_bucket() -> None:
    book = QuotaBook()
    book.follow(quotas_of({"to": [SHOP], "requests_per_second": 1}))
    meter = book.meter_of(SHOP)
    assert meter is not None
    meter.begin(0.0, 0)
    book.follow(quotas_of({"to": [SHOP], "requests_per_second": 2}))
    assert book.meter_of(SHOP) is meter
    assert None in (found := [pause_told(meter, 0.0, 0) for _ in range(3)])
    assert found[-1] is not None
    book.follow(quotas_of())
    assert book.meter_of(SHOP) is None


def test_idle_principals_are_forgotten_when_there_are_too_many() -> None:
    book = QuotaBook()
    book.follow(quotas_of({"to": ["role:tenant"], "requests_per_second": 1}))
    busy = book.meter_of("oidc:a/busy", ("role:tenant",))
    assert busy is not None
    busy.begin(0.0, 0)
    for number in range(METERS_MAX + 5):
        assert book.meter_of(f"oidc:a/{number}", ("role:tenant",)) is not None
    assert len(book) < METERS_MAX
    assert book.version == 1
    assert book.meter_of("oidc:a/busy", ("role:tenant",)) is busy


def test_metrics_show_a_bounded_number_of_principals() -> None:
    book = QuotaBook()
    book.follow(quotas_of({"to": ["role:tenant"], "requests_under_way_max": 1}))
    for number in range(300):
        meter = book.meter_of(f"oidc:a/{number}", ("role:tenant",))
        assert meter is not None
        meter.begin(0.0, 5)
        for _ in range(number):
            with pytest.raises(QuotaExceededError):
                meter.begin(0.0, 5)
    found = {metric.name: metric for metric in QuotaMetrics(book).collect()}
    shown = {s.labels["principal"] for s in found["eruca_quota_refusals"].samples}
    assert shown == {f"oidc:a/{number}" for number in range(200, 300)}
    [left_out] = found["eruca_quota_principals_left_out"].samples
    assert left_out.value == 200


def test_a_quota_without_a_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one limit at least"):
        quotas_of({"to": [SHOP]})
    with pytest.raises(ValueError, match="greater than 0"):
        quotas_of({"to": [SHOP], "requests_per_second": 0})
