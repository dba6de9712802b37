"""Offsets: find the offset of a time in a queue."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query

from eruca.contract.errors import (
    QueueNotFoundError,
    TopicNotFoundError,
)
from eruca.contract.fields import Moment, QueueId, TopicName
from eruca.contract.topics import OffsetByTime
from eruca_access.needs import see
from eruca_broker.api.examples import messages as examples
from eruca_broker.api.parameters import IncludeSystem
from eruca_broker.processors.offsets import Offsets
from eruca_chassis.admission.needs import in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1", tags=["offsets"])


@router.get(
    "/topics/{topic}/queues/{queue_id}/offset",
    operation_id="getOffsetByTime",
    needs=see(topic=in_path("topic")),
    summary="Find an offset by time",
    responses=answer(examples.OFFSET_BY_TIME) | problems(TopicNotFoundError, QueueNotFoundError),
)
async def get_offset_by_time(
    topic: Annotated[TopicName, Path()],
    queue_id: Annotated[QueueId, Path(examples=[0])],
    offsets: Part[Offsets],
    *,
    timestamp: Annotated[
        Moment,
        Query(description="RFC 3339, with its offset", examples=["2026-11-21T08:00:00Z"]),
    ],
    boundary: Annotated[
        Literal["lower", "upper"],
        Query(description="`lower`: first message then or later; `upper`: last one then or before"),
    ] = "lower",
    include_system: IncludeSystem = False,
) -> OffsetByTime:
    """Return the offset at which to start reading messages stored at or after a time.

    Times are the broker's store times. A time after the last message gives the queue's end, one
    before the first message its beginning. Store times never decrease within a queue, except in a
    log that RocketMQ wrote while its clock was set back: there, messages stored at the time or
    later may lie before the offset.
    """
    return await offsets.by_time(
        topic, queue_id, timestamp, boundary, include_system=include_system
    )
