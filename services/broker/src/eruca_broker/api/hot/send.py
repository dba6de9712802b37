"""Sending to a topic, as JSON, as octets or as records: hot routes.

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

from eruca.contract.limits import BODY_SIZE_MAX, JSON_BODY_SIZE_MAX
from eruca.contract.messages import NewMessage, NewMessages, SendReceipts
from eruca.contract.wire import BATCH_BODY_SIZE_MAX, OCTETS_MEDIA_TYPE, RECORDS_MEDIA_TYPE
from eruca.core.messages.idempotency_keys import HEADER, REPLAYED_HEADER, decode_key
from eruca_broker.api.bodies import decode_json
from eruca_broker.api.hot.octets import (
    DESCRIBING_PARAMETERS,
    parse_described,
    with_body,
)
from eruca_broker.api.hot.query import QUEUE_ID_MAX, optional_integer, parse_query, path_integer
from eruca_broker.api.hot.tracing import traced
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE, check_request
from eruca_broker.api.peers import born_host
from eruca_broker.processors.idempotent_send import IdempotentSender, Replayed
from eruca_broker.processors.scheduled import StoredLater
from eruca_broker.processors.send_message import Sender
from eruca_broker.store.log.appended import Appended
from eruca_chassis.budget import Budget
from eruca_chassis.connections.exchange import (
    JSON_CREATED,
    AnswerHead,
    BodyLimit,
    Exchange,
    RequestHead,
)

_NO_PARAMETERS: Final[frozenset[str]] = frozenset()
SEND_PARAMETERS: Final = frozenset({"queue_id"})
_SAID_IN_JSON: Final = dict.fromkeys(
    DESCRIBING_PARAMETERS - SEND_PARAMETERS,
    f"JSON says it in the body; beside {OCTETS_MEDIA_TYPE} it is said here",
)
_IS_BATCH: Final = re.compile(rb'\s*\{\s*"messages"\s*:')
_ONE: Final = msgspec.json.Decoder(NewMessage)
_MANY: Final = msgspec.json.Decoder(NewMessages)
_ONE_EXAMPLE: Final = '{"body": {"text": "hello"}, "tag": "greeting", "keys": ["greeting-1"]}'
_MANY_EXAMPLE: Final = f'{{"messages": [{_ONE_EXAMPLE}]}}'
_ENCODER: Final = msgspec.json.Encoder()
_KEY_HEADER: Final = HEADER.encode()
_JSON_REPLAYED: Final = AnswerHead(
    JSON_CREATED.status, *JSON_CREATED.headers, (REPLAYED_HEADER.encode(), b"true")
)


class SendRoutes:
    """The handlers."""

    def __init__(self, sender: Sender, idempotent: IdempotentSender, in_flight: Budget) -> None:
        self._sender = sender
        self._idempotent = idempotent
        self._json_limit = BodyLimit(in_flight, JSON_BODY_SIZE_MAX, "json_body_size_max")
        self._octets_limit = BodyLimit(in_flight, BODY_SIZE_MAX, "body_size_max")
        self._records_limit = BodyLimit(in_flight, BATCH_BODY_SIZE_MAX, "batch_body_size_max")

    def admit_messages(self, exchange: Exchange) -> None:
        """``POST /v1/topics/{topic}/messages``: its head."""
        request = exchange.request
        if request.meaning is None:
            request.meaning = _topic_and_wanted_queue(request)
        topic, queue_id, key, described = request.meaning
        self._sender.admit(topic, queue_id, may_be_stored=key is not None)
        exchange.expect_body(self._json_limit if described is None else self._octets_limit)

    def send_messages(self, exchange: Exchange) -> None:
        """``POST /v1/topics/{topic}/messages``: its body."""
        topic, queue_id, key, described = exchange.request.meaning
        body = exchange.body
        is_batch = described is None and _IS_BATCH.match(body) is not None
        messages: list[NewMessage]
        if described is not None:
            messages, pointers = [with_body(described, bytes(body))], ["/query"]
        elif is_batch:
            messages = decode_json(_MANY, body, _MANY_EXAMPLE).messages
            pointers = [f"/body/messages/{index}" for index in range(len(messages))]
        else:
            messages, pointers = [decode_json(_ONE, body, _ONE_EXAMPLE)], ["/body"]
        messages = traced(messages, exchange.request)
        peer = born_host(exchange.client)
        done = partial(exchange.resume, self._answer_messages, exchange, is_batch)
        if key is None:
            self._sender.send(topic, queue_id, messages, pointers, peer, done)
        else:
            self._idempotent.send(
                topic, queue_id, key, messages, pointers, peer, done, is_batch=is_batch
            )

    def admit_records(self, exchange: Exchange) -> None:
        """``POST /v1/topics/{topic}/queues/{queue_id}/records``: its head."""
        request = exchange.request
        if request.meaning is None:
            request.meaning = _topic_and_queue(request)
        topic, queue_id, key = request.meaning
        self._sender.admit(topic, queue_id, may_be_stored=key is not None)
        exchange.expect_body(self._records_limit)

    def send_records(self, exchange: Exchange) -> None:
        """``POST /v1/topics/{topic}/queues/{queue_id}/records``: its body."""
        topic, queue_id, key = exchange.request.meaning
        peer = born_host(exchange.client)
        done = partial(exchange.resume, self._answer_records, exchange)
        if key is None:
            self._sender.send_records(topic, queue_id, exchange.buffer, peer, done)
        else:
            self._idempotent.send_records(topic, queue_id, key, exchange.buffer, peer, done)

    def _answer_messages(
        self,
        exchange: Exchange,
        is_batch: bool,  # noqa: FBT001 - bound by position
        unique_ids: Sequence[str],
        outcome: Appended | StoredLater | Replayed | Exception,
    ) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        head = JSON_CREATED
        if isinstance(outcome, Replayed):
            head, receipts = _JSON_REPLAYED, self._idempotent.receipts_of(outcome)
        else:
            receipts = self._sender.receipts_of(outcome, unique_ids)
        answer = SendReceipts(receipts) if is_batch else receipts[0]
        exchange.answer(head, _ENCODER.encode(answer))

    def _answer_records(self, exchange: Exchange, outcome: Appended | Replayed | Exception) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, Replayed):
            receipt = self._idempotent.receipt_of(outcome)
            exchange.answer(_JSON_REPLAYED, _ENCODER.encode(receipt))
        else:
            exchange.answer(JSON_CREATED, _ENCODER.encode(self._sender.receipt_of(outcome)))


def _topic_and_queue(request: RequestHead) -> tuple[str, int, str | None]:
    """Return where records go, and under which idempotency key: all that their head says."""
    parameters = request.parameters
    queue_id = path_integer(parameters["queue_id"], "queue_id", most=QUEUE_ID_MAX)
    parse_query(request.query, _NO_PARAMETERS)
    check_request(request.headers, RECORDS_MEDIA_TYPE)
    return parameters["topic"], queue_id, _key_of(request)


def _topic_and_wanted_queue(
    request: RequestHead,
) -> tuple[str, int | None, str | None, NewMessage | None]:
    """Return where messages go, the queue and the idempotency key if they are named.

    And, where the body is one message's octets, what the query says of it.
    """
    topic, described = request.parameters["topic"], None
    media_type = check_request(request.headers, JSON_MEDIA_TYPE, OCTETS_MEDIA_TYPE)
    if media_type == OCTETS_MEDIA_TYPE:
        queue_id, described = parse_described(request.query)
    else:
        wanted = parse_query(request.query, SEND_PARAMETERS, refused=_SAID_IN_JSON)
        queue_id = optional_integer(wanted, "queue_id", least=0, most=QUEUE_ID_MAX)
    return topic, queue_id, _key_of(request), described


def _key_of(request: RequestHead) -> str | None:
    value = request.headers.get(_KEY_HEADER)
    return None if value is None else decode_key(value)
