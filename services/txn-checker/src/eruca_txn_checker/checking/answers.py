"""What a producer answers: kept first, then told to the broker, which decides.

An answer goes so::

    given ──kept──▶ settling ──the broker has taken it, or refused it for good──▶ settled
                     │    ▲
                     └away┘  told again by whoever has the broker's lease

A producer is answered when the broker has. Where the broker is away, or this instance dies between
the two, the answer is not lost: it is told before anybody is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    note_settled,
)
from eruca_txn_checker.projection.listing import find_rows

_FOR_GOOD = (
    AlreadyDecidedError,
    CheckOutOfTurnError,
    OtherProducerGroupError,
    TopicNotFoundError,
    TransactionNotFoundError,
)
"""Refusals that telling it again would not change."""

_log = structlog.get_logger()


@dataclass(slots=True)
class AnswerCounts:
    """Answers since the start."""

    answers: dict[CheckVerdict, int] = field(default_factory=dict)
    too_late: int = 0  # it had been decided otherwise
    told_again: int = 0  # the broker had been away


class Answers:
    """Takes producers' answers.

    Args:
        database: Where they are kept.
        calls: To the brokers.
        clock: The one that all instances share.
    """

    def __init__(self, database: Database, calls: BrokerCalls, clock: Clock) -> None:
        self.counts = AnswerCounts()
        self._database = database
        self._calls = calls
        self._clock = clock

    async def take(self, check_id: str, answer: CheckAnswer) -> CheckOutcome:
        """Keep an answer, tell it, and return what came of it.

        Raises:
            CheckNotFoundError: There was no such check.
            AlreadyDecidedError: It had been decided otherwise.
            BrokerUnreachableError: The broker is away; the answer is kept.
            DatabaseUnavailableError: Nothing is kept.
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
        if known is None:
            raise CheckNotFoundError(f"there is no check {check_id!r}, or not any more")
        counts = self.counts.answers
        counts[answer.answer] = counts.get(answer.answer, 0) + 1
        try:
            return await self._come_of(known, answer)
        except AlreadyDecidedError:
            self.counts.too_late += 1
            raise

    async def _come_of(self, known: KnownCheck, answer: CheckAnswer) -> CheckOutcome:
        if known.answer is not None and known.answer != "unknown" and known.is_settling:
            receipt = await self._settle(known)
            if known.answer == answer.answer:
                return outcome_of(known, receipt)
        if answer.answer == "unknown":
            return await self._undecided(known)
        # It was answered before: the broker tells whether that was the same.
        return outcome_of(known, await self._tell(known, answer.answer, answer.reason))

    async def settle_left(self, left: Sequence[KnownCheck]) -> list[str]:
        """Tell a broker answers that it was not heard to know.

        Return the ids of the checks whose answers it does not take now, and may take later: a
        delayed message finds no room among its timers, say.

        Raises:
            ErucaError: It is away.
        """
        refused: list[str] = []
        for known in left:
            try:
                await self._calls_settle(known)
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

    async def _settle(self, known: KnownCheck) -> DecisionReceipt:
        try:
            return await self._calls_settle(known)
        except DatabaseUnavailableError:
            raise
        except AWAY as error:
            await self._notify_kept()
            kept = "the answer is kept, and told to it when it is back"
            raise away(known.broker_name, error, then=kept) from error

    async def _notify_kept(self) -> None:
        """Wake the instance that has the broker's lease: an answer is left for it to tell."""
        try:
            async with self._database.transaction() as connection:
                await notify(connection, DUE)
        except DatabaseUnavailableError:
            return  # the answer is kept all the same, and found when the database is back

    async def _calls_settle(self, known: KnownCheck) -> DecisionReceipt:
        """Tell the broker, and note that it knows, or will not have it."""
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
            raise away(known.broker_name, error, then="repeat it later") from error

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
            await note_settled(connection, known.check_id)
            if error is not None:
                await notify(connection, DUE)  # it is still pending, and no longer settling
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
    """Return what a producer is told of the broker's decision."""
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
