"""Messages: one by an id, many by topic, and what befell one."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from eruca.contract.errors import (
    DatabaseUnavailableError,
    GroupNotFoundError,
    MessageDamagedError,
    MessageNotFoundError,
    NotAcceptableError,
    RecordNotFoundError,
    SearchIncompleteError,
    TopicNotFoundError,
    ValidationError,
)
from eruca.contract.fields import OFFSET_MAX, Moment, TopicName
from eruca.contract.limits import (
    CURSOR_SIZE_MAX,
    KEY_SIZE_MAX,
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
)
from eruca.contract.names import is_derived_topic, is_system_topic
from eruca.contract.queries import GroupFilter, MessageFound, MessageId, MessagePage, Timeline
from eruca.contract.wire import OCTETS_MEDIA_TYPE
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor
from eruca_chassis.requests.negotiation import accept_of, choose
from eruca_chassis.requests.time_ranges import check_order
from eruca_query.api import examples
from eruca_query.api.dependencies import TheService
from eruca_query.core.found_messages import ms_not_before
from eruca_query.core.log_facts import ROWLESS_TOPICS
from eruca_query.core.page_cursors import position_of
from eruca_query.core.page_queries import PageQuery
from eruca_query.searching.whole_messages import BODIES_SIZE_MAX

BODY_COUNT_MAX: Final = 100  # messages of a page with bodies: each costs its broker a request
router = APIRouter(prefix="/v1/messages", tags=["messages"])

_OFFERED: Final = ("application/json", OCTETS_MEDIA_TYPE)
_FOUND: Final = answer(examples.MESSAGE_FOUND)
_FOUND[200]["content"][OCTETS_MEDIA_TYPE] = {"schema": {"type": "string", "format": "binary"}}

AMessageId = Annotated[MessageId, Path()]  # to the end of the path: clients' ids may have a /


@router.get(
    "/{message_id:path}/timeline",  # before what would take it for a part of an id
    operation_id="getTimeline",
    summary="What befell a message",
    responses=answer(examples.TIMELINE)
    | problems(
        MessageNotFoundError,
        MessageDamagedError,
        SearchIncompleteError,
        DatabaseUnavailableError,
    ),
)
async def get_timeline(message_id: AMessageId, service: TheService) -> Timeline:
    """Return a message's life: half message, checks, decision, deliveries, retries, dead letter.

    It also tells where each group stands with the message. A position tells what a group has read,
    not what became of it; only groups that finish messages one by one tell that.
    """
    return await service.timelines.of(message_id)


@router.get(
    "/{message_id:path}",
    operation_id="getMessage",
    summary="Look at one message",
    response_model=MessageFound,
    responses=_FOUND
    | problems(
        MessageNotFoundError,
        MessageDamagedError,
        RecordNotFoundError,
        NotAcceptableError,
        SearchIncompleteError,
        DatabaseUnavailableError,
    ),
)
async def get_message(
    request: Request,
    message_id: AMessageId,
    service: TheService,
    *,
    topic: Annotated[
        TopicName | None,
        Query(description="where it lies: a unique id may be that of messages in several topics"),
    ] = None,
) -> MessageFound | Response:
    """Return the message with an offset id or a unique id.

    What was acknowledged before the request is found. Several messages may have one unique id: the
    first that consumers see is returned, of `topic` if that is given, and where the others lie. An
    id that is found nowhere is answered 404, but 503 while something could not be looked through,
    and 410 where it may be that of a damaged record.

    As `application/octet-stream` it is the message's body as it was sent, and nothing else. Where
    messages of several topics have the id, `topic` must say which is meant (422).
    """
    media_type = choose(accept_of(request.headers), _OFFERED)
    found = await service.search.by_id(message_id, topic=topic)
    if media_type == OCTETS_MEDIA_TYPE:
        if topic is None and found.message.offset_message_id != message_id.upper():
            _refuse_several_topics(found)
        return Response(found.message.octets(), media_type=OCTETS_MEDIA_TYPE)
    return found


@router.get(
    "",
    operation_id="findMessages",
    summary="Find a topic's messages",
    responses=answer(examples.MESSAGE_PAGE)
    | problems(GroupNotFoundError, TopicNotFoundError, ValidationError, DatabaseUnavailableError),
)
async def find_messages(
    service: TheService,
    *,
    topic: Annotated[TopicName, Query()],
    key: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=KEY_SIZE_MAX,
            pattern=r"^\S+$",
            description="one of a message's keys; compared exactly",
            examples=["UA1545"],
        ),
    ] = None,
    tag: Annotated[
        str | None,
        Query(min_length=1, max_length=KEY_SIZE_MAX, description="compared exactly"),
    ] = None,
    begin: Annotated[
        Moment | None,
        Query(alias="from", description="stored then or later", examples=["2026-11-21T08:00:00Z"]),
    ] = None,
    end: Annotated[
        Moment | None,
        Query(alias="to", description="stored before then", examples=["2026-11-22T08:00:00Z"]),
    ] = None,
    group: Annotated[
        GroupFilter | None, Query(description="only what this group has read, or not")
    ] = None,
    group_state: Annotated[
        Literal["past", "not_yet"],
        Query(
            description="past: the group's position is behind the message; not_yet: it is not; "
            "with group"
        ),
    ] = "not_yet",
    bodies: Annotated[
        bool,
        Query(
            description=f"with bodies and properties; limit is {BODY_COUNT_MAX} at most then, and "
            f"a page ends with {BODIES_SIZE_MAX // 1024**2} MiB of bodies"
        ),
    ] = False,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=CURSOR_SIZE_MAX)] = None,
) -> MessagePage:
    """Return a page of a topic's messages, the newest first.

    Go on with `next_cursor` until it is null: a page may be short, or even empty, before that,
    where there is much to look through. Messages that are stored meanwhile do not shift pages. A
    topic that no broker has is 404. Where a broker does not answer, that is not known: the page is
    empty, and `incomplete` says why.
    """
    if topic in ROWLESS_TOPICS:
        raise _refused(
            "topic",
            f"records of {topic} are read for what they tell, and cannot be found as messages",
            fix=f"export them, as with eruca export {topic}, or pull them from a broker",
        )
    check_order(begin, end, pointer="/query/from")
    if group_state == "past" and group is None:
        raise _refused(
            "group_state",
            "past says what a group has read, and no group is given",
            fix="give group as well, or leave group_state out",
        )
    if bodies and limit > BODY_COUNT_MAX:
        raise _refused(
            "limit",
            f"at most {BODY_COUNT_MAX} messages come with their bodies; got {limit}",
            fix=f"ask for {BODY_COUNT_MAX} at a time, or without bodies",
        )
    before = decode_cursor(cursor)
    query = PageQuery(
        topic=topic,
        key=None if key is None else key.encode(),
        tag=None if tag is None else tag.encode(),
        from_ms=0 if begin is None else max(ms_not_before(begin), 0),
        to_ms=OFFSET_MAX if end is None else ms_not_before(end) - 1,
        group=group,
        group_state=group_state,
        limit=limit,
        before=None if before is None else position_of(before),
    )
    return await service.pages.page(query, bodies=bodies)


def _refuse_several_topics(found: MessageFound) -> None:
    """Raise ValidationError where a body alone would not tell which message of an id it is of."""
    places = [found.message, *found.also_stored]
    topics = {
        place.topic
        for place in places
        if not is_system_topic(place.topic) and not is_derived_topic(place.topic)
    }
    if len(topics) > 1:
        raise _refused(
            "topic",
            f"messages of several topics have this id: {', '.join(sorted(topics))}",
            fix="give topic as well, or the offset id of the one that is meant",
        )


def _refused(name: str, detail: str, *, fix: str) -> ValidationError:
    pointer = f"/query/{name}"
    return ValidationError.at(pointer, detail, fix=fix)
