"""Retries, dead letters and scheduled messages.

A member sends back each message that it failed to consume. The broker redelivers the message after
a delay, through the group's retry topic. When its retries are used up, it becomes a **dead
letter**: a message of the group's dead-letter topic, with its origin and the reason. An operator
can inspect dead letters and **redrive** them: send them to their topic of origin as new messages.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from eruca.contract.fields import Answer, Moment, Offset, QueueId, Request, TopicName
from eruca.contract.groups import ClientId, Incarnation, Token
from eruca.contract.limits import (
    DELAY_SECONDS_MAX,
    REDRIVE_COUNT_MAX,
    RETRY_TIMES_MAX,
    SEND_BACK_COUNT_MAX,
)
from eruca.contract.times import Instant

RetryReason = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        pattern=r"^[a-z][a-z0-9_]*$",
        description="The reason of the failure, in one word.",
        examples=["failed", "timed_out"],
    ),
]


class SendBack(Request):
    """A message that was not consumed: schedule its redelivery."""

    topic: TopicName = Field(
        description="topic of the queue it was read from; may be the retry topic"
    )
    queue_id: QueueId
    queue_offset: Offset
    token: Token
    delay_level: Annotated[int, Field(ge=-1, le=18)] | None = Field(
        default=None,
        description="RocketMQ's delay level; -1: dead letter at once; null or 0: by the group's "
        "retry policy",
    )
    delay_seconds: (
        Annotated[float, Field(ge=0, le=DELAY_SECONDS_MAX, allow_inf_nan=False)] | None
    ) = None
    reason: RetryReason = "failed"
    error: Annotated[str, Field(max_length=65_536)] | None = Field(
        default=None, description="the error's text; 1 KiB of it is kept"
    )
    retries_max: Annotated[int, Field(ge=0, le=RETRY_TIMES_MAX)] | None = Field(
        default=None, description="overrides the group's setting"
    )
    attempts: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None,
        description="number of calls of a handler with it, for a dead letter's `attempts`; null: "
        "one more than its send-backs so far",
    )

    @model_validator(mode="after")
    def _has_one_delay(self) -> SendBack:
        if self.delay_level is not None and self.delay_seconds is not None:
            raise ValueError("give delay_level or delay_seconds, not both")
        return self


class SendBacks(Request):
    """Send messages back together: all of them or none, durable on return."""

    client_id: ClientId
    incarnation: Incarnation
    messages: Annotated[
        list[SendBack], Field(min_length=1, max_length=SEND_BACK_COUNT_MAX, fail_fast=True)
    ]


class SendBackResult(Answer):
    """Outcome of one message."""

    outcome: Literal["retry", "dead_letter"]
    reconsume_times: int = Field(description="number of send-backs so far, this one included")
    deliver_at: Instant | None = Field(description="null for a dead letter")


class SendBackResults(Answer):
    """Outcomes of the messages, in the request's order."""

    results: list[SendBackResult]


# --- Dead letters ---------------------------------------------------------------------------------


class DeadLetter(Answer):
    """A message whose retries are used up.

    A damaged dead letter has its fault in ``damage``. Then only ``dead_letter_id``, ``size`` and
    ``redriven_at`` are set; all other fields are null.
    """

    dead_letter_id: int = Field(description="offset in the dead-letter topic's queue")
    origin_topic: str | None
    origin_queue_id: int | None
    origin_offset: int | None
    message_id: str | None = Field(description="the unique id")
    reason: str | None
    attempts: int | None = Field(description="number of deliveries to members")
    last_error: str | None
    dead_at: Instant | None
    redriven_at: Instant | None
    size: int = Field(description="bytes in the log")
    damage: str | None = Field(
        default=None, description="the fault of a damaged dead letter; null: not damaged"
    )


class DeadLetterDetail(DeadLetter):
    """A dead letter with its message."""

    message: dict[str, Any] = Field(description="the message in the form of a pull")


class DeadLetterList(Answer):
    """A page of dead letters, oldest first."""

    dead_letters: list[DeadLetter]
    min_offset: int = Field(default=0, description="the first id that retention has kept")
    max_offset: int = Field(
        default=0,
        description="the list ends before this id, which is the same on each page; later dead "
        "letters are not in it",
    )
    next_cursor: str | None = None


class DeadLetterFilter(Request):
    """Select dead letters; null fields select all."""

    topic: TopicName | None = Field(default=None, description="the topic of origin")
    reason: RetryReason | None = None
    since: Moment | None = Field(default=None, description="dead at this time or later")
    until: Moment | None = Field(default=None, description="dead before this time")
    message_ids: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=255)]],
            Field(min_length=1, max_length=REDRIVE_COUNT_MAX),
        ]
        | None
    ) = None


class Redrive(Request):
    """Send dead letters to their topics of origin, selected by ids or by a filter."""

    ids: (
        Annotated[list[Offset], Field(min_length=1, max_length=REDRIVE_COUNT_MAX, fail_fast=True)]
        | None
    ) = Field(default=None, description="dead letter ids")
    filter: DeadLetterFilter | None = None
    cursor: Annotated[str, Field(max_length=512)] | None = Field(
        default=None, description="`next_cursor` of the previous answer; only with a filter"
    )
    before_id: Offset | None = Field(
        default=None,
        description="upper bound of the ids, such as a list's `max_offset`; null: all dead letters "
        "at the time of the first request; only with a filter",
    )
    limit: Annotated[int, Field(ge=1, le=REDRIVE_COUNT_MAX)] = REDRIVE_COUNT_MAX
    dry_run: bool = False

    @model_validator(mode="after")
    def _says_which(self) -> Redrive:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or a filter")
        if self.cursor is not None and self.filter is None:
            raise ValueError("a cursor needs a filter")
        if self.before_id is not None and self.filter is None:
            raise ValueError("before_id needs a filter")
        return self


class RedriveOutcome(Answer):
    """Outcome of one dead letter."""

    dead_letter_id: int
    outcome: Literal["redriven", "skipped", "not_found"]
    topic: str | None = Field(description="the topic that it was, or would be, sent to")
    detail: str | None = Field(default=None, description="reason why it was skipped")


class RedriveAnswer(Answer):
    """Result of a redrive, or of its dry run."""

    outcomes: list[RedriveOutcome]
    looked_at_count: int = Field(
        default=0, description="dead letters that this request examined, matching or not"
    )
    next_cursor: str | None = None
    dry_run: bool = False


# --- Delayed messages -----------------------------------------------------------------------------


class ScheduledMessage(Answer):
    """A message that waits for its delivery time."""

    message_id: str | None = Field(description="the unique id")
    recall_handle: str | None = Field(
        default=None, description="identifies it in `recallScheduled`; null for a retry"
    )
    topic: str
    queue_id: int
    deliver_at: Instant
    stored_at: Instant
    log_offset: int
    size: int = Field(description="bytes in the log")


class DamagedScheduled(Answer):
    """A damaged scheduled message: the broker drops it at its delivery time."""

    log_offset: int
    deliver_at: Instant
    reason: str = Field(description="the fault")


class ScheduledList(Answer):
    """A page of delayed messages, by delivery time."""

    scheduled: list[ScheduledMessage]
    damaged: list[DamagedScheduled] = Field(
        default=[], description="damaged messages of any topic: only their time is known"
    )
    next_cursor: str | None = None
