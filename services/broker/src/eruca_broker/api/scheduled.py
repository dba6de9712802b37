"""Delayed messages: which wait, and recalling one. They are sent like any other message."""

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
from eruca_broker.api.dependencies import TheBroker
from eruca_broker.api.examples import later as examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor

router = APIRouter(prefix="/v1/scheduled", tags=["delayed messages"])


@router.get(
    "",
    operation_id="listScheduled",
    summary="List messages that wait for their delivery",
    responses=answer(examples.SCHEDULED_LIST),
)
async def list_scheduled(
    broker: TheBroker,
    *,
    topic: Annotated[
        TopicName | None, Query(description="only those that will be delivered to this topic")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[
        str | None,
        Query(max_length=512, description="`next_cursor` of the page before; opaque"),
    ] = None,
) -> ScheduledList:
    """Return what waits on this broker as it comes due, a page at a time; retries are among it.

    Follow `next_cursor` until it is null. With `topic`, a page may hold few messages or none and
    still not be the last. What is delivered meanwhile is left out.
    """
    page, following = await broker.scheduled.page(topic=topic, limit=limit, after=_decoded(cursor))
    next_cursor = None if following is None else encode_cursor(f"{following[0]}.{following[1]}")
    return page.model_copy(update={"next_cursor": next_cursor})


@router.delete(
    "/{recall_handle:path}",  # a message's id, which is refused with a hint, may have a /
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
    broker: TheBroker,
) -> None:
    """Ensure that the message is never delivered; the answer comes once that is durable.

    `recall_handle` is the one of its receipt, or of the list. It names the topic, the broker and
    the delivery time as well as the message's id. An id alone may mean several messages. It is 422,
    and `errors` names each one with its handle. A message that has been delivered, or is being
    delivered at this moment, is 409 `already-delivered`. Recalling again is harmless. A retry has
    no handle: that is the consumer group's business.
    """
    await broker.scheduled.recall(recall_handle)


def _decoded(cursor: str | None) -> tuple[int, int] | None:
    text = decode_cursor(cursor)
    if text is None:
        return None
    due_ms, _, log_offset = text.partition(".")
    try:
        return int(due_ms), int(log_offset)
    except ValueError as error:
        detail = "not a cursor that this list gave as next_cursor"
        raise ValidationError.at("/query/cursor", detail) from error
