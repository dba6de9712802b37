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
from eruca_broker.api.examples import groups as group_examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.groups.offsets import PositionsOfGroups
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.parts import Part

router = APIRouter(prefix="/v1/groups/{group}", tags=["offsets"])
Group = Annotated[GroupName, Path()]


@router.get(
    "/offsets",
    operation_id="getGroupOffsets",
    summary="Get a group's offsets",
    responses=answer(group_examples.GROUP_OFFSETS) | problems(TopicNotFoundError),
)
async def get_group_offsets(
    group: Group,
    positions: Part[PositionsOfGroups],
    *,
    topic: Annotated[TopicName | None, Query(description="return all queues of this topic")] = None,
) -> GroupOffsets:
    """Return the group's positions on this broker, with each queue's range, lag and reader.

    With `topic`, the answer contains every queue of it, also those without a position (null).
    Without it, every queue that the group ever locked, started in or committed. An unknown group
    has no offsets; that is not an error.
    """
    return positions.of_group(group, topic)


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
    positions: Part[PositionsOfGroups],
) -> None:
    """Store the group's next offsets: all of the positions or, if one is refused, none.

    A member gives its client id and each lock's token. A stale token is refused (`stale-lock`). Any
    other client may commit if no live member reads the queue. The answer comes once the positions
    are as durable as a message would be. Offsets may go backwards. An offset beyond its queue's end
    is refused (`validation-failed`): messages that arrive up to there would never be read.
    """
    await positions.commit(group, commits)


@router.post(
    "/offsets:reset",
    operation_id="resetOffsets",
    summary="Reset a group's offsets",
    responses=answer(group_examples.RESET_ANSWER)
    | problems(GroupNotFoundError, TopicNotFoundError, QueueNotFoundError, *WRITE_REFUSALS),
)
async def reset_offsets(
    group: Group,
    reset: Annotated[OffsetReset, Body(examples=group_examples.OFFSET_RESETS)],
    positions: Part[PositionsOfGroups],
) -> ResetAnswer:
    """Move the group to the beginning, the end, a time, or an offset of a topic's queues.

    Members that read these queues lose their tokens. Their later commits are refused, and they lock
    the queues again and start at the new offsets. With `dry_run` nothing changes.
    """
    return await positions.reset(group, reset)
