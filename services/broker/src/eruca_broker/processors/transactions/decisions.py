"""The decisions about transactions.

A request for the same decision gets the same answer. A request for the opposite is refused. A
transaction whose checks are used up has a decision too: a rollback by the limit, which only an
operator may still turn into a commit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eruca.contract.errors import AlreadyDecidedError, RecordNotFoundError
from eruca.contract.names import OP_HALF_TOPIC
from eruca.contract.transaction_events import Outcome, TransactionDecided, TransactionParked
from eruca.contract.transactions import (
    CommittedPlace,
    DecidedBy,
    DecisionReceipt,
    TransactionDecision,
)
from eruca_broker.core.records.scheduled import (
    DELAYED_TOPICS,
    delivery_time,
    destination_of,
)
from eruca_broker.core.records.times import moment, rfc3339
from eruca_broker.core.state.transactions import LiveTransaction
from eruca_broker.processors.transactions.log import Ended, TransactionLog


class Decision(NamedTuple):
    """A decision."""

    transaction_id: str
    outcome: Outcome
    by: DecidedBy
    decided_at_ms: int
    reason: str | None = None
    check_number: int | None = None

    @property
    def is_final(self) -> bool:
        """Return True if not even an operator can change it."""
        return self.by != "limit"

    def shown(self) -> TransactionDecision:
        """Return it in the form of an answer."""
        return TransactionDecision(
            outcome=self.outcome,
            by=self.by,
            decided_at=moment(self.decided_at_ms),
            reason=self.reason,
            check_number=self.check_number,
        )

    def conflict(self, wanted: str) -> AlreadyDecidedError:
        """Return the error for a request for the opposite."""
        said = {"commit": "committed", "rollback": "rolled back"}[self.outcome]
        decided_at = rfc3339(self.decided_at_ms)
        decision: dict[str, Any] = {
            "outcome": self.outcome,
            "by": self.by,
            "decided_at": decided_at,
            "reason": self.reason,
            "check_number": self.check_number,
        }
        return AlreadyDecidedError(
            f"transaction {self.transaction_id!r} was {said} by {_WHO[self.by]} at {decided_at}; "
            f"it cannot be {wanted}",
            decision={name: value for name, value in decision.items() if value is not None},
            fix=None
            if self.is_final
            else "an operator may still commit it, giving a reason: by = operator",
        )


_WHO = {
    "producer": "its producer",
    "check": "the answer to a check",
    "operator": "an operator",
    "limit": "the limit of checks",
}


def decision_of(event: TransactionDecided) -> Decision:
    """Return the decision of an event."""
    return Decision(
        event.transaction_id,
        event.outcome,
        event.by,
        event.decided_at,
        event.reason,
        event.check_number,
    )


def decision_of_parked(live: LiveTransaction, event: TransactionParked | None = None) -> Decision:
    """Return the decision of a parking; only the event knows the reason."""
    assert live.parked_at is not None
    reason = None if event is None else event.reason
    return Decision(live.transaction_id, "rollback", "limit", live.parked_at, reason)


def receipt_of(
    decision: Decision,
    *,
    durability: str,
    message: CommittedPlace | None = None,
    repeated: bool = False,
) -> DecisionReceipt:
    """Return the receipt for a request that made, or repeats, the decision."""
    if decision.by == "limit":
        state = "parked"
    else:
        state = "committed" if decision.outcome == "commit" else "rolled_back"
    return DecisionReceipt(
        transaction_id=decision.transaction_id,
        state=state,  # type: ignore[arg-type]
        outcome=decision.outcome,
        by=decision.by,
        decided_at=rfc3339(decision.decided_at_ms),
        reason=decision.reason,
        check_number=decision.check_number,
        message=message,
        durability=durability,
        repeated=repeated,
    )


def place_of(log: TransactionLog, ended: Ended) -> CommittedPlace | None:
    """Return the place of a committed message, of which only the event is known.

    None if damage to the log hides it: it was committed all the same.
    """
    if ended.event.outcome == "rollback":
        return None
    try:
        offset = log.message_offset(ended.log_offset)
        record = log.record_as_it_is(offset)
    except RecordNotFoundError:
        return None
    assert record.topic != OP_HALF_TOPIC
    properties = record.properties.encode("utf-8", "surrogatepass")
    if record.topic not in DELAYED_TOPICS:
        return CommittedPlace(
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            log_offset=offset,
        )
    destination = destination_of(properties)
    if destination is None:  # damaged too
        return None
    due_ms = delivery_time(record.topic, properties, record.store_timestamp)
    return CommittedPlace(
        topic=destination.topic,
        queue_id=destination.queue_id,
        queue_offset=None,
        log_offset=offset,
        deliver_at=None if due_ms is None else rfc3339(due_ms),
    )
