"""Delayed messages: list and recall them. They are sent like any other message."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query

from eruca.contract.errors import (
    AlreadyDeliveredError,
    ScheduledNotFoundError,
    ValidationError,
)
from eruca.contract.fields import TopicName
from eruca.contract.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from eruca.contract.recall_handles import RECALL_HANDLE_SIZE_MAX
from eruca.contract.retries import ScheduledList
from eruca_broker.api.examples import later as examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.scheduled import Scheduled
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.parts import Part
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor

router = APIRouter(prefix="/v1/scheduled", tags=["delayed messages"])


@router.get(
    "",
    operation_id="listScheduled",
    summary="List delayed messages",
    responses=answer(examples.SCHEDULED_LIST),
)
async def list_scheduled(
    scheduled: Part[Scheduled],
    *,
    topic: Annotated[TopicName | None, Query(description="only messages for this topic")] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[
        str | None,
        Query(max_length=512, description="the preceding page's `next_cursor`; opaque"),
    ] = None,
) -> ScheduledList:
    """Return this broker's delayed messages and retries in the order of their times, page by page.

    Follow `next_cursor` until it is null. With `topic`, a page may have few messages or none before
    that. Messages that are delivered meanwhile are omitted.
    """
    page, following = await scheduled.page(topic=topic, limit=limit, after=_decoded(cursor))
    next_cursor = None if following is None else encode_cursor(f"{following[0]}.{following[1]}")
    return page.model_copy(update={"next_cursor": next_cursor})


@router.delete(
    "/{recall_handle:path}",  # a message's id, which is refused with a hint, may contain a /
    operation_id="recallScheduled",
    summary="Recall a delayed message",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(ScheduledNotFoundError, AlreadyDeliveredError, *WRITE_REFUSALS),
)
async def recall_scheduled(
    recall_handle: Annotated[
        str,
        Path(min_length=1, max_length=RECALL_HANDLE_SIZE_MAX, examples=[examples.RECALL_HANDLE]),
    ],
    scheduled: Part[Scheduled],
) -> None:
    """Ensure that the message is never delivered; the answer comes once that is durable.

    `recall_handle` is in its receipt, and in the list. It names the topic, the broker, the delivery
    time and the message's id. An id alone may belong to several messages: it is 422, and `errors`
    names each message with its handle. A message that was delivered, or is being delivered at this
    moment, is 409 `already-delivered`. You may repeat a recall. A retry has no handle, because only
    its consumer group decides about it.
    """
    await scheduled.recall(recall_handle)


def _decoded(cursor: str | None) -> tuple[int, int] | None:
    text = decode_cursor(cursor)
    if text is None:
        return None
    due_ms, _, log_offset = text.partition(".")
    try:
        return int(due_ms), int(log_offset)
    except ValueError as error:
        detail = "expected a next_cursor of this list"
        raise ValidationError.at("/query/cursor", detail) from error
