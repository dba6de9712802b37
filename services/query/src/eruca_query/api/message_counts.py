"""Numbers of a topic's messages by time, for pictures of its volume."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

from eruca.contract.access import Right
from eruca.contract.errors import DatabaseUnavailableError, TopicNotFoundError, ValidationError
from eruca.contract.fields import OFFSET_MAX, Moment, TopicName
from eruca.contract.queries import MessageCounts
from eruca_access.needs import to
from eruca_chassis.admission.needs import in_query
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.time_ranges import check_order
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_query.api import examples
from eruca_query.core.found_messages import ms_not_before
from eruca_query.core.log_facts import ROWLESS_TOPICS
from eruca_query.core.time_buckets import TimeBuckets
from eruca_query.searching.message_counts import MessageCounter

BUCKETS_MAX: Final = 500  # a picture has no more columns
BUCKETS_DEFAULT: Final = 60
SPAN_MS_DEFAULT: Final = 3_600_000  # an hour

router = Router(prefix="/v1/message-counts", tags=["messages"])


@router.get(
    "",
    operation_id="getMessageCounts",
    needs=to(Right.QUERY, topic=in_query("topic")),
    summary="Count a topic's messages by time",
    responses=answer(examples.MESSAGE_COUNTS)
    | problems(TopicNotFoundError, ValidationError, DatabaseUnavailableError),
)
async def get_message_counts(
    counter: Part[MessageCounter],
    *,
    topic: Annotated[TopicName, Query()],
    since: Annotated[
        Moment | None,
        Query(
            description="stored at or after; default: an hour before `until`",
            examples=["2026-11-21T08:00:00Z"],
        ),
    ] = None,
    until: Annotated[
        Moment | None,
        Query(description="stored before; default: now", examples=["2026-11-21T09:00:00Z"]),
    ] = None,
    buckets: Annotated[
        int, Query(ge=1, le=BUCKETS_MAX, description="stretches of time, at most")
    ] = BUCKETS_DEFAULT,
) -> MessageCounts:
    """Return how many of a topic's messages were stored in each stretch of time, oldest first.

    Messages that were stored before the request are counted, including those that the read model
    has not read yet. The newest are counted first. If that takes too long, `count` of the older
    stretches is null, and `incomplete` says so.
    """
    if topic in ROWLESS_TOPICS:
        raise ValidationError.at(
            "/query/topic",
            f"records of {topic} are read as events, and are not counted",
            fix=f"export them, as with eruca export {topic}, or pull them from a broker",
        )
    check_order(since, until, pointer="/query/since")
    to_ms = min(counter.now_ms() if until is None else ms_not_before(until) - 1, OFFSET_MAX)
    from_ms = to_ms + 1 - SPAN_MS_DEFAULT if since is None else ms_not_before(since)
    if from_ms > to_ms:
        raise ValidationError.at(
            "/query/since",
            "expected a time before the present, or before until",
            fix="give an earlier time",
        )
    return await counter.count(topic, TimeBuckets.of(max(from_ms, 0), max(to_ms, 0), buckets))
