"""The common part of all writes about a transaction: the turn, the event, the possible states.

Each of them is one write: an event and the records that belong to it. It is decided in the
transaction's turn, on the state that all earlier events have made. So the first decision wins. The
same decision gets the same answer, and the opposite gets an error that names the first. A request
that comes during a write waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from eruca.contract.errors import ErucaError, TransactionNotFoundError, ValidationError
from eruca.contract.records import Host
from eruca.contract.transaction_events import Outcome, TransactionEvent
from eruca.contract.transactions import DecidedBy, DecisionReceipt
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.records.half_messages import OP_PLACE, op_message
from eruca_broker.core.state.transactions import LiveTransaction
from eruca_broker.processors.transactions.decisions import (
    Decision,
    decision_of,
    decision_of_parked,
    receipt_of,
)
from eruca_broker.processors.transactions.log import TransactionLog
from eruca_broker.processors.turns import Turns
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock

WriteOutcome: TypeAlias = list[Appended] | Exception
PAST: Final = {"commit": "committed", "rollback": "rolled back"}


@dataclass(slots=True)
class TransactionCounts:
    """The outcomes of transactions since the start."""

    begun: int = 0
    decided: Counter[tuple[Outcome, DecidedBy]] = field(default_factory=Counter)
    checks: int = 0
    repeated: int = 0  # repeated requests
    conflicts: int = 0  # … requests for the opposite of the decision


class TransactionWrites:
    """Writes about the transactions of one store, one at a time for each."""

    def __init__(
        self, store: MessageStore, log: TransactionLog, *, store_host: Host, clock: Clock
    ) -> None:
        self.store = store
        self.log = log
        self.clock = clock
        self.counts = TransactionCounts()
        self.turns = Turns()
        self._store_host = store_host

    def pending(self, transaction_id: str, wanted: str) -> LiveTransaction:
        """Return a transaction that is pending.

        Raises:
            TransactionNotFoundError: There is none with this id in the log.
            AlreadyDecidedError: It was decided, or parked; *wanted* is the operation that is
                refused.
        """
        live = self.store.state.transactions.get(transaction_id)
        if live is None:
            if (ended := self.log.ended(transaction_id)) is None:
                raise not_found(transaction_id)
            raise self.conflict(decision_of(ended.event), wanted)
        if live.parked_at is not None:
            raise self.conflict(self.parked_by(live), wanted)
        return live

    def parked_by(self, live: LiveTransaction) -> Decision:
        """Return the decision by which a transaction was parked."""
        return decision_of_parked(live, self.log.parked(live))

    def parked_before(self, live: LiveTransaction, outcome: Outcome) -> DecisionReceipt:
        """Return the receipt of the rollback after the last check, for a request for the same.

        Raises:
            AlreadyDecidedError: The request is for the opposite.
        """
        decision = self.parked_by(live)
        if outcome != "rollback":
            raise self.conflict(decision, PAST[outcome])
        self.counts.repeated += 1
        return receipt_of(decision, durability=self.store.durability, repeated=True)

    def conflict(self, decision: Decision, wanted: str) -> ErucaError:
        """Return the error for a request for the opposite decision."""
        self.counts.conflicts += 1
        return decision.conflict(wanted)

    def op_batch(self, half_queue_offset: int, now_ms: int) -> Batch:
        """Return the op message that marks the half message at this queue offset as finished."""
        op = op_message(half_queue_offset, now_ms=now_ms, host=self._store_host)
        return batch_of_records(*OP_PLACE, [op])

    def write(
        self,
        event: TransactionEvent,
        batches: Sequence[Batch],
        settle: Callable[[WriteOutcome], None],
    ) -> None:
        """Append in the transaction's turn, which *settle* ends."""
        self.turns.take(event.transaction_id)
        try:
            self.append(event, batches, settle)
        except Exception:
            self.turns.give(event.transaction_id)
            raise

    def append(
        self,
        event: TransactionEvent,
        batches: Sequence[Batch],
        settle: Callable[[WriteOutcome], None],
    ) -> None:
        """Append the event and its records as one; the turn has been taken."""
        self.store.append_group_then(batches, None, settle, head=event)


def not_found(transaction_id: str) -> TransactionNotFoundError:
    """Return the error for an id that the log does not contain."""
    return TransactionNotFoundError(
        f"no transaction {transaction_id!r} was begun at this broker, as far as its log remembers"
    )


def body_fault(pointer: str, detail: str) -> ValidationError:
    """Return the error for a part of a request, by its JSON pointer."""
    return ValidationError.at(pointer, detail)
