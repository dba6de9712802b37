"""Begin and decide transactions: hot routes, because each transaction needs two of them.

An answer comes once its content is as durable as the broker promises. A client that disconnects
earlier does not change what happens, and can ask again.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated, ClassVar, Final

import msgspec
from fastapi import Path

from eruca.contract.access import Right
from eruca.contract.errors import (
    AlreadyDecidedError,
    CheckOutOfTurnError,
    ConflictError,
    DerivedTopicError,
    ErucaError,
    MalformedBodyError,
    MisdirectedError,
    NotAcceptableError,
    OtherProducerGroupError,
    OverloadedError,
    PermissionDeniedError,
    QueueNotFoundError,
    SystemTopicError,
    TooLargeError,
    TopicNotFoundError,
    TransactionIdInUseError,
    TransactionNotFoundError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca.contract.limits import JSON_BODY_SIZE_MAX, TRANSACTION_ID_SIZE_MAX
from eruca.contract.records import Host
from eruca.contract.transaction_events import Outcome
from eruca.contract.transactions import (
    Decide,
    DecisionReceipt,
    NewTransaction,
    TransactionId,
    TransactionReceipt,
)
from eruca.contract.wire import JSON_MEDIA_TYPE
from eruca.core.messages.idempotency_keys import HEADER
from eruca_access.needs import on_group, on_topic, to
from eruca_broker.api.bodies import StructBody
from eruca_broker.api.examples import transactions as examples
from eruca_broker.api.peers import born_host
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.api.tracing import traced
from eruca_broker.api.transactions.rights import require_decision
from eruca_broker.processors.budgets import ConsumeBudget, SendBudget
from eruca_broker.processors.transactions.beginning import Begun
from eruca_broker.processors.transactions.deciding import Decided
from eruca_broker.processors.transactions.transactions import Transactions
from eruca_broker.processors.transactions.views import TransactionViews
from eruca_chassis.admission.needs import found, in_body
from eruca_chassis.connections.exchange import (
    JSON_CREATED,
    JSON_OK,
    BodyLimit,
    Exchange,
    RequestHead,
)
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.negotiation import choose
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter

router = HotRouter(prefix="/v1/transactions", tags=["transactions"])

_KEY_HEADER: Final = HEADER.encode()
_ANSWERED_IN: Final = (JSON_MEDIA_TYPE,)
_DECIDE_SIZE_MAX: Final = 64 * 1024  # bytes
_NEW: Final = StructBody(NewTransaction, examples.NEW)
_COMMIT: Final = StructBody(Decide, examples.COMMIT, examples=examples.COMMITS)
_ROLLBACK: Final = StructBody(Decide, examples.ROLLBACK, examples=examples.ROLLBACKS)
_ENCODER: Final = msgspec.json.Encoder()
_WRITE_ERRORS: Final[tuple[type[ErucaError], ...]] = (
    MalformedBodyError,
    NotAcceptableError,
    TooLargeError,
    UnsupportedMediaTypeError,
    ValidationError,
    OverloadedError,
    *WRITE_REFUSALS,
)
_DECIDED: Final = "Decided; `repeated` if the same decision was made before."
_DECIDE_ERRORS: Final = problems(
    TransactionNotFoundError,
    TopicNotFoundError,
    AlreadyDecidedError,
    OtherProducerGroupError,
    CheckOutOfTurnError,
    *_WRITE_ERRORS,
)


class BeginEndpoint(HotEndpoint):
    """Begins one transaction, or each of many."""

    def __init__(self, transactions: Transactions, in_flight: SendBudget) -> None:
        self._transactions = transactions
        self._limit = BodyLimit(in_flight, JSON_BODY_SIZE_MAX, "json_body_size_max")

    @staticmethod
    def read(head: RequestHead) -> None:
        """Refuse the fields that a half message does not use."""
        refuse_idempotency_key(head)
        choose(head.headers.get(b"accept"), _ANSWERED_IN)

    def admit(self, exchange: Exchange) -> None:
        """Refuse the request if the head is enough to refuse it."""
        self._transactions.admit()
        exchange.expect_body(self._limit)

    def begin(self, exchange: Exchange, host: Host, request: NewTransaction, done: Begun) -> None:
        """Store a half message of the caller at *host*; *done* gets the outcome.

        Raises:
            ForbiddenError: The caller lacks a right that it needs.
        """
        if not exchange.access.is_open:
            exchange.access.require(
                on_topic(request.topic, Right.PRODUCE),
                on_group(request.producer_group, Right.PRODUCE),
            )
        [message] = traced([request.message], exchange.request)
        if message is not request.message:
            request = msgspec.structs.replace(request, message=message)
        self._transactions.begin(request, host, done)


@router.hot(
    "POST",
    "",
    operation_id="beginTransaction",
    needs=to(Right.PRODUCE, topic=in_body("topic"), group=in_body("producer_group")),
    summary="Store a half message",
    status_code=HTTPStatus.CREATED,
    takes=(_NEW.content,),
    responses=answer(
        examples.RECEIPT, HTTPStatus.CREATED, model=TransactionReceipt, description="Stored."
    )
    | answer(
        examples.RECEIPT | {"repeated": True},
        model=TransactionReceipt,
        description="It was stored before, and is not decided.",
    )
    | problems(
        PermissionDeniedError,
        DerivedTopicError,
        SystemTopicError,
        TopicNotFoundError,
        QueueNotFoundError,
        ConflictError,
        TransactionIdInUseError,
        AlreadyDecidedError,
        MisdirectedError,
        *_WRITE_ERRORS,
    ),
)
class BeginTransaction(BeginEndpoint):
    """Store a message that no consumer sees until it is committed.

    Do the local work after the answer. Then commit or roll back at this same broker. If neither
    happens, the transaction checker asks the producer group. In the end the broker rolls the
    message back and parks it for an operator.

    The transaction's id is the message's `message_id`, or one that is generated here. With an id of
    its own a request may be repeated: the answer is then 200 with `repeated`. A delay counts from
    the commit; `deliver_at` stays that time.
    """

    def handle(self, exchange: Exchange) -> None:
        """Store the half message; :func:`_answer_begin` answers."""
        self.begin(
            exchange,
            born_host(exchange.client),
            _NEW.read(exchange.body),
            partial(exchange.resume, _answer_begin, exchange),
        )


class DecideEndpoint(HotEndpoint):
    """Decides one transaction, or each of many."""

    body_limit: ClassVar[tuple[int, str]]  # in bytes, and its name

    def __init__(
        self, transactions: Transactions, views: TransactionViews, in_flight: ConsumeBudget
    ) -> None:
        self._transactions = transactions
        self._views = views
        self._limit = BodyLimit(in_flight, *self.body_limit)

    def admit(self, exchange: Exchange) -> None:
        """Refuse the request if the head is enough to refuse it."""
        self._transactions.admit()
        exchange.expect_body(self._limit)

    def decide(
        self,
        exchange: Exchange,
        transaction_id: str,
        outcome: Outcome,
        decision: Decide,
        done: Decided,
    ) -> None:
        """Decide a transaction for the caller; *done* gets the outcome.

        Raises:
            TransactionNotFoundError: The caller has no right on its topic at all.
            ForbiddenError: The caller lacks the right.
        """
        if not exchange.access.is_open:
            require_decision(exchange.access, self._views.owner(transaction_id), decision)
        self._transactions.decide(transaction_id, outcome, decision, done)


class _Decision(DecideEndpoint):
    """Decides a transaction, one way."""

    outcome: ClassVar[Outcome]
    body: ClassVar[StructBody[Decide]]
    body_limit = (_DECIDE_SIZE_MAX, "decide_size_max")

    @staticmethod
    def read(head: RequestHead, transaction_id: Annotated[TransactionId, Path()]) -> str:
        """Return the id of the transaction."""
        if len(transaction_id) > TRANSACTION_ID_SIZE_MAX:
            raise TransactionNotFoundError(
                f"a transaction id has at most {TRANSACTION_ID_SIZE_MAX} characters"
            )
        choose(head.headers.get(b"accept"), _ANSWERED_IN)
        return transaction_id

    def handle(self, exchange: Exchange) -> None:
        """Decide; :func:`_answer_decision` answers."""
        self.decide(
            exchange,
            exchange.request.meaning,
            self.outcome,
            self.body.read(exchange.body),
            partial(exchange.resume, _answer_decision, exchange),
        )


@router.hot(
    "POST",
    "/{transaction_id}:commit",
    operation_id="commitTransaction",
    needs=to(Right.PRODUCE, topic=found("topic"), group=found("producer_group")),
    summary="Commit a transaction",
    takes=(_COMMIT.content,),
    responses=answer(examples.COMMITTED, model=DecisionReceipt, description=_DECIDED)
    | _DECIDE_ERRORS,
)
class CommitTransaction(_Decision):
    """Make the message visible: it is stored in its queue, in one write with the decision.

    The first decision wins. Another commit gets the same answer, with `repeated`. A commit after a
    rollback is 409 `already-decided`; its `decision` contains the time and the author.

    An operator may still commit a transaction that is `parked`.
    """

    outcome = "commit"
    body = _COMMIT


@router.hot(
    "POST",
    "/{transaction_id}:rollback",
    operation_id="rollBackTransaction",
    needs=to(Right.PRODUCE, topic=found("topic"), group=found("producer_group")),
    summary="Roll back a transaction",
    takes=(_ROLLBACK.content,),
    responses=answer(examples.ROLLED_BACK, model=DecisionReceipt, description=_DECIDED)
    | _DECIDE_ERRORS,
)
class RollBackTransaction(_Decision):
    """Ensure that the message is never visible.

    The first decision wins, as for a commit. An operator who rolls back a parked transaction
    discards it.
    """

    outcome = "rollback"
    body = _ROLLBACK


def refuse_idempotency_key(head: RequestHead) -> None:
    """Refuse a header that half messages do not use.

    Raises:
        ValidationError: The header is there.
    """
    if _KEY_HEADER in head.headers:
        detail = "half messages do not accept an idempotency key"
        raise ValidationError(
            detail,
            errors=[{"pointer": "/header/idempotency-key", "detail": detail}],
            fix="give the message a message_id instead: a repeated request with the same id "
            "gets the existing transaction",
        )


def _answer_begin(exchange: Exchange, outcome: TransactionReceipt | Exception) -> None:
    if isinstance(outcome, Exception):
        raise outcome
    head = JSON_OK if outcome.repeated else JSON_CREATED
    exchange.answer(head, _ENCODER.encode(outcome))


def _answer_decision(exchange: Exchange, outcome: DecisionReceipt | Exception) -> None:
    if isinstance(outcome, Exception):
        raise outcome
    exchange.answer(JSON_OK, _ENCODER.encode(outcome))
