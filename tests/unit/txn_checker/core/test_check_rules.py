"""The time of a check, and the number of checks before a transaction expires."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_txn_checker.core.check_rules import CheckRules, Verdict, due_ms, verdict
from support.rocketmq_service_rules import immunity_ms_of

RULES = CheckRules(timeout_ms=6_000, interval_ms=30_000, checks_max=15, age_max_ms=100_000)
immunities = st.none() | st.integers(0, 90_000)


@pytest.mark.parametrize(
    ("age_ms", "checks", "immunity_ms", "expected"),
    [
        (6_000, 0, None, Verdict.IMMUNE),
        (6_001, 0, None, Verdict.CHECK),
        (-1, 0, None, Verdict.CHECK),
        (10_000, 0, 10_000, Verdict.IMMUNE_BY_WISH),
        (10_001, 0, 10_000, Verdict.CHECK),
        (1, 0, 0, Verdict.CHECK),
        (50_000, 14, None, Verdict.CHECK),
        (50_000, 15, None, Verdict.GIVE_UP),
        (100_000, 0, None, Verdict.CHECK),
        (100_001, 0, None, Verdict.GIVE_UP),
        (100_001, None, 200_000, Verdict.GIVE_UP),
    ],
)
def test_a_transaction_is_let_alone_then_checked_then_given_up(
    age_ms: int, checks: int | None, immunity_ms: int | None, expected: Verdict
) -> None:
    assert verdict(age_ms, checks=checks, own_immunity_ms=immunity_ms, rules=RULES) is expected


@given(begun_ms=st.integers(0, 10**13), immunity_ms=immunities)
def test_the_first_check_is_due_at_the_first_moment_without_immunity(
    begun_ms: int, immunity_ms: int | None
) -> None:
    due = due_ms(begun_ms, own_immunity_ms=immunity_ms, checked_ms=None, rules=RULES)

    def at(now_ms: int) -> Verdict:
        return verdict(now_ms - begun_ms, checks=0, own_immunity_ms=immunity_ms, rules=RULES)

    assert at(due) is Verdict.CHECK
    assert at(due - 1) in (Verdict.IMMUNE, Verdict.IMMUNE_BY_WISH)


@given(checked_ms=st.integers(0, 200_000), immunity_ms=immunities)
def test_the_next_check_is_due_an_interval_later_and_never_within_the_immunity(
    checked_ms: int, immunity_ms: int | None
) -> None:
    due = due_ms(0, own_immunity_ms=immunity_ms, checked_ms=checked_ms, rules=RULES)

    assert due >= checked_ms + RULES.interval_ms
    assert due > (RULES.timeout_ms if immunity_ms is None else immunity_ms)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, None), ("10", 10_000), ("-1", 6_000), ("soon", 6_000), ("", 6_000), ("0", 0)],
)
def test_a_property_that_is_no_number_means_the_time_out(
    text: str | None, expected: int | None
) -> None:
    assert immunity_ms_of(text, RULES) == expected
