"""Deliveries: consuming by HTTP alone, message by message.

Receiving and acknowledging are hot routes, because such a consumer sends them for every message.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from fastapi import Body, Path

from eruca.contract.access import Right
from eruca.contract.deliveries import (
    DeliveryAcks,
    DeliveryAnswer,
    DeliveryExtension,
    DeliveryNacks,
    DeliveryRequest,
    ExtendedDeliveries,
    NackResults,
)
from eruca.contract.errors import (
    ConflictError,
    ExpiredHandleError,
    FilterSyntaxError,
    GroupNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    StaleHandleError,
    SubscriptionConflictError,
    SystemTopicError,
    TooLargeError,
    TopicNotFoundError,
)
from eruca.contract.fields import GroupName
from eruca_access.needs import on_topic, to
from eruca_broker.api.examples import deliveries as examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.budgets import ConsumeBudget
from eruca_broker.processors.deliveries.deliveries import Deliveries
from eruca_broker.settings import BrokerSettings
from eruca_chassis.admission.needs import in_body, in_path
from eruca_chassis.app import BODY_SIZE_LIMIT_NAME
from eruca_chassis.connections.exchange import (
    JSON_OK,
    NO_CONTENT,
    Answer,
    BodyLimit,
    Exchange,
    RequestHead,
)
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.model_bodies import ModelBody, PathValue
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter
from eruca_chassis.routes.parts import Part

router = HotRouter(prefix="/v1/groups/{group}", tags=["deliveries"])
Group = Annotated[GroupName, Path()]
_GROUP: Final = PathValue[str](GroupName, "group")
_WANTED: Final = ModelBody(DeliveryRequest, examples.RECEIVE)
_ACKS: Final = ModelBody(DeliveryAcks, examples.ACKS)
_ENCODER: Final = msgspec.json.Encoder()


class _Consuming(HotEndpoint):
    """Base of the endpoints for one group's deliveries."""

    def __init__(
        self, deliveries: Deliveries, in_flight: ConsumeBudget, settings: BrokerSettings
    ) -> None:
        self._deliveries = deliveries
        self._in_flight = in_flight
        self._limit = BodyLimit(in_flight, settings.body_bytes_max, BODY_SIZE_LIMIT_NAME)

    @staticmethod
    def read(head: RequestHead, group: Group) -> str:
        """Return the group."""
        return _GROUP.read(group)

    def admit(self, exchange: Exchange) -> None:
        """Request the body."""
        exchange.expect_body(self._limit)


@router.hot(
    "POST",
    "/deliveries",
    operation_id="receiveDeliveries",
    needs=to(Right.CONSUME, topic=in_body("topic"), group=in_path("group")),
    summary="Receive messages under a lease",
    takes=(_WANTED.content,),
    responses=answer(
        examples.DELIVERIES, model=DeliveryAnswer, description="Messages, or none and the reason."
    )
    | problems(
        FilterSyntaxError,
        TopicNotFoundError,
        GroupNotFoundError,
        PermissionDeniedError,
        SystemTopicError,
        SubscriptionConflictError,
        ConflictError,
        OverloadedError,
        *WRITE_REFUSALS,
    ),
)
class ReceiveDeliveries(_Consuming):
    """Lease messages of the topic's queues on this broker, each with a handle.

    Until `visible_at` no other client of the group receives them. Acknowledge them before that
    time. A message that is not acknowledged is redelivered, with another handle and a greater
    `attempt`. It becomes a dead letter once it has been handed out as often as the group allows.
    Redelivered messages go first.

    If there is no message, the request is held for at most `wait_seconds`. If an answer is lost,
    its messages were still handed out. They are redelivered when their leases expire.

    A queue whose file the disk refuses to write or read does not block others. Their messages are
    handed out, also those that arrive while the request is held. If there are none, the answer is
    503 instead of an empty one. It names the queue, and `Retry-After` says when to retry.

    In an ordered group no message is handed out while an earlier one with the same sharding key is
    unfinished. A message without a key waits for all earlier ones of its queue.
    """

    def handle(self, exchange: Exchange) -> None:
        """Answer with messages, or once there are some."""
        wanted = _WANTED.read(exchange.body)
        exchange.access.require(on_topic(wanted.topic, Right.CONSUME))
        exchange.give_back()  # before the answer takes its budget, or waits
        exchange.chunks.clear()
        exchange.go_on(self._receive(exchange, wanted))

    async def _receive(self, exchange: Exchange, wanted: DeliveryRequest) -> Answer:
        group = exchange.request.meaning
        handed_out = await self._deliveries.receive(group, wanted, exchange.leaving)
        encoded = _ENCODER.encode(handed_out)
        exchange.take(self._in_flight, len(encoded))
        return JSON_OK, encoded


@router.hot(
    "POST",
    "/deliveries:ack",
    operation_id="ackDeliveries",
    needs=to(Right.CONSUME, group=in_path("group")),
    summary="Acknowledge messages",
    status_code=HTTPStatus.NO_CONTENT,
    takes=(_ACKS.content,),
    responses=problems(GroupNotFoundError, StaleHandleError, ExpiredHandleError, *WRITE_REFUSALS),
)
class AckDeliveries(_Consuming):
    """Finish messages: they are not redelivered. If one handle is refused, nothing changes.

    409: the message is leased to another client, or finished. That includes a repetition of this
    request whose answer was lost. 410: the lease has expired, and the message is redelivered.
    `errors` names each such handle. Omit these handles and repeat the request.
    """

    def handle(self, exchange: Exchange) -> None:
        """Acknowledge, and answer once that is written."""
        exchange.go_on(self._acknowledge(exchange.request.meaning, _ACKS.read(exchange.body)))

    async def _acknowledge(self, group: str, acks: DeliveryAcks) -> Answer:
        await self._deliveries.ack(group, acks)
        return (NO_CONTENT,)


@router.post(
    "/deliveries:nack",
    operation_id="nackDeliveries",
    needs=to(Right.CONSUME, group=in_path("group")),
    summary="Reject messages (nack)",
    responses=answer(examples.NACK_RESULTS)
    | problems(
        GroupNotFoundError,
        StaleHandleError,
        ExpiredHandleError,
        TooLargeError,
        *WRITE_REFUSALS,
    ),
)
async def nack_deliveries(
    group: Group,
    nacks: Annotated[DeliveryNacks, Body(examples=[examples.NACKS])],
    deliveries: Part[Deliveries],
) -> NackResults:
    """Redeliver messages after a delay. After the last attempt they become dead letters.

    If one handle is refused, nothing changes. Without `delay_seconds` the group's retry policy
    determines the delay. A dead letter keeps `reason` and `error`. The dead letters of one request
    may have 16 MiB together, unless there is only one.
    """
    return await deliveries.nack(group, nacks)


@router.post(
    "/deliveries:extend",
    operation_id="extendDeliveries",
    needs=to(Right.CONSUME, group=in_path("group")),
    summary="Extend leases",
    responses=answer(examples.EXTENDED)
    | problems(GroupNotFoundError, StaleHandleError, ExpiredHandleError, *WRITE_REFUSALS),
)
async def extend_deliveries(
    group: Group,
    extension: Annotated[DeliveryExtension, Body(examples=[examples.EXTENSION])],
    deliveries: Part[Deliveries],
) -> ExtendedDeliveries:
    """Keep messages for `invisible_seconds` from now on; their handles stay valid.

    If one handle is refused, nothing changes. The new end may be earlier than the old one.
    """
    return await deliveries.extend(group, extension)
