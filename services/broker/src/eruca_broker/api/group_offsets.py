"""Groups' positions: get, get earlier ones, commit, reset."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Path, Query

from eruca.contract.access import Right
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
from eruca.contract.groups import GroupAsOf, GroupOffsets, OffsetCommits, OffsetReset, ResetAnswer
from eruca_access.needs import on_topic, see, to
from eruca_broker.api.examples import groups as group_examples
from eruca_broker.api.parameters import PastOffset
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.groups.offsets import PositionsOfGroups
from eruca_broker.processors.groups.past import PastOfGroups
from eruca_broker.processors.replication.absence import Absence
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import in_body, in_path, in_query
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/groups/{group}", tags=["offsets"])
Group = Annotated[GroupName, Path()]


@router.get(
    "/offsets",
    operation_id="getGroupOffsets",
    needs=see(topic=in_query("topic"), group=in_path("group")),
    summary="Get a group's offsets",
    responses=answer(group_examples.GROUP_OFFSETS) | problems(TopicNotFoundError),
)
async def get_group_offsets(
    group: Group,
    positions: Part[PositionsOfGroups],
    absence: Part[Absence],
    *,
    topic: Annotated[TopicName | None, Query(description="return all queues of this topic")] = None,
) -> GroupOffsets:
    """Return the group's positions on this broker, with each queue's range, lag and reader.

    With `topic`, the answer contains every queue of it, also those without a position (null).
    Without it, every queue that the group ever locked, started in or committed. An unknown group
    has no offsets; that is not an error.
    """
    found = await positions.of_group(group, topic)
    absence.check(is_found=any(one.committed_offset is not None for one in found.offsets))
    return found


@router.get(
    "/as-of",
    operation_id="getGroupAsOf",
    needs=see(group=in_path("group")),
    summary="Show a group as of an earlier log offset",
    responses=answer(group_examples.GROUP_AS_OF) | problems(OverloadedError),
)
async def get_group_as_of(
    group: Group,
    past: Part[PastOfGroups],
    log_offset: PastOffset,
) -> GroupAsOf:
    """Return the group's positions as they were, folded from this broker's log.

    If the log does not have all that the state depends on, `unknown` says why, and nothing else is
    said: retention may have deleted it. Sessions of members are not in the log, locks are.
    """
    return await past.of_group(group, log_offset)


@router.put(
    "/offsets",
    operation_id="commitOffsets",
    needs=to(Right.CONSUME, topic=in_body("positions.topic"), group=in_path("group")),
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
    access: CallersAccess,
) -> None:
    """Store the group's next offsets: all of the positions or, if one is refused, none.

    A member gives its client id and each lock's token. A stale token is refused (`stale-lock`). Any
    other client may commit if no live member reads the queue. The answer comes once the positions
    are as durable as a message would be. Offsets may go backwards. An offset beyond its queue's end
    is refused (`validation-failed`): messages that arrive up to there would never be read.
    """
    access.require(*(on_topic(offset.topic, Right.CONSUME) for offset in commits.offsets))
    await positions.commit(group, commits)


@router.post(
    "/offsets:reset",
    operation_id="resetOffsets",
    needs=to(Right.ADMINISTER, group=in_path("group")) & see(topic=in_body("topic")),
    summary="Reset a group's offsets",
    responses=answer(group_examples.RESET_ANSWER)
    | problems(GroupNotFoundError, TopicNotFoundError, QueueNotFoundError, *WRITE_REFUSALS),
)
async def reset_offsets(
    group: Group,
    reset: Annotated[OffsetReset, Body(examples=group_examples.OFFSET_RESETS)],
    positions: Part[PositionsOfGroups],
    access: CallersAccess,
) -> ResetAnswer:
    """Move the group to the beginning, the end, a time, or an offset of a topic's queues.

    Members that read these queues lose their tokens. Their later commits are refused, and they lock
    the queues again and start at the new offsets. With `dry_run` nothing changes.
    """
    access.require(on_topic(reset.topic))  # the answer says its offsets
    return await positions.reset(group, reset)
