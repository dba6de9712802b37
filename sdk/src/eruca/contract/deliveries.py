"""Deliveries: consuming with nothing but HTTP, without a session and without queues.

A client asks for messages and gets them for a time, each with a **handle**. Until that time is over
nobody else gets them. Then the client acknowledges, gives up, or asks for more time, and shows the
handle. Whoever is too late is told so: a handle that has run out is 410, one whose message is done
or has been handed out anew is 409, and then nothing of the request is done.

This is RocketMQ's pop consumption. Unlike there a message that comes again keeps its place in its
queue, a handle stays valid when its time is extended, and order by sharding key holds where the
group is ordered.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct
from pydantic import AfterValidator, Field

from eruca.contract.fields import Answer, Request, TopicName, WaitSeconds
from eruca.contract.groups import DelaySeconds, FilterType, Start
from eruca.contract.instant_texts import InstantText
from eruca.contract.limits import (
    DELIVERY_COUNT_MAX,
    FILTER_SIZE_MAX,
    HANDLE_COUNT_MAX,
    HANDLE_SIZE_MAX,
    INVISIBLE_SECONDS_DEFAULT,
    INVISIBLE_SECONDS_MAX,
    INVISIBLE_SECONDS_MIN,
)
from eruca.contract.messages import PulledMessage
from eruca.contract.retries import RetryReason
from eruca.contract.times import Instant

InvisibleSeconds = Annotated[
    float,
    Field(
        ge=INVISIBLE_SECONDS_MIN,
        le=INVISIBLE_SECONDS_MAX,
        allow_inf_nan=False,
        description="For so long nobody else gets the messages.",
    ),
]
Handle = Annotated[
    str,
    Field(
        min_length=1,
        max_length=HANDLE_SIZE_MAX,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="As it came with the message; opaque.",
    ),
]
EmptyBecause = Literal["empty", "throttled", "paused", "blocked"]


def _distinct(handles: list[str]) -> list[str]:
    if len(set(handles)) < len(handles):
        raise ValueError("a handle is in the list twice")
    return handles


Handles = Annotated[
    list[Handle],
    Field(min_length=1, max_length=HANDLE_COUNT_MAX, fail_fast=True),
    AfterValidator(_distinct),
]


class DeliveryRequest(Request):
    """Ask for messages."""

    topic: TopicName
    filter: Annotated[str, Field(max_length=FILTER_SIZE_MAX)] = Field(
        default="*", description="which of its messages; the same in all requests of a group"
    )
    filter_type: FilterType = "tag"
    max_count: Annotated[int, Field(ge=1, le=DELIVERY_COUNT_MAX)] = 1
    invisible_seconds: InvisibleSeconds = INVISIBLE_SECONDS_DEFAULT
    wait_seconds: WaitSeconds = Field(
        default=0, description="where there is nothing: how long to wait for something"
    )
    start: Start | None = Field(
        default=None, description="of a group that this request creates, null: latest"
    )


class Delivery(Struct, frozen=True, kw_only=True):
    """A message that is the client's for a time."""

    handle: str  # to acknowledge it, give it up, or extend the time
    attempt: int  # how often it has been handed out, this time included
    visible_at: InstantText  # from then on others may get it
    message: PulledMessage


class DeliveryAnswer(Struct, frozen=True, kw_only=True):
    """The messages handed out; where there is none, why.

    ``empty_because`` is "empty": nothing is there now; "blocked": what is there waits for earlier
    messages of its sharding key; "throttled": too many messages are unfinished; "paused": the
    group's consumption is switched off, or all queues are read by members with locks.
    """

    deliveries: list[Delivery]
    empty_because: EmptyBecause | None
    retry_after_seconds: float | None  # when a message that is unfinished now comes again at last


class DeliveryAcks(Request):
    """These messages are done: all of them or, if one handle is refused, none."""

    handles: Handles


class DeliveryNacks(Request):
    """These messages were not consumed: they come again, or are dead letters. All, or none."""

    handles: Handles
    delay_seconds: DelaySeconds | None = Field(
        default=None, description="before they come again; null: by the group's retry policy"
    )
    reason: RetryReason = "failed"
    error: Annotated[str, Field(max_length=65_536)] | None = Field(
        default=None, description="the error's text; 1 KiB of it is kept with a dead letter"
    )


class DeliveryExtension(Request):
    """More time for these messages, from now on: all of them or, if one is refused, none."""

    handles: Handles
    invisible_seconds: InvisibleSeconds = INVISIBLE_SECONDS_DEFAULT


class ExtendedDeliveries(Answer):
    """How long the messages are the client's now; their handles are as before."""

    visible_at: Instant


class NackResult(Answer):
    """What became of a message."""

    outcome: Literal["retry", "dead_letter"]
    attempts: int = Field(description="how often it has been handed out")
    visible_at: Instant | None = Field(description="when it comes again; null for a dead letter")


class NackResults(Answer):
    """What became of the messages, in the request's order."""

    results: list[NackResult]
