"""Latency fault tolerance: isolation ends by itself, and a probe decides what follows."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import ValidationError
from eruca.core.routing.counter import Counter
from eruca.core.routing.latency_fault import (
    CURRENT,
    PROBE_MS_MAX,
    BrokerHealth,
    Condition,
    FaultTable,
    LatencyProfile,
    fault_table,
)
from support.latency_profiles import SEED_4X
from support.rocketmq_rules import pick_of_better_half, pick_reachable

PROFILES = st.sampled_from([CURRENT, SEED_4X])
LATENCIES = st.integers(0, 100_000)
ATTEMPTS = st.lists(
    st.tuples(st.integers(0, 60_000), LATENCIES, st.booleans(), st.booleans()), max_size=20
)


@pytest.mark.parametrize(
    ("profile", "table"),
    [
        (
            CURRENT,
            {550: 2_000, 1_800: 5_000, 3_000: 6_000, 5_000: 10_000, 15_000: 30_000},
        ),
        (
            SEED_4X,
            {550: 30_000, 1_000: 60_000, 2_000: 120_000, 3_000: 180_000, 15_000: 600_000},
        ),
    ],
)
def test_each_bound_starts_its_isolation(profile: LatencyProfile, table: dict[int, int]) -> None:
    """RocketMQ's two tables, at each bound and one millisecond before it."""
    expected = 0
    for bound, duration in table.items():
        assert profile.isolation_ms(bound - 1, failed=False) == expected
        assert profile.isolation_ms(bound, failed=False) == duration
        expected = duration
    assert profile.isolation_ms(50, failed=False) == 0


def test_a_failure_isolates_for_10_seconds_and_in_4x_for_10_minutes() -> None:
    assert CURRENT.isolation_ms(0, failed=True) == 10_000
    assert SEED_4X.isolation_ms(0, failed=True) == 600_000


@given(PROFILES, LATENCIES, LATENCIES)
def test_a_slower_attempt_never_isolates_for_less(
    profile: LatencyProfile, one: int, other: int
) -> None:
    fast, slow = sorted((one, other))

    isolations = [profile.isolation_ms(latency, failed=False) for latency in (fast, slow)]
    assert isolations == sorted(isolations)


@given(PROFILES, LATENCIES)
def test_a_failure_isolates_alike_however_fast_it_was(
    profile: LatencyProfile, latency: int
) -> None:
    assert profile.isolation_ms(latency, failed=True) == profile.isolation_ms(
        profile.failure_latency_ms, failed=False
    )


def test_a_profile_needs_a_duration_for_each_bound() -> None:
    with pytest.raises(ValueError, match="one duration"):
        replace(CURRENT, not_available_ms=(1,))


@pytest.mark.parametrize("bounds", [(2, 1), (1, 1)])
def test_the_bounds_of_a_profile_ascend(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        replace(CURRENT, latency_max_ms=bounds, not_available_ms=(0, 0))


def test_a_broker_nobody_reported_is_healthy() -> None:
    table = FaultTable()

    assert table.is_available("b", 0)
    assert table.is_reachable("b", 0)
    assert table.admits("b", 0)
    assert not table.begin_probe("b", 0)
    assert table.health(0) == ()


def test_isolation_ends_to_the_millisecond() -> None:
    table = FaultTable()

    table.update("b", 20, 1_000, failed=True)

    assert not table.is_available("b", 10_999)
    assert table.is_available("b", 11_000)


def test_current_never_shortens_a_running_isolation() -> None:
    table = FaultTable(CURRENT)
    table.update("b", 20, 0, failed=True)

    table.update("b", 600, 100)
    table.update("b", 1, 200)

    assert not table.is_available("b", 9_999)
    assert table.is_available("b", 10_000)


def test_4x_overwrites_a_running_isolation() -> None:
    table = FaultTable(SEED_4X)
    table.update("b", 20, 0, failed=True)

    table.update("b", 1, 200)

    assert table.is_available("b", 200)


@given(PROFILES, ATTEMPTS)
def test_whatever_happened_every_broker_is_admitted_in_the_end(
    profile: LatencyProfile, attempts: list[tuple[int, int, bool, bool]]
) -> None:
    table, now = FaultTable(profile), 0
    for pause, latency, failed, reachable in attempts:
        now += pause
        table.update("b", latency, now, failed=failed, reachable=reachable)
        if table.admits("b", now):
            table.begin_probe("b", now)

    now += max(profile.not_available_ms) + PROBE_MS_MAX
    assert table.admits("b", now)
    assert table.is_reachable("b", now)


def test_after_isolation_one_probe_is_let_through() -> None:
    table = FaultTable()
    table.update("b", 20, 0, failed=True)

    assert table.admits("b", 10_000)
    assert table.begin_probe("b", 10_000)
    assert not table.admits("b", 10_001)
    assert table.is_available("b", 10_001)


def test_a_probe_that_succeeds_readmits_the_broker() -> None:
    table = FaultTable()
    table.update("b", 20, 0, failed=True)
    table.begin_probe("b", 10_000)

    table.update("b", 5, 10_005)

    assert table.admits("b", 10_005)
    assert not table.begin_probe("b", 10_005)
    assert table.health(10_005)[0].condition is Condition.HEALTHY


def test_a_probe_that_fails_isolates_the_broker_again() -> None:
    table = FaultTable()
    table.update("b", 20, 0, failed=True)
    table.begin_probe("b", 10_000)

    table.update("b", 5, 10_005, failed=True)

    assert not table.admits("b", 20_004)
    assert table.admits("b", 20_005)


def test_a_probe_whose_result_never_comes_expires() -> None:
    table = FaultTable()
    table.update("b", 20, 0, failed=True)
    table.begin_probe("b", 10_000)

    assert not table.admits("b", 10_000 + PROBE_MS_MAX - 1)
    assert table.admits("b", 10_000 + PROBE_MS_MAX)


def test_good_news_during_the_isolation_does_not_spare_the_trial() -> None:
    table = FaultTable(CURRENT)
    table.update("b", 20, 0, failed=True)

    table.update("b", 1, 500)

    assert table.health(10_000)[0].condition is Condition.ON_TRIAL


def test_a_broker_that_was_never_isolated_is_not_on_trial() -> None:
    table = FaultTable()

    table.update("b", 120, 0)

    assert not table.begin_probe("b", 1)


def test_the_mark_of_an_unreachable_broker_runs_out() -> None:
    table = FaultTable()
    table.update("b", 20, 5_000, failed=True, reachable=False)

    assert not table.is_reachable("b", 34_999)
    assert table.is_reachable("b", 35_000)


def test_a_broker_that_answers_is_reachable_again() -> None:
    table = FaultTable()
    table.update("b", 20, 0, failed=True, reachable=False)

    table.update("b", 20, 1)

    assert table.is_reachable("b", 1)


def test_without_a_limit_an_unreachable_broker_stays_so() -> None:
    table = FaultTable(replace(CURRENT, unreachable_ms_max=None))

    table.update("b", 20, 0, reachable=False)

    assert not table.is_reachable("b", 10**12)


def test_health_tells_how_each_broker_stands_best_first() -> None:
    table = FaultTable()
    table.update("failing", 3, 0, failed=True, reachable=False)
    table.update("fast", 10, 0)
    table.update("slow", 700, 0)

    assert table.health(2_500) == (
        BrokerHealth("fast", Condition.HEALTHY, True, 10, 0),
        BrokerHealth("slow", Condition.ON_TRIAL, True, 700, 0),
        BrokerHealth("failing", Condition.ISOLATED, False, 3, 7_500),
    )


def test_a_broker_whose_isolation_ends_now_sorts_among_the_available() -> None:
    table = FaultTable()
    table.update("slow", 700, 0)
    table.update("fast", 600, 1)

    assert [item.broker_name for item in table.items(2_000)] == ["slow", "fast"]


def test_a_removed_broker_is_forgotten() -> None:
    table = FaultTable()
    table.update("b", 20, 0, failed=True)

    table.remove("b")
    table.remove("never there")

    assert table.admits("b", 0)


def test_any_reachable_broker_may_be_picked() -> None:
    table = FaultTable()
    for name in ("a", "b", "c"):
        table.update(name, 20, 0, reachable=name != "b")

    assert {pick_reachable(table, 0, random.Random(seed)) for seed in range(50)} == {"a", "c"}


def test_without_a_reachable_broker_none_is_picked() -> None:
    table = FaultTable()
    table.update("a", 20, 0, reachable=False)

    assert pick_reachable(table, 0, random.Random(1)) is None


def test_the_better_half_takes_turns() -> None:
    table = FaultTable()
    for latency, name in enumerate("edcba"):
        table.update(name, latency, 0)
    counter = Counter()

    assert [pick_of_better_half(table, 0, counter) for _ in range(4)] == ["d", "e", "d", "e"]


def test_half_of_one_broker_is_that_broker_and_of_none_is_none() -> None:
    table = FaultTable()

    assert pick_of_better_half(table, 0, Counter()) is None
    table.update("a", 1, 0)
    assert pick_of_better_half(table, 0, Counter()) == "a"


def test_a_producer_has_the_table_it_was_told_to_have() -> None:
    assert fault_table(False) is None
    for said, profile in ((True, CURRENT), (SEED_4X, SEED_4X)):
        table = fault_table(said)
        assert table is not None
        assert table.profile is profile


@pytest.mark.parametrize("wrong", [cast("bool", value) for value in ("seed_4x", None, 1)])
def test_what_says_neither_yes_nor_no_is_not_taken_for_a_no(wrong: bool) -> None:
    with pytest.raises(ValidationError, match="latency_fault"):
        fault_table(wrong)
