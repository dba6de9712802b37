"""Beginning and deciding transactions: hot routes, for a transaction is two of these requests.

An answer comes once what it says is as durable as the broker promises; a client that leaves earlier
changes nothing about what happens, and learns it by asking again.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from eruca.contract.errors import TransactionNotFoundError, ValidationError
from eruca.contract.limits import JSON_BODY_SIZE_MAX, TRANSACTION_ID_SIZE_MAX
from eruca.contract.transaction_events import Outcome
from eruca.contract.transactions import (
    Decide,
    DecisionReceipt,
    NewTransaction,
    TransactionReceipt,
)
from eruca.core.messages.idempotency_keys import HEADER
from eruca_broker.api.bodies import decode_json
from eruca_broker.api.hot.query import parse_query
from eruca_broker.api.hot.tracing import traced
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE, check_request
from eruca_broker.api.peers import born_host
from eruca_broker.processors.transactions.transactions import Transactions
from eruca_chassis.budget import Budget
from eruca_chassis.connections.exchange import JSON_CREATED, JSON_OK, BodyLimit, Exchange

_KEY_HEADER: Final = HEADER.encode()
_NO_PARAMETERS: Final[frozenset[str]] = frozenset()
_DECIDE_SIZE_MAX: Final = 64 * 1024  # bytes
_NEW: Final = msgspec.json.Decoder(NewTransaction)
_DECIDE: Final = msgspec.json.Decoder(Decide)
_NEW_EXAMPLE: Final = (
    '{"topic": "flights", "producer_group": "checkout", "message": {"body": {"text": "hello"}}}'
)
_DECIDE_EXAMPLE: Final = '{"producer_group": "checkout"}'
_ENCODER: Final = msgspec.json.Encoder()


class TransactionRoutes:
    """The handlers."""

    def __init__(
        self, transactions: Transactions, in_flight: Budget, decide_in_flight: Budget
    ) -> None:
        self._transactions = transactions
        self._begin_limit = BodyLimit(in_flight, JSON_BODY_SIZE_MAX, "json_body_size_max")
        self._decide_limit = BodyLimit(decide_in_flight, _DECIDE_SIZE_MAX, "decide_size_max")

    def admit_begin(self, exchange: Exchange) -> None:
        """``POST /v1/transactions``: its head."""
        if _KEY_HEADER in exchange.request.headers:
            detail = "half messages take no idempotency key"
            raise ValidationError(
                detail,
                errors=[{"pointer": "/header/idempotency-key", "detail": detail}],
                fix="give the message a message_id instead: what comes again under it is answered "
                "with the transaction that there is",
            )
        self._admit(exchange, self._begin_limit)

    def begin(self, exchange: Exchange) -> None:
        """``POST /v1/transactions``: its body."""
        request = decode_json(_NEW, exchange.body, _NEW_EXAMPLE)
        [message] = traced([request.message], exchange.request)
        request = msgspec.structs.replace(request, message=message)
        self._transactions.begin(
            request,
            born_host(exchange.client),
            partial(exchange.resume, _answer_begin, exchange),
        )

    def admit_decision(self, exchange: Exchange) -> None:
        """``POST /v1/transactions/{transaction_id}:commit`` or ``:rollback``: its head."""
        if len(exchange.request.parameters["transaction_id"]) > TRANSACTION_ID_SIZE_MAX:
            raise TransactionNotFoundError(
                f"no transaction's id has more than {TRANSACTION_ID_SIZE_MAX} characters"
            )
        self._admit(exchange, self._decide_limit)

    def commit(self, exchange: Exchange) -> None:
        """``POST /v1/transactions/{transaction_id}:commit``: its body."""
        self._decide(exchange, "commit")

    def roll_back(self, exchange: Exchange) -> None:
        """``POST /v1/transactions/{transaction_id}:rollback``: its body."""
        self._decide(exchange, "rollback")

    def _admit(self, exchange: Exchange, limit: BodyLimit) -> None:
        request = exchange.request
        if request.query:
            parse_query(request.query, _NO_PARAMETERS)
        check_request(request.headers, JSON_MEDIA_TYPE)
        self._transactions.admit()
        exchange.expect_body(limit)

    def _decide(self, exchange: Exchange, outcome: Outcome) -> None:
        self._transactions.decide(
            exchange.request.parameters["transaction_id"],
            outcome,
            decode_json(_DECIDE, exchange.body, _DECIDE_EXAMPLE),
            partial(exchange.resume, _answer_decision, exchange),
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
