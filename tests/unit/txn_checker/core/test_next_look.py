"""The time of the next look: the first moment at which time alone makes a difference."""

from __future__ import annotations

import pytest

from eruca_txn_checker.core.check_rules import CheckRules
from eruca_txn_checker.core.next_look import Ahead, seconds_to_next_look

NOW = 1_700_000_000_000
AT_BROKER = NOW + 3_600_000  # an hour ahead
RULES = CheckRules(timeout_ms=6_000, interval_ms=30_000, age_max_ms=100_000)
FORWARD_AFTER_MS = 2_000


def seconds(ahead: Ahead) -> float | None:
    return seconds_to_next_look(
        ahead,
        now_ms=NOW,
        at_broker_ms=AT_BROKER,
        rules=RULES,
        forward_after_ms=FORWARD_AFTER_MS,
    )


def test_nothing_ahead_never_becomes_due() -> None:
    assert seconds(Ahead()) is None


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        pytest.param(Ahead(due_ms=AT_BROKER + 1_500), 1.5, id="due by the broker's clock"),
        pytest.param(Ahead(begun_ms=AT_BROKER - 99_000), 1.001, id="too old by the broker's clock"),
        pytest.param(Ahead(opened_ms=NOW - 29_000), 1.001, id="check over by ours"),
        pytest.param(Ahead(answered_ms=NOW - 1_000), 1.001, id="answer that ours sends"),
    ],
)
def test_each_kind_is_over_by_its_own_clock(ahead: Ahead, expected: float) -> None:
    assert seconds(ahead) == expected


def test_the_first_of_several_counts() -> None:
    ahead = Ahead(
        due_ms=AT_BROKER + 5_000,
        begun_ms=AT_BROKER,
        opened_ms=NOW - 29_999,
        answered_ms=NOW,
    )

    assert seconds(ahead) == 0.002


def test_what_is_past_is_looked_at_now() -> None:
    assert seconds(Ahead(due_ms=AT_BROKER - 10_000, opened_ms=NOW)) == 0
