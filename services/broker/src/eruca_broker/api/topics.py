"""Topics: create, change, show, list, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Body, Path, Query, Response

from eruca.contract.access import Right
from eruca.contract.errors import (
    ConflictError,
    DerivedTopicError,
    OverloadedError,
    SystemTopicError,
    TopicNotFoundError,
)
from eruca.contract.fields import TopicName
from eruca.contract.limits import LIST_LIMIT_DEFAULT
from eruca.contract.topics import TopicConfig, TopicList, TopicQueues, TopicSettings
from eruca_access.needs import on_topic, see, to
from eruca_broker.api.examples import messages as examples
from eruca_broker.api.parameters import IncludeSystem, PageCursor, PageLimit
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.offsets import Offsets
from eruca_broker.processors.replication.absence import Absence
from eruca_broker.processors.topics import Topics, topic_config
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import KNOWN, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/topics", tags=["topics"])

_CREATED: Final = answer(
    examples.TOPIC, HTTPStatus.CREATED, model=TopicConfig, description="The topic is new."
)
Topic = Annotated[TopicName, Path()]


@router.put(
    "/{topic}",
    operation_id="putTopic",
    needs=to(Right.ADMINISTER, topic=in_path("topic")),
    summary="Create a topic or change its settings",
    response_description="The topic existed, and has these settings now.",
    responses=_CREATED
    | answer(examples.TOPIC)
    | problems(
        SystemTopicError, DerivedTopicError, ConflictError, OverloadedError, *WRITE_REFUSALS
    ),
)
async def put_topic(
    topic: Topic,
    settings: Annotated[TopicSettings, Body(openapi_examples=examples.TOPIC_SETTINGS)],
    topics: Part[Topics],
    response: Response,
    *,
    force: Annotated[
        bool,
        Query(description="remove queues although groups have unread messages in them"),
    ] = False,
) -> TopicConfig:
    """Create the topic (201), or change the named settings of an existing topic (200).

    Settings that are not named stay unchanged; a new topic has the defaults. The answer comes once
    the change is durable, and the name servers that have this broker have acknowledged the change.
    Each is waited for a second at most, whatever the reason, and then not again until it has
    acknowledged a registration. The broker sends them all its topics, so a change takes longer the
    more topics there are. Changes made at the same time share a registration: to create many
    topics, send several requests at once.

    Queues with messages that groups have not read are not removed (409, which names queues and
    counts). Lower `write_queue_count` first, let consumers finish, then lower `read_queue_count`.
    With `force`, their messages stay stored and count as lag, but cannot be read.
    """
    known, is_new = await topics.put(topic, settings, is_forced=force)
    if is_new:
        response.status_code = HTTPStatus.CREATED
    return topic_config(known)


@router.get(
    "/{topic}",
    operation_id="getTopic",
    needs=see(topic=in_path("topic")),
    summary="Show a topic",
    responses=answer(examples.TOPIC) | problems(TopicNotFoundError),
)
async def get_topic(topic: Topic, topics: Part[Topics]) -> TopicConfig:
    """Return the topic's settings on this broker; other brokers may have other settings."""
    return topic_config(topics.get(topic))


@router.delete(
    "/{topic}",
    operation_id="deleteTopic",
    needs=to(Right.ADMINISTER, topic=in_path("topic")),
    summary="Delete a topic",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(TopicNotFoundError, SystemTopicError, ConflictError, *WRITE_REFUSALS),
)
async def delete_topic(topic: Topic, topics: Part[Topics]) -> None:
    """Delete the topic on this broker, with its queues and all groups' offsets in them, for good.

    The answer comes once the deletion is durable, and known to name servers, as that of a change.
    Requests that wait for messages of the topic get 404. A group's retry or dead-letter topic
    follows its group, and is not deleted while the group exists (409). The records stay in the log
    until retention removes them. A later topic of the same name starts at offset 0.
    """
    await topics.delete(topic)


@router.get(
    "",
    operation_id="listTopics",
    needs=KNOWN,
    summary="List topics",
    responses=answer(examples.TOPIC_LIST),
)
async def list_topics(
    topics: Part[Topics],
    absence: Part[Absence],
    access: CallersAccess,
    *,
    limit: PageLimit = LIST_LIMIT_DEFAULT,
    cursor: PageCursor = None,
    include_system: Annotated[bool, Query(description="include the system's own topics")] = False,
) -> TopicList:
    """Return this broker's topics by name, page by page.

    Only topics on which the caller has a right are listed. Follow `next_cursor` until it is null.
    A topic that is created meanwhile appears if its name sorts after the current page.
    """
    chosen, following = topics.page(
        after=decode_cursor(cursor),
        limit=limit,
        include_system=include_system,
        sees=None if access.is_open else lambda topic: access.may(on_topic(topic)),
    )
    absence.check(is_found=bool(chosen))
    return TopicList(
        topics=[topic_config(topic) for topic in chosen],
        next_cursor=None if following is None else encode_cursor(following),
    )


@router.get(
    "/{topic}/queues",
    operation_id="getQueues",
    needs=see(topic=in_path("topic")),
    summary="Get the offsets of a topic's queues",
    tags=["offsets"],
    responses=answer(examples.TOPIC_QUEUES) | problems(TopicNotFoundError),
)
async def get_queues(
    topic: Topic, offsets: Part[Offsets], *, include_system: IncludeSystem = False
) -> TopicQueues:
    """Return each queue's first stored offset and its next one.

    A queue contains `max_offset - min_offset` messages; its times are null while it is empty.
    """
    return await offsets.of_topic(topic, include_system=include_system)
