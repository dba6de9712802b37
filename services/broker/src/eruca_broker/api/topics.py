"""Topics: create, change, look at, list, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Body, Path, Query, Response

from eruca.contract.errors import (
    ConflictError,
    DerivedTopicError,
    OverloadedError,
    SystemTopicError,
    TopicNotFoundError,
)
from eruca.contract.fields import TopicName
from eruca.contract.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from eruca.contract.topics import TopicConfig, TopicList, TopicQueues, TopicSettings
from eruca_broker.api.dependencies import IncludeSystem, TheBroker
from eruca_broker.api.examples import messages as examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.topics import topic_config
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor

router = APIRouter(prefix="/v1/topics", tags=["topics"])

_CREATED: Final = answer(
    examples.TOPIC, HTTPStatus.CREATED, model=TopicConfig, description="The topic is new."
)
Topic = Annotated[TopicName, Path()]


@router.put(
    "/{topic}",
    operation_id="putTopic",
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
    broker: TheBroker,
    response: Response,
    *,
    force: Annotated[
        bool,
        Query(description="take queues away although groups have still to read their messages"),
    ] = False,
) -> TopicConfig:
    """Create the topic (201), or change those of its settings that are named (200).

    What is not named stays as it is; a new topic has the defaults. The answer comes once the change
    is durable; settings that are as they were change nothing. Name servers learn of it at once.

    Queues that groups have still to read are not taken away (409, which names queues and counts):
    lower `write_queue_count` first, let consumers finish, then lower `read_queue_count`. With
    `force`, their messages stay stored and count as lag, but cannot be reached.
    """
    known, is_new = await broker.topics.put(topic, settings, is_forced=force)
    if is_new:
        response.status_code = HTTPStatus.CREATED
    return topic_config(known)


@router.get(
    "/{topic}",
    operation_id="getTopic",
    summary="Look at a topic",
    responses=answer(examples.TOPIC) | problems(TopicNotFoundError),
)
async def get_topic(topic: Topic, broker: TheBroker) -> TopicConfig:
    """Return the topic as this broker holds it; other brokers may hold it otherwise."""
    return topic_config(broker.topics.get(topic))


@router.delete(
    "/{topic}",
    operation_id="deleteTopic",
    summary="Delete a topic",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(TopicNotFoundError, SystemTopicError, ConflictError, *WRITE_REFUSALS),
)
async def delete_topic(topic: Topic, broker: TheBroker) -> None:
    """Delete the topic here, with its queues and every group's offsets in them; final.

    The answer comes once the deletion is durable. Whoever is waiting for messages of the topic is
    answered 404. A group's retry or dead-letter topic follows its group, and is not deleted while
    that is there (409). Its records stay in the log until retention removes them. A topic of the
    same name created later starts at offset 0 again.
    """
    await broker.topics.delete(topic)


@router.get(
    "",
    operation_id="listTopics",
    summary="List topics",
    responses=answer(examples.TOPIC_LIST),
)
async def list_topics(
    broker: TheBroker,
    *,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[
        str | None,
        Query(max_length=512, description="`next_cursor` of the page before; opaque"),
    ] = None,
    include_system: Annotated[bool, Query(description="also the system's own topics")] = False,
) -> TopicList:
    """Return this broker's topics by name, a page at a time.

    Follow `next_cursor` until it is null. A topic that is created meanwhile appears if its name
    comes later than where you are.
    """
    chosen, following = broker.topics.page(
        after=decode_cursor(cursor),
        limit=limit,
        include_system=include_system,
    )
    return TopicList(
        topics=[topic_config(topic) for topic in chosen],
        next_cursor=None if following is None else encode_cursor(following),
    )


@router.get(
    "/{topic}/queues",
    operation_id="getQueues",
    summary="Where a topic's queues begin and end",
    tags=["offsets"],
    responses=answer(examples.TOPIC_QUEUES) | problems(TopicNotFoundError),
)
async def get_queues(
    topic: Topic, broker: TheBroker, *, include_system: IncludeSystem = False
) -> TopicQueues:
    """Return each queue's first offset that is still there and the next one to be given.

    A queue holds `max_offset - min_offset` messages; its times are null while it is empty.
    """
    return broker.offsets.of_topic(topic, include_system=include_system)
