"""Begin and decide many transactions in one request, as the SDK does under load.

Each transaction has its own outcome: a receipt, or the problem that it would have got alone. The
answer comes once the last outcome is known, and each is as durable as the broker promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from eruca.contract.access import Right
from eruca.contract.errors import (
    ErucaError,
    MalformedBodyError,
    NotAcceptableError,
    OverloadedError,
    TooLargeError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca.contract.limits import JSON_BODY_SIZE_MAX
from eruca.contract.transactions import (
    BegunTransaction,
    BegunTransactions,
    DecidedTransaction,
    DecidedTransactions,
    DecisionReceipt,
    NewTransactions,
    TransactionReceipt,
    TransactionsToDecide,
)
from eruca.contract.wire import JSON_MEDIA_TYPE
from eruca_access.needs import to
from eruca_broker.api.bodies import StructBody
from eruca_broker.api.examples import transactions as examples
from eruca_broker.api.peers import born_host
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.api.transactions.deciding import BeginEndpoint, DecideEndpoint
from eruca_broker.processors.transactions.outcomes import Outcomes
from eruca_chassis.admission.needs import found, in_body
from eruca_chassis.asgi import problem_body
from eruca_chassis.connections.exchange import JSON_OK, Exchange, RequestHead
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.negotiation import choose
from eruca_chassis.routes.hot_router import HotRouter

router = HotRouter(tags=["transactions"])

_ANSWERED_IN: Final = (JSON_MEDIA_TYPE,)
_NEW: Final = StructBody(NewTransactions, examples.NEW_MANY)
_TO_DECIDE: Final = StructBody(TransactionsToDecide, examples.DECIDE_MANY)
_ENCODER: Final = msgspec.json.Encoder()
_ERRORS: Final[tuple[type[ErucaError], ...]] = (
    MalformedBodyError,
    NotAcceptableError,
    TooLargeError,
    UnsupportedMediaTypeError,
    ValidationError,
    OverloadedError,
    *WRITE_REFUSALS,
)


@router.hot(
    "POST",
    "/v1/transactions:begin",
    operation_id="beginTransactions",
    needs=to(
        Right.PRODUCE,
        topic=in_body("transactions.topic"),
        group=in_body("transactions.producer_group"),
    ),
    summary="Store many half messages",
    takes=(_NEW.content,),
    responses=answer(
        examples.BEGUN_MANY,
        model=BegunTransactions,
        description="An outcome for each transaction, in the order of the request.",
    )
    | problems(*_ERRORS),
)
class BeginTransactions(BeginEndpoint):
    """Begin many transactions, each as if it had been begun alone.

    They are independent: `results` has a receipt or a problem for each, in the order of the
    request. Those that are stored share a write. If the answer is lost, each request with ids of
    its own may be repeated.
    """

    def handle(self, exchange: Exchange) -> None:
        """Store the half messages; :func:`_answer_begun` answers."""
        requests, host = _NEW.read(exchange.body).transactions, born_host(exchange.client)
        outcomes: Outcomes[TransactionReceipt] = Outcomes(
            len(requests), partial(exchange.resume, _answer_begun, exchange)
        )
        for index, request in enumerate(requests):
            outcomes.take(index, partial(self.begin, exchange, host, request))


@router.hot(
    "POST",
    "/v1/transactions:decide",
    operation_id="decideTransactions",
    needs=to(Right.PRODUCE, topic=found("topic"), group=found("producer_group")),
    summary="Commit or roll back many transactions",
    takes=(_TO_DECIDE.content,),
    responses=answer(
        examples.DECIDED_MANY,
        model=DecidedTransactions,
        description="An outcome for each transaction, in the order of the request.",
    )
    | problems(*_ERRORS),
)
class DecideTransactions(DecideEndpoint):
    """Decide many transactions, each as if it had been decided alone.

    They are independent: `results` has a receipt or a problem for each, in the order of the
    request. Repeating the request is harmless: the first decision of each wins.
    """

    body_limit = (JSON_BODY_SIZE_MAX, "json_body_size_max")

    @staticmethod
    def read(head: RequestHead) -> None:
        """Refuse a request for another media type."""
        choose(head.headers.get(b"accept"), _ANSWERED_IN)

    def handle(self, exchange: Exchange) -> None:
        """Decide; :func:`_answer_decided` answers."""
        requests = _TO_DECIDE.read(exchange.body).transactions
        outcomes: Outcomes[DecisionReceipt] = Outcomes(
            len(requests), partial(exchange.resume, _answer_decided, exchange)
        )
        for index, request in enumerate(requests):
            decide = partial(
                self.decide, exchange, request.transaction_id, request.outcome, request
            )
            outcomes.take(index, decide)


def _answer_begun(exchange: Exchange, outcomes: Sequence[TransactionReceipt | Exception]) -> None:
    results = [
        BegunTransaction(**_problem_members(exchange, outcome))
        if isinstance(outcome, Exception)
        else BegunTransaction(receipt=outcome)
        for outcome in outcomes
    ]
    exchange.answer(JSON_OK, _ENCODER.encode(BegunTransactions(results)))


def _answer_decided(exchange: Exchange, outcomes: Sequence[DecisionReceipt | Exception]) -> None:
    results = [
        DecidedTransaction(**_problem_members(exchange, outcome))
        if isinstance(outcome, Exception)
        else DecidedTransaction(receipt=outcome)
        for outcome in outcomes
    ]
    exchange.answer(JSON_OK, _ENCODER.encode(DecidedTransactions(results)))


def _problem_members(exchange: Exchange, error: Exception) -> dict[str, Any]:
    shown = exchange.shown(error)
    return {
        "problem": msgspec.Raw(problem_body(shown, exchange.request_id)),
        "retry_after_seconds": shown.retry_after_seconds,
    }
