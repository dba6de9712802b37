"""Sending to a topic, as JSON or as records: hot routes.

What can be refused without the body is refused before it is read. An answer comes once the
messages are as durable as the broker promises; a client that leaves earlier changes nothing about
what happens to them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from eruca.contract.limits import JSON_BODY_SIZE_MAX
from eruca.contract.messages import NewMessage, NewMessages, SendReceipts
from eruca.contract.wire import BATCH_BODY_SIZE_MAX, RECORDS_MEDIA_TYPE
from eruca_broker.api.bodies import InFlight, decode_json, headers_of
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE, check_request
from eruca_broker.api.peers import born_host
from eruca_broker.api.query import QUEUE_ID_MAX, optional_integer, parse_query, path_integer
from eruca_broker.core.budget import Budget
from eruca_broker.processors.send_message import Sender
from eruca_chassis.asgi import Receive, Scope, Send, send_json

_NO_PARAMETERS: Final[frozenset[str]] = frozenset()
SEND_PARAMETERS: Final = frozenset({"queue_id"})
_IS_BATCH: Final = re.compile(rb'\s*\{\s*"messages"\s*:')
_ONE: Final = msgspec.json.Decoder(NewMessage)
_MANY: Final = msgspec.json.Decoder(NewMessages)
_ENCODER: Final = msgspec.json.Encoder()
CREATED: Final = 201


class SendRoutes:
    """The handlers."""

    def __init__(self, sender: Sender, in_flight: Budget) -> None:
        self._sender = sender
        self._in_flight = in_flight

    async def send_messages(self, scope: Scope, receive: Receive, send: Send) -> int:
        """``POST /v1/topics/{topic}/messages``."""
        topic = scope["path_params"]["topic"]
        queue_id = None
        if scope["query_string"]:
            parameters = parse_query(scope["query_string"], SEND_PARAMETERS)
            queue_id = optional_integer(parameters, "queue_id", least=0, most=QUEUE_ID_MAX)
        headers = headers_of(scope)
        check_request(headers, JSON_MEDIA_TYPE)
        self._sender.admit(topic, queue_id)
        with InFlight(self._in_flight) as taken:
            chunks = await taken.read_body(
                headers, receive, size_max=JSON_BODY_SIZE_MAX, limit_name="json_body_size_max"
            )
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            is_batch = _IS_BATCH.match(body) is not None
            if is_batch:
                messages: Sequence[NewMessage] = decode_json(_MANY, body).messages
                pointers = [f"/body/messages/{index}" for index in range(len(messages))]
            else:
                messages, pointers = [decode_json(_ONE, body)], ["/body"]
            receipts = await self._sender.send(
                topic, queue_id, messages, pointers, born_host(scope)
            )
        answer = SendReceipts(receipts) if is_batch else receipts[0]
        return await send_json(send, CREATED, _ENCODER.encode(answer))

    async def send_records(self, scope: Scope, receive: Receive, send: Send) -> int:
        """``POST /v1/topics/{topic}/queues/{queue_id}/records``."""
        path = scope["path_params"]
        topic = path["topic"]
        queue_id = path_integer(path["queue_id"], "queue_id", most=QUEUE_ID_MAX)
        if scope["query_string"]:
            parse_query(scope["query_string"], _NO_PARAMETERS)
        headers = headers_of(scope)
        check_request(headers, RECORDS_MEDIA_TYPE)
        self._sender.admit(topic, queue_id)
        with InFlight(self._in_flight) as taken:
            chunks = await taken.read_body(
                headers, receive, size_max=BATCH_BODY_SIZE_MAX, limit_name="batch_body_size_max"
            )
            receipt = await self._sender.send_records(topic, queue_id, chunks, born_host(scope))
        return await send_json(send, CREATED, _ENCODER.encode(receipt))
