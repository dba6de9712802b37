"""What happens to messages later: retries, dead letters, delayed messages.

A member sends back what it could not consume. The broker delivers it again, through the group's
retry topic and after a delay, until it has failed often enough to become a **dead letter**: a
message of the group's dead-letter topic that says where it came from and why it is there. Dead
letters can be looked at and **redriven**: sent to their topic of origin as if they were new.
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
        description="Why it was not consumed, in a word.",
        examples=["failed", "timed_out"],
    ),
]


class SendBack(Request):
    """A message that was not consumed: deliver it again later."""

    topic: TopicName = Field(description="of the queue it was read from: may be the retry topic")
    queue_id: QueueId
    queue_offset: Offset
    token: Token
    delay_level: Annotated[int, Field(ge=-1, le=18)] | None = Field(
        default=None,
        description="RocketMQ's: -1 is a dead letter at once; null or 0: by the group's policy",
    )
    delay_seconds: (
        Annotated[float, Field(ge=0, le=DELAY_SECONDS_MAX, allow_inf_nan=False)] | None
    ) = None
    reason: RetryReason = "failed"
    error: Annotated[str, Field(max_length=65_536)] | None = Field(
        default=None, description="the error's text; 1 KiB of it is kept"
    )
    retry_max_times: Annotated[int, Field(ge=0, le=RETRY_TIMES_MAX)] | None = Field(
        default=None, description="instead of the group's"
    )
    attempts: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None,
        description="how often it was handed to a handler, for a dead letter to tell; null: once "
        "more than it had been sent back",
    )

    @model_validator(mode="after")
    def _has_one_delay(self) -> SendBack:
        if self.delay_level is not None and self.delay_seconds is not None:
            raise ValueError("delay_level and delay_seconds exclude each other")
        return self


class SendBacks(Request):
    """Messages sent back together: all of them or none, durable on return."""

    client_id: ClientId
    incarnation: Incarnation
    messages: Annotated[
        list[SendBack], Field(min_length=1, max_length=SEND_BACK_COUNT_MAX, fail_fast=True)
    ]


class SendBackResult(Answer):
    """What became of one message."""

    outcome: Literal["retry", "dead_letter"]
    reconsume_times: int = Field(description="how often it has been sent back, this time included")
    deliver_at: Instant | None = Field(description="null for a dead letter")


class SendBackResults(Answer):
    """What became of the messages, in the request's order."""

    results: list[SendBackResult]


# --- Dead letters ---------------------------------------------------------------------------------


class DeadLetter(Answer):
    """A message a group gave up on.

    One that is damaged says so in ``damage``, and has id and size alone: all else is null, but for
    ``redriven_at``.
    """

    dead_letter_id: int = Field(description="its offset in the dead-letter topic's queue")
    origin_topic: str | None
    origin_queue_id: int | None
    origin_offset: int | None
    message_id: str | None = Field(description="the unique id")
    reason: str | None
    attempts: int | None = Field(description="how often it was handed to a member")
    last_error: str | None
    dead_at: Instant | None
    redriven_at: Instant | None
    size: int = Field(description="bytes in the log")
    damage: str | None = Field(default=None, description="what is wrong with it; null: nothing")


class DeadLetterDetail(DeadLetter):
    """A dead letter with its message."""

    message: dict[str, Any] = Field(description="as a pull returns it")


class DeadLetterList(Answer):
    """A page of dead letters, oldest first."""

    dead_letters: list[DeadLetter]
    min_offset: int = Field(default=0, description="the first id that is still there")
    max_offset: int = Field(
        default=0,
        description="the list ends before this id: what is dead later is not in it; the same on "
        "each page",
    )
    next_cursor: str | None = None


class DeadLetterFilter(Request):
    """Which dead letters; what is null does not matter."""

    topic: TopicName | None = Field(default=None, description="the topic of origin")
    reason: RetryReason | None = None
    from_: Moment | None = Field(default=None, alias="from", description="dead then or later")
    to: Moment | None = Field(default=None, description="dead before then")
    message_ids: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=255)]],
            Field(min_length=1, max_length=REDRIVE_COUNT_MAX),
        ]
        | None
    ) = None


class Redrive(Request):
    """Send dead letters to their topics of origin: these, or those that a filter finds."""

    ids: (
        Annotated[list[Offset], Field(min_length=1, max_length=REDRIVE_COUNT_MAX, fail_fast=True)]
        | None
    ) = Field(default=None, description="dead letter ids")
    filter: DeadLetterFilter | None = None
    cursor: Annotated[str, Field(max_length=512)] | None = Field(
        default=None, description="`next_cursor` of the answer before; with a filter"
    )
    before_id: Offset | None = Field(
        default=None,
        description="only those with smaller ids, such as a list's `max_offset`; null: those that "
        "are dead at the first request without a cursor; with a filter",
    )
    limit: Annotated[int, Field(ge=1, le=REDRIVE_COUNT_MAX)] = REDRIVE_COUNT_MAX
    dry_run: bool = False

    @model_validator(mode="after")
    def _says_which(self) -> Redrive:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or a filter")
        if self.cursor is not None and self.filter is None:
            raise ValueError("a cursor goes with a filter")
        if self.before_id is not None and self.filter is None:
            raise ValueError("before_id goes with a filter")
        return self


class RedriveOutcome(Answer):
    """What became of one dead letter."""

    dead_letter_id: int
    outcome: Literal["redriven", "skipped", "not_found"]
    topic: str | None = Field(description="where it was sent to, or would be")
    detail: str | None = Field(default=None, description="why it was skipped")


class RedriveAnswer(Answer):
    """Result of a redrive, or of its dry run."""

    outcomes: list[RedriveOutcome]
    looked_at_count: int = Field(
        default=0, description="dead letters that this request looked at, matching or not"
    )
    next_cursor: str | None = None
    dry_run: bool = False


# --- Delayed messages -----------------------------------------------------------------------------


class ScheduledMessage(Answer):
    """A message that waits for its delivery."""

    message_id: str | None = Field(description="the unique id")
    recall_handle: str | None = Field(
        default=None, description="names it to `recallScheduled`; null for a retry"
    )
    topic: str
    queue_id: int
    deliver_at: Instant
    stored_at: Instant
    log_offset: int
    size: int = Field(description="bytes in the log")


class DamagedScheduled(Answer):
    """A message that waits for its delivery and is damaged: it will be dropped then."""

    log_offset: int
    deliver_at: Instant
    reason: str = Field(description="what is wrong with it")


class ScheduledList(Answer):
    """A page of delayed messages, by delivery time."""

    scheduled: list[ScheduledMessage]
    damaged: list[DamagedScheduled] = Field(
        default=[], description="those of which only the time is known, whatever their topic"
    )
    next_cursor: str | None = None
