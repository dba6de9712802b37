"""A transaction as a row: the fold of its events in the log.

An event that does not fit the row changes nothing, and an event already folded is ignored. So a
stretch of the log may be read twice.

An id can be used again once its broker's log no longer holds the decision. An event with another
beginning than the decided transaction's belongs to a new transaction, whose row starts empty.

The states are the broker's, and :data:`TRANSACTION_ROW` is their table. ``due_ms`` is when a
pending transaction is due, by the rules at the time the row was written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionCarried,
    TransactionChecked,
    TransactionDecided,
    TransactionEvent,
    TransactionParked,
)
from eruca.contract.transactions import DecidedBy, TransactionDetail, TransactionState
from eruca_chassis.machines import Machine
from eruca_txn_checker.core.check_rules import CheckRules, due_ms
from eruca_txn_checker.core.moments import ms_of

_STATES: Final[dict[str, TransactionState]] = {"commit": "committed", "rollback": "rolled_back"}


class Known(StrEnum):
    """The state of a transaction; but for the first, the value of a row's ``state``."""

    UNKNOWN = "unknown"  # no row yet, or that of an earlier transaction with this id
    PENDING = "pending"
    PARKED = "parked"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"


class Told(StrEnum):
    """A kind of event in the log, as the table distinguishes them."""

    BEGUN = "begun"
    CHECKED = "checked"
    PARKED = "parked"
    COMMIT = "decided: commit"
    ROLLBACK = "decided: rollback"
    CARRIED = "carried"
    PARKED_CARRIED = "parked one carried"


TRANSACTION_ROW: Final = Machine(
    (Known.UNKNOWN, Told.BEGUN, Known.PENDING),
    # Of these four the beginning is no longer in the log.
    (Known.UNKNOWN, Told.CARRIED, Known.PENDING),
    (Known.UNKNOWN, Told.PARKED_CARRIED, Known.PARKED),
    (Known.UNKNOWN, Told.COMMIT, Known.COMMITTED),
    (Known.UNKNOWN, Told.ROLLBACK, Known.ROLLED_BACK),
    (Known.PENDING, Told.CHECKED, Known.PENDING),
    (Known.PENDING, Told.CARRIED, Known.PENDING),
    (Known.PENDING, Told.PARKED, Known.PARKED),
    (Known.PENDING, Told.COMMIT, Known.COMMITTED),
    (Known.PENDING, Told.ROLLBACK, Known.ROLLED_BACK),
    (Known.PARKED, Told.PARKED_CARRIED, Known.PARKED),
    (Known.PARKED, Told.COMMIT, Known.COMMITTED),
    (Known.PARKED, Told.ROLLBACK, Known.ROLLED_BACK),
)
_OPEN: Final = frozenset({Known.PENDING, Known.PARKED})


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """The known state of a transaction; times are ms since the epoch."""

    broker_name: str
    transaction_id: str
    producer_group: str
    topic: str
    queue_id: int
    state: TransactionState
    begun_ms: int
    immunity_ms: int | None
    checks: int
    checked_ms: int | None
    due_ms: int | None  # None unless pending
    half_offset: int | None  # log offset of the half message, or of the parked one
    outcome: str | None = None
    decided_by: DecidedBy | None = None
    decided_ms: int | None = None
    reason: str | None = None
    check_number: int | None = None  # the check whose answer decided


def folded(
    row: TransactionRow | None,
    event: TransactionEvent,
    *,
    broker_name: str,
    next_offset: int,
    rules: CheckRules,
) -> TransactionRow | None:
    """Return a transaction's row after *event*, or *row* itself if nothing changes.

    Args:
        row: The row before; None if there is none.
        event: The event from the log.
        broker_name: The broker whose log it is.
        next_offset: Log offset of the record after the event.
        rules: The settings of checking.
    """
    if row is not None and _was_folded(row, next_offset):
        return row
    if row is not None and _is_used_again(row, event):
        row = None
    known = TRANSACTION_ROW.after(_known(row), _told(event))
    if known is None:
        return row
    match event:
        case TransactionBegun():
            after = _begun(event, broker_name, next_offset, rules)
        case TransactionChecked():
            assert row is not None
            if event.number != row.checks + 1:
                return row
            after = _checked(row, event, rules)
        case TransactionParked():
            assert row is not None
            after = _parked(row, event, next_offset)
        case TransactionDecided():
            after = _decided(row, event, broker_name)
        case TransactionCarried() if row is not None:
            after = replace(row, half_offset=next_offset)
        case TransactionCarried():
            after = _carried(event, broker_name, next_offset, rules)
    assert _known(after) is known
    assert (after.due_ms is not None) == (known is Known.PENDING), "only a pending one is due"
    return after


def row_of(detail: TransactionDetail, *, rules: CheckRules) -> TransactionRow:
    """Return the row of a transaction in the broker's own view."""
    begun_ms, seconds = ms_of(detail.begun_at), detail.check_immunity_seconds
    immunity_ms = None if seconds is None else round(seconds * 1000)
    checked_ms = None if detail.last_check_at is None else ms_of(detail.last_check_at)
    due = due_ms(begun_ms, own_immunity_ms=immunity_ms, checked_ms=checked_ms, rules=rules)
    decision = detail.decision
    return TransactionRow(
        detail.broker_name,
        detail.transaction_id,
        detail.producer_group,
        detail.topic,
        detail.queue_id,
        state=detail.state,
        begun_ms=begun_ms,
        immunity_ms=immunity_ms,
        checks=detail.checks,
        checked_ms=checked_ms,
        due_ms=due if detail.state == "pending" else None,
        half_offset=detail.half_log_offset,
        outcome=None if decision is None else decision.outcome,
        decided_by=None if decision is None else decision.by,
        decided_ms=None if decision is None else ms_of(decision.decided_at),
        reason=None if decision is None else decision.reason,
        check_number=None if decision is None else decision.check_number,
    )


def _known(row: TransactionRow | None) -> Known:
    return Known.UNKNOWN if row is None else Known(row.state)


def _told(event: TransactionEvent) -> Told:
    match event:
        case TransactionBegun():
            return Told.BEGUN
        case TransactionChecked():
            return Told.CHECKED
        case TransactionParked():
            return Told.PARKED
        case TransactionDecided():
            return Told.COMMIT if event.outcome == "commit" else Told.ROLLBACK
        case TransactionCarried():
            return Told.CARRIED if event.parked_at is None else Told.PARKED_CARRIED


def _was_folded(row: TransactionRow, next_offset: int) -> bool:
    """Tell whether an event is before the half message, which only moves forward."""
    return row.half_offset is not None and next_offset <= row.half_offset


def _is_used_again(row: TransactionRow, event: TransactionEvent) -> bool:
    """Return whether *event* belongs to a new transaction with the id of the finished *row*.

    It comes later in the log, but its time may be earlier if the broker's clock was set back.
    """
    if _known(row) in _OPEN or row.decided_ms is None:
        return False
    match event:
        case TransactionBegun() | TransactionDecided() | TransactionCarried():
            return event.begun_at != row.begun_ms
        case TransactionChecked() | TransactionParked():
            return False


def _begun(
    event: TransactionBegun, broker_name: str, next_offset: int, rules: CheckRules
) -> TransactionRow:
    return TransactionRow(
        broker_name,
        event.transaction_id,
        event.producer_group,
        event.topic,
        event.queue_id,
        state="pending",
        begun_ms=event.begun_at,
        immunity_ms=event.immunity_ms,
        checks=0,
        checked_ms=None,
        due_ms=due_ms(
            event.begun_at, own_immunity_ms=event.immunity_ms, checked_ms=None, rules=rules
        ),
        half_offset=next_offset,
    )


def _checked(row: TransactionRow, event: TransactionChecked, rules: CheckRules) -> TransactionRow:
    due = due_ms(
        row.begun_ms,
        own_immunity_ms=row.immunity_ms,
        checked_ms=event.checked_at,
        rules=rules,
    )
    return replace(row, checks=event.number, checked_ms=event.checked_at, due_ms=due)


def _parked(row: TransactionRow, event: TransactionParked, next_offset: int) -> TransactionRow:
    return replace(
        row,
        state="parked",
        due_ms=None,
        half_offset=next_offset,
        outcome="rollback",
        decided_by="limit",
        decided_ms=event.parked_at,
        reason=event.reason,
    )


def _decided(
    row: TransactionRow | None, event: TransactionDecided, broker_name: str
) -> TransactionRow:
    known: dict[str, Any] = {
        "state": _STATES[event.outcome],
        "due_ms": None,
        "outcome": event.outcome,
        "decided_by": event.by,
        "decided_ms": event.decided_at,
        "reason": event.reason,
        "check_number": event.check_number,
    }
    if row is not None:
        return replace(row, **known)
    return TransactionRow(
        broker_name,
        event.transaction_id,
        event.producer_group,
        event.topic,
        event.queue_id,
        begun_ms=event.begun_at,
        immunity_ms=None,
        checks=event.checks,
        checked_ms=None,
        half_offset=None,
        **known,
    )


def _carried(
    event: TransactionCarried,
    broker_name: str,
    next_offset: int,
    rules: CheckRules,
) -> TransactionRow:
    is_parked = event.parked_at is not None
    due = due_ms(
        event.begun_at,
        own_immunity_ms=event.immunity_ms,
        checked_ms=event.checked_at,
        rules=rules,
    )
    return TransactionRow(
        broker_name,
        event.transaction_id,
        event.producer_group,
        event.topic,
        event.queue_id,
        state="parked" if is_parked else "pending",
        begun_ms=event.begun_at,
        immunity_ms=event.immunity_ms,
        checks=event.checks,
        checked_ms=event.checked_at,
        due_ms=None if is_parked else due,
        half_offset=next_offset,
        outcome="rollback" if is_parked else None,
        decided_by="limit" if is_parked else None,
        decided_ms=event.parked_at,
    )
