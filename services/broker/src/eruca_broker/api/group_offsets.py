"""Groups' positions: get, commit, reset."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query

from eruca.contract.errors import (
    ConflictError,
    GroupNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    QueueNotFoundError,
    StaleLockError,
    TopicNotFoundError,
)
from eruca.contract.fields import GroupName, TopicName
from eruca.contract.groups import GroupOffsets, OffsetCommits, OffsetReset, ResetAnswer
from eruca_broker.api.dependencies import TheBroker
from eruca_broker.api.examples import groups as group_examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems

router = APIRouter(prefix="/v1/groups/{group}", tags=["offsets"])
Group = Annotated[GroupName, Path()]


@router.get(
    "/offsets",
    operation_id="getGroupOffsets",
    summary="Where a group stands",
    responses=answer(group_examples.GROUP_OFFSETS) | problems(TopicNotFoundError),
)
async def get_group_offsets(
    group: Group,
    broker: TheBroker,
    *,
    topic: Annotated[TopicName | None, Query(description="all of this topic's queues")] = None,
) -> GroupOffsets:
    """Return the group's positions on this broker, with each queue's range, lag and reader.

    With `topic`, every queue of it, also those in which the group stands nowhere (null); without,
    every queue it ever locked, started in or committed. A group nobody has heard of has no
    offsets, which is no error.
    """
    return broker.positions.of_group(group, topic)


@router.put(
    "/offsets",
    operation_id="commitOffsets",
    summary="Commit a group's offsets",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        GroupNotFoundError,
        TopicNotFoundError,
        QueueNotFoundError,
        PermissionDeniedError,
        ConflictError,
        StaleLockError,
        OverloadedError,
        *WRITE_REFUSALS,
    ),
)
async def commit_offsets(
    group: Group,
    commits: Annotated[OffsetCommits, Body(examples=group_examples.OFFSET_COMMITS)],
    broker: TheBroker,
) -> None:
    """Store where the group will read on: all of the positions, or none where one is refused.

    A member says who it is and gives each lock's token; one that is stale is refused
    (`stale-lock`). Anybody else may commit where no live member reads. The answer comes once the
    positions are as durable as a message would be. They may go backwards. One that lies behind its
    queue's end is refused (`validation-failed`): what comes up to there would never be read.
    """
    await broker.positions.commit(group, commits)


@router.post(
    "/offsets:reset",
    operation_id="resetOffsets",
    summary="Set where a group goes on",
    responses=answer(group_examples.RESET_ANSWER)
    | problems(GroupNotFoundError, TopicNotFoundError, QueueNotFoundError, *WRITE_REFUSALS),
)
async def reset_offsets(
    group: Group,
    reset: Annotated[OffsetReset, Body(examples=group_examples.OFFSET_RESETS)],
    broker: TheBroker,
) -> ResetAnswer:
    """Let the group go on at the beginning, the end, a time, or an offset of a topic's queues.

    Members that read these queues lose their tokens: what they still commit is refused, and they
    lock again and start there. With `dry_run` nothing is changed.
    """
    return await broker.positions.reset(group, reset)
