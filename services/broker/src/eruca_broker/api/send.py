"""Sending to a topic, as JSON or as records: hot routes.

What can be refused without the body is refused before it is read. An answer comes once the
messages are as durable as the broker promises; a client that leaves earlier changes nothing about
what happens to them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from eruca.contract.limits import JSON_BODY_SIZE_MAX
from eruca.contract.messages import NewMessage, NewMessages, SendReceipts
from eruca.contract.wire import BATCH_BODY_SIZE_MAX, RECORDS_MEDIA_TYPE
from eruca_broker.api.bodies import decode_json
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE, check_request
from eruca_broker.api.peers import born_host
from eruca_broker.api.query import QUEUE_ID_MAX, optional_integer, parse_query, path_integer
from eruca_broker.core.budget import Budget
from eruca_broker.processors.scheduled import StoredLater
from eruca_broker.processors.send_message import Sender
from eruca_broker.store.appended import Appended
from eruca_chassis.exchange import JSON_CREATED, BodyLimit, Exchange, RequestHead

_NO_PARAMETERS: Final[frozenset[str]] = frozenset()
SEND_PARAMETERS: Final = frozenset({"queue_id"})
_IS_BATCH: Final = re.compile(rb'\s*\{\s*"messages"\s*:')
_ONE: Final = msgspec.json.Decoder(NewMessage)
_MANY: Final = msgspec.json.Decoder(NewMessages)
_ONE_EXAMPLE: Final = '{"body": {"text": "hello"}, "tag": "greeting", "keys": ["greeting-1"]}'
_MANY_EXAMPLE: Final = f'{{"messages": [{_ONE_EXAMPLE}]}}'
_ENCODER: Final = msgspec.json.Encoder()


class SendRoutes:
    """The handlers."""

    def __init__(self, sender: Sender, in_flight: Budget) -> None:
        self._sender = sender
        self._json_limit = BodyLimit(in_flight, JSON_BODY_SIZE_MAX, "json_body_size_max")
        self._records_limit = BodyLimit(in_flight, BATCH_BODY_SIZE_MAX, "batch_body_size_max")

    def admit_messages(self, exchange: Exchange) -> None:
        """``POST /v1/topics/{topic}/messages``: its head."""
        request = exchange.request
        if request.meaning is None:
            request.meaning = _topic_and_wanted_queue(request)
        self._sender.admit(*request.meaning)
        exchange.expect_body(self._json_limit)

    def send_messages(self, exchange: Exchange) -> None:
        """``POST /v1/topics/{topic}/messages``: its body."""
        body = exchange.body
        is_batch = _IS_BATCH.match(body) is not None
        if is_batch:
            messages: Sequence[NewMessage] = decode_json(_MANY, body, _MANY_EXAMPLE).messages
            pointers = [f"/body/messages/{index}" for index in range(len(messages))]
        else:
            messages, pointers = [decode_json(_ONE, body, _ONE_EXAMPLE)], ["/body"]
        topic, queue_id = exchange.request.meaning
        self._sender.send(
            topic,
            queue_id,
            messages,
            pointers,
            born_host(exchange.client),
            partial(exchange.resume, self._answer_messages, exchange, is_batch),
        )

    def admit_records(self, exchange: Exchange) -> None:
        """``POST /v1/topics/{topic}/queues/{queue_id}/records``: its head."""
        request = exchange.request
        if request.meaning is None:
            request.meaning = _topic_and_queue(request)
        self._sender.admit(*request.meaning)
        exchange.expect_body(self._records_limit)

    def send_records(self, exchange: Exchange) -> None:
        """``POST /v1/topics/{topic}/queues/{queue_id}/records``: its body."""
        topic, queue_id = exchange.request.meaning
        self._sender.send_records(
            topic,
            queue_id,
            exchange.buffer,
            born_host(exchange.client),
            partial(exchange.resume, self._answer_records, exchange),
        )

    def _answer_messages(
        self,
        exchange: Exchange,
        is_batch: bool,  # noqa: FBT001 - bound by position
        unique_ids: Sequence[str],
        outcome: Appended | StoredLater | Exception,
    ) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        receipts = self._sender.receipts_of(outcome, unique_ids)
        answer = SendReceipts(receipts) if is_batch else receipts[0]
        exchange.answer(JSON_CREATED, _ENCODER.encode(answer))

    def _answer_records(self, exchange: Exchange, outcome: Appended | Exception) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        exchange.answer(JSON_CREATED, _ENCODER.encode(self._sender.receipt_of(outcome)))


def _topic_and_queue(request: RequestHead) -> tuple[str, int]:
    """Return where records go: all that their request's head says."""
    parameters = request.parameters
    queue_id = path_integer(parameters["queue_id"], "queue_id", most=QUEUE_ID_MAX)
    parse_query(request.query, _NO_PARAMETERS)
    check_request(request.headers, RECORDS_MEDIA_TYPE)
    return parameters["topic"], queue_id


def _topic_and_wanted_queue(request: RequestHead) -> tuple[str, int | None]:
    """Return where JSON messages go, and the queue if one is named."""
    wanted = parse_query(request.query, SEND_PARAMETERS)
    queue_id = optional_integer(wanted, "queue_id", least=0, most=QUEUE_ID_MAX)
    check_request(request.headers, JSON_MEDIA_TYPE)
    return request.parameters["topic"], queue_id
