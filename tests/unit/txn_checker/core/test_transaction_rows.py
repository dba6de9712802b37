"""Transactions as rows: every event in every state, and reading a stretch of the log twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.transaction_events import (
    Outcome,
    TransactionBegun,
    TransactionCarried,
    TransactionChecked,
    TransactionDecided,
    TransactionEvent,
    TransactionParked,
)
from eruca_txn_checker.core.check_rules import CheckRules
from eruca_txn_checker.core.transaction_rows import TransactionRow, folded

RULES = CheckRules()
T0 = 1_700_000_000_000
AGAIN = T0 + 90_000  # after all decisions
ID = "7F0001"


def fold(
    *events: TransactionEvent, row: TransactionRow | None = None, first: int = 1
) -> TransactionRow | None:
    """Fold events, the *first* of which lies at the log's beginning or behind others."""
    for number, event in enumerate(events, first):
        row = folded(row, event, broker_name="broker-a", next_offset=100 * number, rules=RULES)
    return row


def begun(immunity_ms: int | None = None, at: int = T0) -> TransactionBegun:
    return TransactionBegun(ID, "orders", "payments", 3, at, immunity_ms, group_size=10)


def checked(number: int) -> TransactionChecked:
    return TransactionChecked(ID, number, "checker", T0 + 1_000 * number)


def decided(outcome: Outcome = "commit", **more: object) -> TransactionDecided:
    known: dict[str, object] = {
        "by": "producer",
        "begun_at": T0,
        "decided_at": T0 + 50_000,
        "checks": 0,
    }
    return TransactionDecided(
        transaction_id=ID,
        outcome=outcome,
        producer_group="orders",
        topic="payments",
        queue_id=3,
        group_size=10,
        **(known | more),  # type: ignore[arg-type]  # each is of its field's type
    )


def parked(checks: int = 15) -> TransactionParked:
    return TransactionParked(ID, checks, "checker", T0 + 60_000, 10, reason=None)


def carried(
    checks: int = 0, checked_at: int | None = None, parked_at: int | None = None
) -> TransactionCarried:
    return TransactionCarried(
        ID, "orders", "payments", 3, T0, 0, None, checks, checked_at, parked_at, T0 + 70_000, 10
    )


def test_what_has_begun_is_pending_and_due_after_the_time_out() -> None:
    row = fold(begun())

    assert row is not None
    assert (row.state, row.due_ms, row.half_offset, row.checks) == ("pending", T0 + 6_001, 100, 0)


def test_its_own_immunity_goes_before_the_time_out() -> None:
    row = fold(begun(immunity_ms=90_000))

    assert row is not None
    assert row.due_ms == T0 + 90_001


def test_checks_count_in_their_order_and_put_off_the_next() -> None:
    row = fold(begun(), checked(1), checked(2))

    assert row is not None
    assert (row.checks, row.checked_ms, row.due_ms) == (2, T0 + 2_000, T0 + 32_000)
    assert fold(checked(2), checked(4), row=row, first=4) == row


@pytest.mark.parametrize(
    ("outcome", "state"), [("commit", "committed"), ("rollback", "rolled_back")]
)
def test_a_decision_ends_it(outcome: Outcome, state: str) -> None:
    row = fold(begun(), checked(1), decided(outcome, by="check", check_number=1, reason="paid"))

    assert row is not None
    assert (row.state, row.due_ms, row.outcome) == (state, None, outcome)
    assert (row.decided_by, row.check_number, row.reason) == ("check", 1, "paid")


def test_what_is_parked_can_still_be_decided_by_an_operator() -> None:
    row = fold(begun(), parked())
    assert row is not None
    assert (row.state, row.decided_by, row.due_ms) == ("parked", "limit", None)

    row = fold(decided("commit", by="operator", reason="paid", was_parked=True), row=row, first=3)

    assert row is not None
    assert (row.state, row.decided_by, row.reason) == ("committed", "operator", "paid")


def test_a_decision_alone_tells_of_a_transaction_whose_beginning_is_deleted() -> None:
    row = fold(decided("rollback", checks=3))

    assert row is not None
    assert (row.state, row.producer_group, row.begun_ms, row.checks) == (
        "rolled_back",
        "orders",
        T0,
        3,
    )
    assert row.half_offset is None


def test_what_was_carried_forward_alone_is_as_it_was() -> None:
    pending = fold(carried(checks=2, checked_at=T0 + 40_000))
    at_rest = fold(carried(checks=15, parked_at=T0 + 60_000))

    assert pending is not None
    assert at_rest is not None
    assert (pending.state, pending.checks, pending.due_ms) == ("pending", 2, T0 + 70_000)
    assert (at_rest.state, at_rest.decided_by, at_rest.due_ms) == ("parked", "limit", None)


def test_carrying_forward_moves_the_message_and_nothing_else() -> None:
    before = fold(begun(), checked(1))
    assert before is not None

    after = folded(before, carried(), broker_name="broker-a", next_offset=900, rules=RULES)

    assert after == replace(before, half_offset=900)


@pytest.mark.parametrize("event", [checked(1), parked()])
def test_events_of_what_is_not_known_make_nothing(event: TransactionEvent) -> None:
    assert fold(event) is None


@pytest.mark.parametrize(
    "event", [begun(), checked(1), decided("rollback"), parked(), carried()], ids=type
)
def test_nothing_changes_what_is_over(event: TransactionEvent) -> None:
    over = fold(begun(), decided("commit"))

    assert fold(event, row=over, first=3) == over


@pytest.mark.parametrize(
    "again",
    [
        begun(at=AGAIN),
        decided("rollback", begun_at=AGAIN),
        begun(at=T0 - 3_600_000),  # the broker's clock has been set back
        decided("rollback", begun_at=T0 - 3_600_000),
    ],
)
def test_an_id_that_is_used_again_after_a_decision_is_another_transaction(
    again: TransactionEvent,
) -> None:
    over = fold(begun(), checked(1), decided("commit", by="check", check_number=1))

    assert fold(again, row=over, first=4) == fold(again, first=4)


events = st.sampled_from(
    [
        begun(),
        *map(checked, range(1, 4)),
        parked(),
        carried(),
        decided("commit"),
        decided("rollback"),
    ]
)


LATER_DECISION = decided("rollback", begun_at=AGAIN, decided_at=AGAIN + 50_000)
later_events = st.sampled_from([begun(at=AGAIN), *map(checked, range(1, 3)), LATER_DECISION])


@given(stretch=st.lists(events, max_size=8))
def test_a_stretch_that_ends_a_transaction_may_be_read_twice(
    stretch: list[TransactionEvent],
) -> None:
    once = fold(*stretch, decided("commit"))

    assert fold(*stretch, decided("commit"), row=once) == once


@given(first=st.lists(events, max_size=6), second=st.lists(later_events, max_size=6))
def test_a_stretch_in_which_an_id_is_used_again_may_be_read_twice(
    first: list[TransactionEvent], second: list[TransactionEvent]
) -> None:
    stretch = [*first, decided("commit"), *second, LATER_DECISION]
    once = fold(*stretch)

    assert once is not None
    assert once.begun_ms == AGAIN
    assert fold(*stretch, row=once) == once


def test_what_is_pending_under_an_id_that_was_used_before_may_be_read_twice() -> None:
    stretch: list[TransactionEvent] = [
        begun(),
        checked(1),
        decided("rollback"),
        begun(at=AGAIN),
    ]
    once = fold(*stretch)

    assert once is not None
    assert (once.state, once.checks) == ("pending", 0)
    assert fold(*stretch, row=once) == once
