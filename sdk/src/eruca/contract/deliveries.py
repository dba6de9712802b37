"""Deliveries: consume over plain HTTP, without a session and without queues.

A client receives messages under a lease, each with a **handle**. No other client receives them
until the lease expires. Before that, the client acknowledges, rejects or extends each message by
its handle. A handle whose lease has expired is refused with 410. A handle is refused with 409 if
its message is already acknowledged or has been redelivered since. A request with a refused handle
changes nothing.

This is RocketMQ's pop consumption, with three differences: a redelivered message keeps its place in
its queue, a handle stays valid when its lease is extended, and an ordered group keeps the order of
each sharding key.
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
        description="Length of the lease: no other client receives the messages before it ends.",
    ),
]
Handle = Annotated[
    str,
    Field(
        min_length=1,
        max_length=HANDLE_SIZE_MAX,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Opaque text that came with the message.",
    ),
]
EmptyBecause = Literal["empty", "throttled", "paused", "blocked"]


def _distinct(handles: list[str]) -> list[str]:
    if len(set(handles)) < len(handles):
        raise ValueError("the list contains a handle twice")
    return handles


Handles = Annotated[
    list[Handle],
    Field(min_length=1, max_length=HANDLE_COUNT_MAX, fail_fast=True),
    AfterValidator(_distinct),
]


class DeliveryRequest(Request):
    """Request messages under a lease."""

    topic: TopicName
    filter: Annotated[str, Field(max_length=FILTER_SIZE_MAX)] = Field(
        default="*", description="selects the topic's messages; the same in all requests of a group"
    )
    filter_type: FilterType = "tag"
    count_max: Annotated[int, Field(ge=1, le=DELIVERY_COUNT_MAX)] = 1
    invisible_seconds: InvisibleSeconds = INVISIBLE_SECONDS_DEFAULT
    wait_seconds: WaitSeconds = Field(
        default=0, description="how long to wait for a message if there is none now"
    )
    start: Start | None = Field(
        default=None,
        description="start of a group that this request creates; null: `latest`; ignored for an "
        "existing group",
    )


class Delivery(Struct, frozen=True, kw_only=True):
    """A message under a lease."""

    handle: str  # acknowledges or rejects the message, or extends its lease
    attempt: int  # deliveries of the message so far, this one included
    visible_at: InstantText  # the lease ends: other clients may receive the message
    message: PulledMessage


class DeliveryAnswer(Struct, frozen=True, kw_only=True):
    """The delivered messages, or the reason why there is none.

    ``empty_because`` is "empty": there are no messages now; "blocked": the messages wait for
    earlier ones of their sharding key; "throttled": too many messages are unacknowledged; "paused":
    the group's consumption is switched off, or members with locks read all queues.
    """

    deliveries: list[Delivery]
    empty_because: EmptyBecause | None
    retry_after_seconds: float | None  # until the next unacknowledged message is redelivered


class DeliveryAcks(Request):
    """Acknowledge messages: all of them or, if one handle is refused, none."""

    handles: Handles


class DeliveryNacks(Request):
    """Reject messages: each is redelivered or becomes a dead letter; all of them or none."""

    handles: Handles
    delay_seconds: DelaySeconds | None = Field(
        default=None, description="delay before redelivery; null: by the group's retry policy"
    )
    reason: RetryReason = "failed"
    error: Annotated[str, Field(max_length=65_536)] | None = Field(
        default=None, description="the error's text; 1 KiB of it is kept with a dead letter"
    )


class DeliveryExtension(Request):
    """Extend leases, counted from now: all of them or, if one handle is refused, none."""

    handles: Handles
    invisible_seconds: InvisibleSeconds = INVISIBLE_SECONDS_DEFAULT


class ExtendedDeliveries(Answer):
    """The new end of the leases; the handles stay the same."""

    visible_at: Instant


class NackResult(Answer):
    """Outcome of one rejected message."""

    outcome: Literal["retry", "dead_letter"]
    attempts: int = Field(description="deliveries of the message so far")
    visible_at: Instant | None = Field(description="time of the redelivery; null for a dead letter")


class NackResults(Answer):
    """Outcomes of the rejected messages, in the request's order."""

    results: list[NackResult]
