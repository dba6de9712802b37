"""Delayed messages: list and recall them. They are sent like any other message."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Query

from eruca.contract.access import Right
from eruca.contract.errors import (
    AlreadyDeliveredError,
    ScheduledNotFoundError,
    ValidationError,
)
from eruca.contract.fields import TopicName
from eruca.contract.limits import LIST_LIMIT_DEFAULT
from eruca.contract.recall_handles import (
    RECALL_HANDLE_SIZE_MAX,
    MalformedRecallHandleError,
    decode_recall_handle,
)
from eruca.contract.retries import ScheduledList
from eruca_access.needs import on_topic, see, to
from eruca_broker.api.examples import later as examples
from eruca_broker.api.parameters import PageCursor, PageLimit
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.replication.absence import Absence
from eruca_broker.processors.scheduled import Scheduled
from eruca_chassis.admission.gate import Access, CallersAccess
from eruca_chassis.admission.needs import found, in_query
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/scheduled", tags=["delayed messages"])


@router.get(
    "",
    operation_id="listScheduled",
    needs=see(topic=in_query("topic")),
    summary="List delayed messages",
    responses=answer(examples.SCHEDULED_LIST),
)
async def list_scheduled(
    scheduled: Part[Scheduled],
    absence: Part[Absence],
    access: CallersAccess,
    *,
    topic: Annotated[TopicName | None, Query(description="only messages for this topic")] = None,
    limit: PageLimit = LIST_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> ScheduledList:
    """Return this broker's delayed messages and retries in the order of their times, page by page.

    Follow `next_cursor` until it is null. With `topic`, a page may have few messages or none before
    that. Messages that are delivered meanwhile are omitted.
    """
    page, following = await scheduled.page(topic=topic, limit=limit, after=_decoded(cursor))
    absence.check(is_found=bool(page.scheduled or page.damaged) or following is not None)
    if not access.is_open:
        seen = [message for message in page.scheduled if access.may(on_topic(message.topic))]
        page = page.model_copy(update={"scheduled": seen})
    next_cursor = None if following is None else encode_cursor(f"{following[0]}.{following[1]}")
    return page.model_copy(update={"next_cursor": next_cursor})


@router.delete(
    "/{recall_handle:path}",  # a message's id, which is refused with a hint, may contain a /
    operation_id="recallScheduled",
    needs=to(Right.PRODUCE, Right.ADMINISTER, topic=found("topic")),
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
    access: CallersAccess,
) -> None:
    """Ensure that the message is never delivered; the answer comes once that is durable.

    `recall_handle` is in its receipt, and in the list. It names the topic, the broker, the delivery
    time and the message's id. An id alone may belong to several messages: it is 422, and `errors`
    names each message with its handle. A message that was delivered, or is being delivered at this
    moment, is 409 `already-delivered`. You may repeat a recall. A retry has no handle, because only
    its consumer group decides about it.
    """
    if not access.is_open:
        _require_topic(access, recall_handle)
    await scheduled.recall(recall_handle)


def _require_topic(access: Access, recall_handle: str) -> None:
    try:
        topic = decode_recall_handle(recall_handle).topic
    except MalformedRecallHandleError:
        # Only a handle says its topic. Without one, the answer would name messages of any topic.
        raise ValidationError.at("/path/recall_handle", "expected a recall handle") from None
    access.require(on_topic(topic, Right.PRODUCE, Right.ADMINISTER))


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
