"""Check a transaction that nobody decides, and expire it when its checks are used up.

The broker decides whether a check is due, and which number it has. So no check is made twice, no
matter who makes it. An expired transaction is rolled back, and parked where an operator can see it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from eruca.contract.errors import CheckOutOfTurnError
from eruca.contract.transaction_events import TransactionChecked, TransactionParked
from eruca.contract.transactions import (
    CheckGrant,
    CheckRequest,
    DecisionReceipt,
    ExpireRequest,
)
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.half_messages import PARKED_PLACE, parked, queue_offset_of
from eruca_broker.core.records.times import moment, rfc3339
from eruca_broker.core.state.transactions import LiveTransaction
from eruca_broker.processors.transactions.decisions import Decision, receipt_of
from eruca_broker.processors.transactions.log import told_whose
from eruca_broker.processors.transactions.writes import TransactionWrites, WriteOutcome

Checked: TypeAlias = Callable[[CheckGrant | Exception], None]
GivenUp: TypeAlias = Callable[[DecisionReceipt | Exception], None]


class TransactionChecking:
    """Grants checks, and expires transactions."""

    def __init__(self, writes: TransactionWrites) -> None:
        self._writes = writes

    def check(self, transaction_id: str, request: CheckRequest, done: Checked) -> None:
        """Grant a check, and call *done* once that is as durable as configured.

        Raises:
            TransactionNotFoundError: There is none with this id in the log.
            AlreadyDecidedError: It needs no further check.
            CheckOutOfTurnError: The number is not the next one, or it is too early for a check.
        """
        if self._writes.turns.is_taken(transaction_id):
            again = partial(self.check, transaction_id, request, done)
            self._writes.turns.wait(transaction_id, again, done)
            return
        live, now_ms = self._writes.pending(transaction_id, "checked"), self._writes.clock.now_ms()
        if request.number != live.checks + 1:
            raise CheckOutOfTurnError(
                f"transaction {transaction_id!r} has been checked {live.checks} times; the next "
                f"check is number {live.checks + 1}, not {request.number}"
            )
        _check_immunity(live, now_ms)
        event = TransactionChecked(
            transaction_id, request.number, request.checker, checked_at=now_ms
        )
        self._writes.write(event, [], partial(self._checked, event, done))

    def _checked(self, event: TransactionChecked, done: Checked, outcome: WriteOutcome) -> None:
        if isinstance(outcome, Exception):
            done(outcome)
        else:
            self._writes.counts.checks += 1
            done(
                CheckGrant(
                    transaction_id=event.transaction_id,
                    number=event.number,
                    checked_at=moment(event.checked_at),
                )
            )
        self._writes.turns.give(event.transaction_id)

    def expire(self, transaction_id: str, request: ExpireRequest, done: GivenUp) -> None:
        """Roll back and park, and call *done* once that is as durable as configured.

        Raises:
            TransactionNotFoundError: There is none with this id in the log.
            AlreadyDecidedError: It was decided.
            CheckOutOfTurnError: It has had another number of checks.
            RecordNotFoundError: The message to park is damaged; it stays pending.
        """
        if self._writes.turns.is_taken(transaction_id):
            again = partial(self.expire, transaction_id, request, done)
            self._writes.turns.wait(transaction_id, again, done)
            return
        known = self._writes.store.state.transactions.get(transaction_id)
        if known is not None and known.parked_at is not None:
            done(self._writes.parked_before(known, "rollback"))
            return
        live, now_ms = self._writes.pending(transaction_id, "given up"), self._writes.clock.now_ms()
        if request.checks != live.checks:
            raise CheckOutOfTurnError(
                f"transaction {transaction_id!r} has been checked {live.checks} times, not "
                f"{request.checks}"
            )
        _check_immunity(live, now_ms)
        with told_whose(live):
            half, _ = self._writes.log.message_of(live)
            batches = [
                batch_of_records(*PARKED_PLACE, [parked(half, live.checks)]),
                self._writes.op_batch(queue_offset_of(half), now_ms),
            ]
        event = TransactionParked(
            transaction_id,
            live.checks,
            request.checker,
            parked_at=now_ms,
            group_size=sum(batch.size for batch in batches),
            reason=request.reason,
        )
        self._writes.write(event, batches, partial(self._parked, event, done))

    def _parked(self, event: TransactionParked, done: GivenUp, outcome: WriteOutcome) -> None:
        if isinstance(outcome, Exception):
            done(outcome)
        else:
            self._writes.counts.decided["rollback", "limit"] += 1
            decision = Decision(
                event.transaction_id, "rollback", "limit", event.parked_at, event.reason
            )
            done(receipt_of(decision, durability=self._writes.store.durability))
        self._writes.turns.give(event.transaction_id)


def _check_immunity(live: LiveTransaction, now_ms: int) -> None:
    not_before = live.begun_at + (live.immunity_ms or 0)
    if now_ms < not_before:
        raise CheckOutOfTurnError(
            f"transaction {live.transaction_id!r} asked for no check before {rfc3339(not_before)}"
        )
