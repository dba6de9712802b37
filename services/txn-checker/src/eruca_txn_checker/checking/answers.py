"""Store a producer's answer first, then forward it to the broker, which decides.

The states of an answer::

    given ──stored──▶ forwarding ──the broker accepts it, or refuses it for good──▶ forwarded
                       │    ▲
                       └────┘  broker unreachable: the instance with its claim retries

A producer gets its response once the broker has decided. If the broker is unreachable, or this
instance dies in between, the answer is not lost: it is forwarded before another check is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from eruca.contract.errors import (
    AlreadyDecidedError,
    CheckNotFoundError,
    CheckOutOfTurnError,
    DatabaseUnavailableError,
    ErucaError,
    OtherProducerGroupError,
    OverloadedError,
    TopicNotFoundError,
    TransactionNotFoundError,
)
from eruca.contract.transaction_events import Outcome
from eruca.contract.transactions import (
    CheckAnswer,
    CheckOutcome,
    CheckVerdict,
    Decide,
    DecisionReceipt,
    TransactionDecision,
)
from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_postgres.notices import notify
from eruca_txn_checker.checking.broker_calls import AWAY, BrokerCalls, away
from eruca_txn_checker.checking.showing import decision_of_row
from eruca_txn_checker.core.notices import DUE
from eruca_txn_checker.projection.check_rows import (
    KnownCheck,
    note_answer,
    note_fault,
    note_forwarded,
)
from eruca_txn_checker.projection.listing import find_rows

_FOR_GOOD = (
    AlreadyDecidedError,
    CheckOutOfTurnError,
    OtherProducerGroupError,
    TopicNotFoundError,
    TransactionNotFoundError,
)
"""Refusals that a retry would not change."""

_log = structlog.get_logger()


@dataclass(slots=True)
class AnswerCounts:
    """Answers since the start."""

    answers: dict[CheckVerdict, int] = field(default_factory=dict)
    too_late: int = 0  # the opposite had been decided
    told_again: int = 0  # the broker had been unreachable


class Answers:
    """Takes producers' answers.

    Args:
        database: Stores the answers.
        calls: Requests to the brokers.
        clock: The clock that all instances share.
    """

    def __init__(self, database: Database, calls: BrokerCalls, clock: Clock) -> None:
        self.counts = AnswerCounts()
        self._database = database
        self._calls = calls
        self._clock = clock

    async def take(
        self,
        check_id: str,
        answer: CheckAnswer,
        require: Callable[[KnownCheck], None] | None = None,
    ) -> CheckOutcome:
        """Store an answer, forward it, and return the outcome.

        Args:
            check_id: The check.
            answer: The answer.
            require: Refuses, by raising, a caller that may not answer the check; None: all may.

        Raises:
            CheckNotFoundError: The check does not exist.
            AlreadyDecidedError: The opposite had been decided.
            BrokerUnreachableError: The broker is unreachable; the answer is stored.
            DatabaseUnavailableError: The answer is not stored.
        """
        async with self._database.transaction() as connection:
            known = await note_answer(
                connection,
                check_id,
                answer.answer,
                answered_by=answer.client_id,
                reason=answer.reason,
                now_ms=self._clock.now_ms(),
            )
            if known is not None and require is not None:
                require(known)  # a refusal rolls the answer back
        if known is None:
            raise CheckNotFoundError(f"check {check_id!r} not found; it may have been deleted")
        counts = self.counts.answers
        counts[answer.answer] = counts.get(answer.answer, 0) + 1
        try:
            return await self._come_of(known, answer)
        except AlreadyDecidedError:
            self.counts.too_late += 1
            raise

    async def _come_of(self, known: KnownCheck, answer: CheckAnswer) -> CheckOutcome:
        if known.answer is not None and known.answer != "unknown" and known.is_forwarding:
            receipt = await self._forward(known)
            if known.answer == answer.answer:
                return outcome_of(known, receipt)
        if answer.answer == "unknown":
            return await self._undecided(known)
        # It was answered before: the broker knows whether this answer is the same.
        return outcome_of(known, await self._tell(known, answer.answer, answer.reason))

    async def forward_left(self, left: Sequence[KnownCheck]) -> list[str]:
        """Forward stored answers that the broker has not confirmed.

        Return the ids of the checks whose answers the broker refuses for now, for instance because
        its timers have no room for a delayed message.

        Raises:
            ErucaError: The broker is unreachable.
        """
        refused: list[str] = []
        for known in left:
            try:
                await self._forward_now(known)
            except _FOR_GOOD as error:
                _log.warning(
                    "answer came to nothing", transaction=known.transaction_id, why=str(error)
                )
            except ErucaError as error:
                if isinstance(error, AWAY) and not isinstance(error, OverloadedError):
                    raise
                refused.append(known.check_id)
                _log.error("answer refused", transaction=known.transaction_id, why=str(error))
            else:
                self.counts.told_again += 1
        return refused

    async def _forward(self, known: KnownCheck) -> DecisionReceipt:
        try:
            return await self._forward_now(known)
        except DatabaseUnavailableError:
            raise
        except AWAY as error:
            await self._notify_kept()
            kept = "the answer is stored and will be forwarded when the broker is back"
            raise away(known.broker_name, error, then=kept) from error

    async def _notify_kept(self) -> None:
        """Wake the instance that holds the broker's claim, so that it forwards the answer."""
        try:
            async with self._database.transaction() as connection:
                await notify(connection, DUE)
        except DatabaseUnavailableError:
            return  # the slow poll finds the stored answer when the database is back

    async def _forward_now(self, known: KnownCheck) -> DecisionReceipt:
        """Forward a stored answer; mark it forwarded once the broker accepts or refuses it."""
        assert known.answer is not None
        try:
            receipt = await self._decide(known, known.answer, known.answer_reason)
        except _FOR_GOOD as error:
            await self._note_end(known, error)
            raise
        await self._note_end(known, None)
        return receipt

    async def _tell(
        self, known: KnownCheck, answer: CheckVerdict, reason: str | None
    ) -> DecisionReceipt:
        try:
            return await self._decide(known, answer, reason)
        except AWAY as error:
            raise away(known.broker_name, error, then="retry later") from error

    async def _decide(self, known: KnownCheck, answer: str, reason: str | None) -> DecisionReceipt:
        outcome: Outcome = "commit" if answer == "commit" else "rollback"
        request = Decide(
            producer_group=known.producer_group,
            by="check",
            check_number=known.number,
            reason=reason,
        )
        return await self._calls.decide(known.broker_name, known.transaction_id, outcome, request)

    async def _note_end(self, known: KnownCheck, error: ErucaError | None) -> None:
        async with self._database.transaction() as connection:
            await note_forwarded(connection, known.check_id)
            if error is not None:
                await notify(connection, DUE)  # still pending and no longer forwarding: due again
                await note_fault(connection, known.check_id, error.detail)

    async def _undecided(self, known: KnownCheck) -> CheckOutcome:
        async with self._database.transaction() as connection:
            rows = await find_rows(connection, known.transaction_id, known.broker_name)
        return CheckOutcome(
            check_id=known.check_id,
            transaction_id=known.transaction_id,
            state=rows[0].state if rows else "pending",
            decision=decision_of_row(rows[0]) if rows else None,
        )


def outcome_of(known: KnownCheck, receipt: DecisionReceipt) -> CheckOutcome:
    """Return the broker's decision as the response to a producer."""
    decision = TransactionDecision.model_validate(
        {
            "outcome": receipt.outcome,
            "by": receipt.by,
            "decided_at": receipt.decided_at,
            "reason": receipt.reason,
            "check_number": receipt.check_number,
        }
    )
    return CheckOutcome(
        check_id=known.check_id,
        transaction_id=known.transaction_id,
        state=receipt.state,
        decision=decision,
        repeated=receipt.repeated,
    )
