"""Sending back messages that were not consumed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path

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
from eruca_broker.api.dependencies import TheBroker
from eruca_broker.api.examples import later as examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems

router = APIRouter(prefix="/v1/groups", tags=["retries"])


@router.post(
    "/{group}/retries",
    operation_id="sendBack",
    summary="Send messages back, to be delivered again later",
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
    broker: TheBroker,
) -> SendBackResults:
    """Hand back messages that a member could not consume: all of them or, if one is refused, none.

    Each is delivered again through the group's retry topic, after a delay: `delay_seconds` or
    `delay_level`, or as the group's `retry_policy` says, or delay level 3 and up with every
    attempt. One that has been sent back as often as `retry_max_times` allows becomes a dead letter,
    and so does one with `delay_level` -1.

    The answer comes once that is durable: then commit the message's offset. A stale token is 409,
    and changes nothing.
    """
    return await broker.retries.send_back(group, request)
