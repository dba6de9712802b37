"""Receiving and acknowledging deliveries: hot routes, for a consumer lives by these two requests.

:mod:`..deliveries` declares them, with all that a client should know; these answer.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eruca.contract.deliveries import DeliveryAcks, DeliveryRequest
from eruca.contract.fields import GroupName
from eruca_broker.api.examples import deliveries as delivery_examples
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE, check_body_type
from eruca_broker.processors.deliveries.deliveries import Deliveries
from eruca_chassis.app import BODY_SIZE_LIMIT_NAME
from eruca_chassis.budget import Budget
from eruca_chassis.connections.exchange import JSON_OK, NO_CONTENT, Answer, BodyLimit, Exchange
from eruca_chassis.requests.model_bodies import ModelBody, PathValue

_GROUP: Final = PathValue[str](GroupName, "group")
_REQUEST: Final = ModelBody(DeliveryRequest, delivery_examples.RECEIVE)
_ACKS: Final = ModelBody(DeliveryAcks, delivery_examples.ACKS)
_ENCODER: Final = msgspec.json.Encoder()


class DeliveryRoutes:
    """The handlers."""

    def __init__(self, deliveries: Deliveries, in_flight: Budget, *, body_size_max: int) -> None:
        self._deliveries = deliveries
        self._in_flight = in_flight
        self._limit = BodyLimit(in_flight, body_size_max, BODY_SIZE_LIMIT_NAME)

    def admit(self, exchange: Exchange) -> None:
        """Either request's head."""
        request = exchange.request
        if request.meaning is None:
            check_body_type(request.headers, JSON_MEDIA_TYPE)
            request.meaning = _GROUP.read(request.parameters["group"])
        exchange.expect_body(self._limit)

    def receive(self, exchange: Exchange) -> None:
        """``POST /v1/groups/{group}/deliveries``: its body."""
        wanted = _REQUEST.read(exchange.body)
        exchange.give_back()  # before the answer is paid for, or waited for
        exchange.chunks.clear()
        exchange.go_on(self._receive(exchange, wanted))

    def acknowledge(self, exchange: Exchange) -> None:
        """``POST /v1/groups/{group}/deliveries:ack``: its body."""
        exchange.go_on(self._acknowledge(exchange.request.meaning, _ACKS.read(exchange.body)))

    async def _receive(self, exchange: Exchange, wanted: DeliveryRequest) -> Answer:
        group = exchange.request.meaning
        answer = _ENCODER.encode(await self._deliveries.receive(group, wanted, exchange.leaving))
        exchange.take(self._in_flight, len(answer))
        return JSON_OK, answer

    async def _acknowledge(self, group: str, acks: DeliveryAcks) -> Answer:
        await self._deliveries.ack(group, acks)
        return (NO_CONTENT,)
