"""Deliveries: messages for whoever has nothing but HTTP.

Receiving and acknowledging are declared here and answered by :mod:`.hot.delivery_routes`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Path, Response

from eruca.contract.deliveries import (
    DeliveryAcks,
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
from eruca_broker.api.dependencies import TheBroker
from eruca_broker.api.examples import deliveries as delivery_examples
from eruca_broker.api.hot.routes import ACK_PATH, DELIVERIES_PATH, dispatched_before
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_chassis.documents.nulls import with_nulls
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems

router = APIRouter(tags=["deliveries"])
Group = Annotated[GroupName, Path()]
_HANDED_OUT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Messages; or none, and why.",
        "content": {
            JSON_MEDIA_TYPE: {
                "schema": {"$ref": "#/components/schemas/DeliveryAnswer"},
                "example": with_nulls(delivery_examples.DELIVERIES),
            }
        },
    }
}


@router.post(
    DELIVERIES_PATH,
    operation_id="receiveDeliveries",
    summary="Receive messages for a time",
    response_class=Response,
    responses=_HANDED_OUT
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
async def receive_deliveries(
    group: Group,
    wanted: Annotated[DeliveryRequest, Body(examples=[delivery_examples.RECEIVE])],
) -> Response:
    """Hand out messages of the topic's queues on this broker, each with a handle.

    Until `visible_at` nobody else of the group gets them. Acknowledge them before; what is not
    acknowledged comes again, with another handle and a greater `attempt`, and is a dead letter once
    it has been handed out as often as the group allows. Messages that come again go first.

    Where there is none, the request is held for `wait_seconds` at most. An answer that was lost
    on its way has handed out messages all the same: they come again when their time is over.

    A queue whose file the disk refuses to write or read does not hold up the others: their messages
    are handed out, also those that come while the request is held. Only where there are none is the
    answer 503 instead of an empty one; it names the queue, and `Retry-After` says when to ask
    again.

    In an ordered group no message is handed out while an earlier one with the same sharding key is
    unfinished, and none without a key while any earlier one of its queue is.
    """
    raise dispatched_before()


@router.post(
    ACK_PATH,
    operation_id="ackDeliveries",
    summary="Acknowledge messages",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(GroupNotFoundError, StaleHandleError, ExpiredHandleError, *WRITE_REFUSALS),
)
async def ack_deliveries(
    group: Group,
    acks: Annotated[DeliveryAcks, Body(examples=[delivery_examples.ACKS])],
) -> None:
    """Finish messages: they do not come again. All of them, or none where a handle is refused.

    409: somebody else has the message now, or it is done; also where this request was sent before
    and its answer was lost. 410: the time was over, and the message will come again. `errors` names
    each such handle; leave those out and repeat.
    """
    raise dispatched_before()


@router.post(
    f"{DELIVERIES_PATH}:nack",
    operation_id="nackDeliveries",
    summary="Give messages up",
    responses=answer(delivery_examples.NACK_RESULTS)
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
    nacks: Annotated[DeliveryNacks, Body(examples=[delivery_examples.NACKS])],
    broker: TheBroker,
) -> NackResults:
    """Let messages come again after a delay, or become dead letters if that was too often.

    All of them, or none where a handle is refused. Without `delay_seconds` the delay is by the
    group's retry policy. `reason` and `error` are kept with a dead letter. Those that become dead
    letters may have 16 MiB together, unless it is only one.
    """
    return await broker.deliveries.nack(group, nacks)


@router.post(
    f"{DELIVERIES_PATH}:extend",
    operation_id="extendDeliveries",
    summary="Ask for more time",
    responses=answer(delivery_examples.EXTENDED)
    | problems(GroupNotFoundError, StaleHandleError, ExpiredHandleError, *WRITE_REFUSALS),
)
async def extend_deliveries(
    group: Group,
    extension: Annotated[DeliveryExtension, Body(examples=[delivery_examples.EXTENSION])],
    broker: TheBroker,
) -> ExtendedDeliveries:
    """Keep messages for `invisible_seconds` from now on; their handles stay valid.

    All of them, or none where a handle is refused. It may also be less time than was left.
    """
    return await broker.deliveries.extend(group, extension)
