"""Render rows as the API's models."""

from __future__ import annotations

from typing import Any

from eruca.contract.transactions import (
    CheckedTransaction,
    SentCheck,
    TransactionDecision,
    TransactionSummary,
)
from eruca_txn_checker.core.moments import moment, moment_or_none
from eruca_txn_checker.core.transaction_rows import TransactionRow
from eruca_txn_checker.projection.check_rows import CheckRow


def decision_of_row(row: TransactionRow) -> TransactionDecision | None:
    """Return the decision of a transaction; None while it is pending."""
    if row.outcome is None or row.decided_by is None or row.decided_ms is None:
        return None
    return TransactionDecision.model_validate(
        {
            "outcome": row.outcome,
            "by": row.decided_by,
            "decided_at": moment(row.decided_ms),
            "reason": row.reason,
            "check_number": row.check_number,
        }
    )


def summary_of(row: TransactionRow) -> TransactionSummary:
    """Return a transaction as an entry of a list."""
    return TransactionSummary(**_summary(row))


def shown(row: TransactionRow, checks: list[CheckRow]) -> CheckedTransaction:
    """Return a transaction with its checks."""
    return CheckedTransaction(
        **_summary(row),
        next_check_at=moment_or_none(row.due_ms),
        checks_sent=[_sent(check) for check in checks],
    )


def _summary(row: TransactionRow) -> dict[str, Any]:
    return {
        "transaction_id": row.transaction_id,
        "broker_name": row.broker_name,
        "producer_group": row.producer_group,
        "topic": row.topic,
        "queue_id": row.queue_id,
        "state": row.state,
        "begun_at": moment(row.begun_ms),
        "check_immunity_seconds": None if row.immunity_ms is None else row.immunity_ms / 1000,
        "checks": row.checks,
        "last_check_at": moment_or_none(row.checked_ms),
        "decision": decision_of_row(row),
        "half_log_offset": row.half_offset,
    }


def _sent(check: CheckRow) -> SentCheck:
    return SentCheck.model_validate(
        {
            "check_id": check.check_id,
            "number": check.number,
            "checker": check.checker,
            "checked_at": moment(check.checked_ms),
            "asked": check.asked,
            "asked_at": moment_or_none(check.asked_ms),
            "answer_until": moment_or_none(check.answer_until_ms),
            "answer": check.answer,
            "answered_by": check.answered_by,
            "answered_at": moment_or_none(check.answered_ms),
            "reason": check.answer_reason,
            "fault": check.fault,
        }
    )
