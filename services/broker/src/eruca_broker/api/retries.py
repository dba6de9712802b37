"""Send back messages that were not consumed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path

from eruca.contract.access import Right
from eruca.contract.errors import (
    ConflictError,
    GroupNotFoundError,
    OverloadedError,
    RecordNotFoundError,
    StaleLockError,
    TooLargeError,
)
from eruca.contract.fields import GroupName
from eruca.contract.retries import SendBackResults, SendBacks
from eruca_access.needs import on_topic, to
from eruca_broker.api.examples import later as examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.retries import Retries
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import in_body, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/groups", tags=["retries"])


@router.post(
    "/{group}/retries",
    operation_id="sendBack",
    needs=to(Right.CONSUME, topic=in_body("messages.topic"), group=in_path("group")),
    summary="Send messages back for a later retry",
    responses=answer(examples.SEND_BACK_RESULTS)
    | problems(
        GroupNotFoundError,
        RecordNotFoundError,
        StaleLockError,
        ConflictError,
        TooLargeError,
        OverloadedError,
        *WRITE_REFUSALS,
    ),
)
async def send_back(
    group: Annotated[GroupName, Path()],
    request: Annotated[SendBacks, Body(examples=[examples.SEND_BACKS])],
    retries: Part[Retries],
    access: CallersAccess,
) -> SendBackResults:
    """Return messages that a member could not consume: all of them or, if one is refused, none.

    Each is redelivered through the group's retry topic, after a delay. The delay is `delay_seconds`
    or `delay_level`, else that of the group's `retry_policy`, else delay level 3 and up with every
    attempt. A message that has been sent back `retries_max` times becomes a dead letter. So
    does one with `delay_level` -1.

    The answer comes once that is durable: then commit the message's offset. A stale token is 409,
    and changes nothing.
    """
    access.require(*(on_topic(message.topic, Right.CONSUME) for message in request.messages))
    return await retries.send_back(group, request)
