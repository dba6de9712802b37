"""Messages: one by an id, many by topic, and the timeline of one."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Path, Query, Request, Response

from eruca.contract.access import Right
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
from eruca_access.needs import see, to
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import found, in_query
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor
from eruca_chassis.requests.negotiation import accept_of, choose
from eruca_chassis.requests.time_ranges import check_order
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_query.api import examples
from eruca_query.api.rights import visible, visible_timeline
from eruca_query.core.found_messages import ms_not_before
from eruca_query.core.log_facts import ROWLESS_TOPICS
from eruca_query.core.page_cursors import position_of
from eruca_query.core.page_queries import PageQuery
from eruca_query.searching.message_pages import MessagePages
from eruca_query.searching.message_search import MessageSearch
from eruca_query.searching.timelines import Timelines
from eruca_query.searching.whole_messages import BODIES_SIZE_MAX

BODY_COUNT_MAX: Final = 100  # messages of a page with bodies: each costs its broker a request
router = Router(prefix="/v1/messages", tags=["messages"])

_OFFERED: Final = ("application/json", OCTETS_MEDIA_TYPE)
_FOUND: Final = answer(examples.MESSAGE_FOUND)
_FOUND[200]["content"][OCTETS_MEDIA_TYPE] = {"schema": {"type": "string", "format": "binary"}}

AMessageId = Annotated[MessageId, Path()]  # to the end of the path: clients' ids may have a /


@router.get(
    "/{message_id:path}/timeline",  # before the route that would match it as part of an id
    operation_id="getTimeline",
    needs=to(Right.QUERY, topic=found("topic")),
    summary="Get a message's timeline",
    responses=answer(examples.TIMELINE)
    | problems(
        MessageNotFoundError,
        MessageDamagedError,
        SearchIncompleteError,
        DatabaseUnavailableError,
    ),
)
async def get_timeline(
    message_id: AMessageId, timelines: Part[Timelines], access: CallersAccess
) -> Timeline:
    """Return a message's life: half message, checks, decision, deliveries, retries, dead letter.

    It also shows the state of each group for the message. A position shows only which messages a
    group has read, not their outcome; acknowledgements of single messages show that.
    """
    timeline = await timelines.of(message_id)
    if not access.is_open:
        timeline = visible_timeline(access, timeline, message_id)
    return timeline


@router.get(
    "/{message_id:path}",
    operation_id="getMessage",
    needs=to(Right.QUERY, topic=found("topic")),
    summary="Get a message",
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
    search: Part[MessageSearch],
    access: CallersAccess,
    *,
    topic: Annotated[
        TopicName | None,
        Query(description="the message's topic; messages of several topics may have one unique id"),
    ] = None,
) -> MessageFound | Response:
    """Return the message with an offset id or a unique id.

    Every message that was acknowledged before the request is found. Several messages may have one
    unique id: the answer is the first one that consumers see, of `topic` if that is given, and
    names the others. An unknown id is answered with 404. The answer is 503 if something could not
    be searched, and 410 if a damaged record may have the id.

    As `application/octet-stream` the answer is the message's body as it was sent, and nothing else.
    If messages of several topics have the id, `topic` must choose one (422).
    """
    media_type = choose(accept_of(request.headers), _OFFERED)
    found = await search.by_id(message_id, topic=topic)
    if not access.is_open:
        found = visible(access, found, message_id)
    if media_type == OCTETS_MEDIA_TYPE:
        if topic is None and found.message.offset_message_id != message_id.upper():
            _refuse_several_topics(found)
        return Response(found.message.octets(), media_type=OCTETS_MEDIA_TYPE)
    return found


@router.get(
    "",
    operation_id="findMessages",
    needs=to(Right.QUERY, topic=in_query("topic")) & see(group=in_query("group")),
    summary="Find a topic's messages",
    responses=answer(examples.MESSAGE_PAGE)
    | problems(GroupNotFoundError, TopicNotFoundError, ValidationError, DatabaseUnavailableError),
)
async def find_messages(
    pages: Part[MessagePages],
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
    since: Annotated[
        Moment | None,
        Query(description="stored at or after", examples=["2026-11-21T08:00:00Z"]),
    ] = None,
    until: Annotated[
        Moment | None,
        Query(description="stored before", examples=["2026-11-22T08:00:00Z"]),
    ] = None,
    group: Annotated[
        GroupFilter | None, Query(description="only messages that this group has read, or has not")
    ] = None,
    group_state: Annotated[
        Literal["past", "not_yet"],
        Query(
            description="past: the group's position is behind the message; not_yet: it is not; "
            "requires group"
        ),
    ] = "not_yet",
    bodies: Annotated[
        bool,
        Query(
            description=f"with bodies and properties; limit is then at most {BODY_COUNT_MAX}, and "
            f"a page ends after {BODIES_SIZE_MAX // 1024**2} MiB of bodies"
        ),
    ] = False,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=CURSOR_SIZE_MAX)] = None,
) -> MessagePage:
    """Return a page of a topic's messages, the newest first.

    Continue with `next_cursor` until it is null: before that a page may be short, or even empty,
    if much has to be searched. Messages that are stored meanwhile do not shift pages. A topic that
    no broker has is 404. If a broker does not answer, that is unknown: the page is then empty, and
    `incomplete` says why.
    """
    if topic in ROWLESS_TOPICS:
        raise _refused(
            "topic",
            f"records of {topic} are read as events, and cannot be found as messages",
            fix=f"export them, as with eruca export {topic}, or pull them from a broker",
        )
    check_order(since, until, pointer="/query/since")
    if group_state == "past" and group is None:
        raise _refused(
            "group_state",
            "group_state=past requires a group",
            fix="add group, or omit group_state",
        )
    if bodies and limit > BODY_COUNT_MAX:
        raise _refused(
            "limit",
            f"expected a limit of at most {BODY_COUNT_MAX} with bodies, found {limit}",
            fix=f"set limit to {BODY_COUNT_MAX} or less, or omit bodies",
        )
    before = decode_cursor(cursor)
    query = PageQuery(
        topic=topic,
        key=None if key is None else key.encode(),
        tag=None if tag is None else tag.encode(),
        from_ms=0 if since is None else max(ms_not_before(since), 0),
        to_ms=OFFSET_MAX if until is None else ms_not_before(until) - 1,
        group=group,
        group_state=group_state,
        limit=limit,
        before=None if before is None else position_of(before),
    )
    return await pages.page(query, bodies=bodies)


def _refuse_several_topics(found: MessageFound) -> None:
    """Raise ValidationError if a body alone would leave its topic ambiguous."""
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
            fix="add topic, or use the message's offset id",
        )


def _refused(name: str, detail: str, *, fix: str) -> ValidationError:
    pointer = f"/query/{name}"
    return ValidationError.at(pointer, detail, fix=fix)
