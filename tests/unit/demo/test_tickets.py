"""Disagreements between tickets and boarding calls."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from demo.boarding import Calls
from demo.tickets import Sales

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def sales() -> Sales:
    """Return sales of which everything agrees: 0 and 3 are committed, 2 and 5 left."""
    return Sales(
        said={0: "commit", 1: "rollback", 2: "unknown", 3: "commit", 4: "rollback", 5: "unknown"},
        sold={0, 3, 5},
        checked=Counter({"commit": 1, "rollback": 1}),
        delivered=Counter([0, 3, 5]),
    )


def test_sales_that_agree_have_no_faults() -> None:
    assert sales().faults(6) == []
    assert [sales().count(verdict) for verdict in ("commit", "rollback", "unknown")] == [2, 2, 2]
    assert [sales().delivered_of(verdict) for verdict in ("commit", "rollback", "unknown")] == [
        2,
        0,
        1,
    ]


def test_each_thing_that_does_not_agree_about_sales_is_named() -> None:
    assert "expected 7 ticket sales" in sales().faults(7)[0]

    left = sales()
    left.undecided = 2
    assert left.faults(6) == ["2 sales are still undecided"]

    wrong = sales()
    wrong.checked["rollback"] += 1
    assert "checks were answered" in wrong.faults(6)[0]

    for rows in ([0, 3], [0, 3, 5, 1], [0, 3, 5, 5]):
        delivered = sales()
        delivered.delivered = Counter(rows)
        assert delivered.faults(6) == [f"3 tickets were sold, {len(rows)} were delivered"]


def calls() -> Calls:
    made = Calls(due={row: NOW + timedelta(seconds=row) for row in range(4)}, recalled={2})
    for row in (0, 1, 3):
        made.note(row, NOW + timedelta(seconds=row, milliseconds=row))
    return made


def test_calls_that_agree_have_no_faults_and_say_how_late_they_were() -> None:
    assert calls().faults() == []
    assert calls().lateness_ms == [0, 1, 3]


def test_each_thing_that_does_not_agree_about_calls_is_named() -> None:
    twice = calls()
    twice.note(0, NOW)
    assert twice.faults() == ["3 boarding calls were due, 4 were made"]

    recalled = calls()
    recalled.note(2, NOW + timedelta(seconds=2))
    assert recalled.faults() == ["3 boarding calls were due, 4 were made"]

    early = calls()
    del early.delivered[3]
    early.note(3, NOW)
    assert early.faults() == ["1 boarding calls were made too early"]
