"""Offsets: where a time leads in a queue, and where groups stand."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Path, Query

from eruca.contract.errors import (
    ConflictError,
    OverloadedError,
    QueueNotFoundError,
    TopicNotFoundError,
)
from eruca.contract.groups import GroupOffsets, OffsetCommits
from eruca.contract.models import (
    GroupName,
    Moment,
    OffsetByTime,
    QueueId,
    TopicName,
)
from eruca_broker.api import examples
from eruca_broker.api.dependencies import TheBroker
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_chassis.problems import problems

router = APIRouter(prefix="/v1", tags=["offsets"])


@router.get(
    "/topics/{topic}/queues/{queue_id}/offset",
    operation_id="getOffsetByTime",
    summary="The offset a time leads to",
    responses=examples.answer(examples.OFFSET_BY_TIME)
    | problems(TopicNotFoundError, QueueNotFoundError),
)
async def get_offset_by_time(
    topic: Annotated[TopicName, Path()],
    queue_id: Annotated[QueueId, Path()],
    broker: TheBroker,
    *,
    timestamp: Annotated[
        Moment,
        Query(description="RFC 3339, with its offset", examples=["2026-11-21T08:00:00Z"]),
    ],
    boundary: Annotated[
        Literal["lower", "upper"],
        Query(description="`lower`: first message then or later; `upper`: last one then or before"),
    ] = "lower",
) -> OffsetByTime:
    """Return where to start reading to get what was stored from a time on.

    Times are the broker's, when it stored each message. A time after the last message leads to the
    queue's end, one before the first to its begin.
    """
    return broker.offsets.by_time(topic, queue_id, timestamp, boundary)


@router.get(
    "/groups/{group}/offsets",
    operation_id="getGroupOffsets",
    summary="Where a group stands",
    responses=examples.answer(examples.GROUP_OFFSETS) | problems(TopicNotFoundError),
)
async def get_group_offsets(
    group: Annotated[GroupName, Path()],
    broker: TheBroker,
    *,
    topic: Annotated[TopicName | None, Query(description="all of this topic's queues")] = None,
) -> GroupOffsets:
    """Return the group's committed offsets on this broker, with each queue's range and the lag.

    With `topic`, every queue of it, also those the group never committed (null); without, every
    queue it did. A group nobody has heard of has no offsets, which is no error.
    """
    return broker.offsets.of_group(group, topic)


@router.put(
    "/groups/{group}/offsets",
    operation_id="commitOffsets",
    summary="Commit a group's offsets",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        TopicNotFoundError, QueueNotFoundError, ConflictError, OverloadedError, *WRITE_REFUSALS
    ),
)
async def commit_offsets(
    group: Annotated[GroupName, Path()],
    commits: Annotated[OffsetCommits, Body(examples=[examples.OFFSET_COMMITS])],
    broker: TheBroker,
) -> None:
    """Store where the group will read on: all of the positions, or none where one is refused.

    The answer comes once they are as durable as a message would be. A position may go backwards.
    """
    await broker.offsets.commit(group, commits)
