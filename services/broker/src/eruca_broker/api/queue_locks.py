"""Queue locks: acquire and release."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Path, Request

from eruca.contract.access import Right
from eruca.contract.errors import (
    ClientIdInUseError,
    ConflictError,
    GroupNotFoundError,
    MemberNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    QueueNotFoundError,
    StaleLockError,
    TopicNotFoundError,
)
from eruca.contract.fields import GroupName
from eruca.contract.groups import LockAnswer, LockRelease, LockRequest
from eruca_access.needs import on_topic, to
from eruca_broker.api.examples import groups as group_examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.groups.queue_locks import QueueLocks
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import in_body, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/groups/{group}", tags=["groups"])
Group = Annotated[GroupName, Path()]


@router.post(
    "/locks",
    operation_id="lockQueues",
    needs=to(Right.CONSUME, topic=in_body("queues.topic"), group=in_path("group")),
    summary="Lock queues for a member",
    responses=answer(group_examples.LOCK_ANSWER)
    | problems(
        GroupNotFoundError,
        MemberNotFoundError,
        TopicNotFoundError,
        QueueNotFoundError,
        PermissionDeniedError,
        ClientIdInUseError,
        ConflictError,
        OverloadedError,
        *WRITE_REFUSALS,
    ),
)
async def lock_queues(
    group: Group,
    wanted: Annotated[LockRequest, Body(examples=[group_examples.LOCK_REQUEST])],
    locks: Part[QueueLocks],
    access: CallersAccess,
    request: Request,
) -> LockAnswer:
    """Lock the queues that no other member reads, and return the offsets at which to read.

    If all are taken, the request is held for at most `wait_seconds`, until one is released. A queue
    that the member has already is granted again, with the same token: repeat the request if an
    answer was lost. A lock lasts as long as the member's session.
    """
    access.require(*(on_topic(queue.topic, Right.CONSUME) for queue in wanted.queues))
    return await locks.lock(group, wanted, request.receive)


@router.post(
    "/locks:release",
    operation_id="releaseQueues",
    needs=to(Right.CONSUME, group=in_path("group")),
    summary="Commit final offsets and release the locks",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(GroupNotFoundError, StaleLockError, *WRITE_REFUSALS),
)
async def release_queues(
    group: Group,
    release: Annotated[LockRelease, Body(examples=[group_examples.LOCK_RELEASE])],
    locks: Part[QueueLocks],
) -> None:
    """Store the offsets and release the queues, as one change; waiting members get them next.

    If one token is stale, nothing changes. The next owner starts at these offsets.
    """
    await locks.release(group, release)
