"""The read side: find messages and their history.

The query service follows the brokers' logs into a **read model**. The model runs a little behind
the logs. So every answer reports the model's position in each broker's log as ``read_model``, and
names in ``incomplete`` whatever the answer may lack, with the reason. The service searches the
brokers themselves for newer messages, so a client finds a message that it has just sent.

The read model has no bodies: they come from the broker's log. If a body is unavailable, ``body`` is
null and ``body_missing`` has the reason.

A record that was damaged when the model read it is in no answer, because none of its fields is
proved. ``incomplete`` names it (``damaged``) in every answer that it may belong to.

Matches are exact. An empty list without an entry in ``incomplete`` means that there is nothing.
"""

from __future__ import annotations

from base64 import b64decode
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from eruca.contract.errors import (
    MessageDamagedError,
    NotAcceptableError,
    RecordNotFoundError,
    SearchIncompleteError,
)
from eruca.contract.fields import Answer, BrokerName, Request
from eruca.contract.limits import GROUP_SIZE_MAX, LIST_LIMIT_MAX, MESSAGE_ID_SIZE_MAX
from eruca.contract.names import NAME_PATTERN
from eruca.contract.times import Instant

MessageId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MESSAGE_ID_SIZE_MAX,
        description="An offset id, or the client's unique id.",
        examples=["7F0000010000A1B20000000100000001"],
    ),
]
GroupFilter = Annotated[str, Field(min_length=1, max_length=GROUP_SIZE_MAX, pattern=NAME_PATTERN)]


class LifeEventKind(StrEnum):
    """Events in a message's life, in about the order in which they can happen."""

    HALF = "half"  # stored as a half message: a transaction has begun
    HALF_CARRIED = "half_carried"  # … stored again before retention deleted its segment
    CHECKED = "checked"  # a checker asked its producer group
    DECIDED = "decided"  # committed or rolled back
    PARKED = "parked"  # rolled back after the last check; an operator may still commit it
    DELAYED = "delayed"  # stored, and waiting for its delivery time
    RECALLED = "recalled"  # cancelled before its delivery
    STORED = "stored"  # in a queue, visible to consumers
    LEASED = "leased"  # delivered under a lease
    EXTENDED = "lease_extended"
    ACKED = "acked"  # acknowledged
    NACKED = "nacked"  # rejected by its client
    LEASE_EXPIRED = "lease_expired"  # not acknowledged in time, and not redelivered yet
    SENT_BACK = "sent_back"  # not consumed; waiting for its retry
    RETRY = "retry"  # in the group's retry queue, visible to consumers
    DEAD_LETTER = "dead_letter"  # in the group's dead-letter topic
    REDRIVEN = "redriven"  # a dead letter, sent to its topic again


BodyMissing = Literal["retention", "broker_unreachable", "not_asked", "damaged"]
"""Reason for a missing body: retention has deleted it; its broker is unreachable; the request did
not ask for it; its record was damaged after the read model had read it."""

IncompleteReason = Literal[
    "broker_unreachable",
    "model_behind",
    "log_gap",
    "too_many",
    "name_servers_unreachable",
    "read_model_unreachable",
    "damaged",
]
GroupState = Literal["past", "not_yet", "in_delivery", "done", "filtered", "unknown"]


class ReadModelPosition(Answer):
    """The read model's position in one broker's log."""

    broker_name: str
    log_offset: int | None = Field(
        description="the read model has everything before this offset; null: nothing yet"
    )
    end_offset: int | None = Field(
        description="end of the log at the time of the request; null: the broker is unreachable"
    )
    behind_bytes: int | None = Field(description="bytes between the two offsets; null: unknown")
    as_of: Instant | None = Field(
        description="store time of the read model's last record; null: it has none"
    )


class Missing(Answer):
    """A part that the answer may lack."""

    broker_name: str | None = Field(description="null: any broker")
    reason: IncompleteReason
    detail: str


class StoredMessage(Answer):
    """A message and its place."""

    message_id: str | None = Field(description="the unique id")
    offset_message_id: str
    broker_name: str
    log_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    tag: str | None
    keys: list[str]
    born_at: Instant = Field(description="by the producer's clock")
    stored_at: Instant = Field(description="by the broker's clock")
    size: int = Field(description="bytes in the log")


class WholeMessage(StoredMessage):
    """A message with its body."""

    body: dict[str, Any] | None = Field(
        description="in the form of a pull: `json`, `text` or `base64`; null: see `body_missing`",
        examples=[{"text": "paid"}],
    )
    body_missing: BodyMissing | None
    properties: dict[str, str] | None = Field(
        description="the user's properties; null if the body is missing"
    )
    sharding_key: str | None
    reconsume_times: int | None
    flag: int | None
    system_properties: dict[str, Any] | None

    def octets(self) -> bytes:
        """Return the body's bytes as sent; for a JSON body, the text of its value.

        Raises:
            RecordNotFoundError: Retention has deleted the body.
            MessageDamagedError: The record is damaged.
            SearchIncompleteError: The broker is unreachable.
            NotAcceptableError: The body is compressed, and the broker cannot decompress it.
        """
        where = f"the body of {self.offset_message_id}"
        if self.body_missing == "retention":
            raise RecordNotFoundError(
                f"retention has deleted {where}", fix="none: deleted messages cannot be restored"
            )
        if self.body_missing == "damaged":
            raise MessageDamagedError(
                f"{where} is damaged, at log offset {self.log_offset} of {self.broker_name}",
                fix="restore its log file from a backup, then retry",
            )
        if self.body is None:
            raise SearchIncompleteError(f"{where} is missing: {self.broker_name} is unreachable")
        if "compression" in self.body:
            raise NotAcceptableError(
                f"{where} is compressed ({self.body['compression']}), and the broker cannot "
                "decompress it",
                fix="request JSON, and decompress the body as body.compression says",
            )
        if "json" in self.body:
            return msgspec.json.encode(self.body["json"])
        if "text" in self.body:
            text: str = self.body["text"]
            return text.encode()
        return b64decode(self.body["base64"])


class MessageFound(Answer):
    """A message found by its id."""

    message: WholeMessage
    also_stored: list[StoredMessage] = Field(
        description="other messages with this unique id, oldest first: half message, scheduled "
        f"message, retries, dead letters or a duplicate send; at most {LIST_LIMIT_MAX}: "
        "`incomplete` then says that there are more"
    )
    read_model: list[ReadModelPosition]
    incomplete: list[Missing]


class MessagePage(Answer):
    """A page of messages, newest first."""

    messages: list[WholeMessage]
    next_cursor: str | None = Field(description="null: there are no more")
    read_model: list[ReadModelPosition]
    incomplete: list[Missing]


class MessageCount(Answer):
    """The number of messages stored in one stretch of time."""

    start: Instant
    count: int | None = Field(description="null: not counted, because that would take too long")


class MessageCounts(Answer):
    """Numbers of a topic's messages by the time of their storing, oldest first."""

    since: Instant
    until: Instant
    width_ms: int = Field(description="length of each stretch; the last one may end at `until`")
    counts: list[MessageCount]
    read_model: list[ReadModelPosition]
    incomplete: list[Missing]


class LifeEvent(Answer):
    """An event in a message's life."""

    at: Instant
    kind: LifeEventKind
    broker_name: str
    log_offset: int = Field(description="log offset of the event's record")
    topic: str | None = Field(description="the message's topic at that time")
    queue_id: int | None
    queue_offset: int | None
    detail: dict[str, Any] = Field(
        description="details of the event, such as `group`, `attempt` and `reason`"
    )


class GroupProgress(Answer):
    """A consumer group's progress with a message.

    ``past``: the group's position is behind the message; ``done``: the group has acknowledged it;
    ``in_delivery``: it is under a lease; ``not_yet``: the position is before it, or it will be
    redelivered; ``filtered``: the group's filter excludes it; ``unknown``: see ``detail``. A
    position says where a group reads, not which messages it has processed.
    """

    group: str
    broker_name: str
    topic: str
    queue_id: int
    queue_offset: int = Field(description="offset of the message")
    next_offset: int | None = Field(description="the group's position in the queue")
    state: GroupState
    since: Instant | None = Field(description="start of the state; null: unknown")
    detail: str | None


class Timeline(Answer):
    """The known history of a message."""

    message_id: str | None
    places: list[StoredMessage] = Field(
        description="present and former places of the message, oldest first"
    )
    events: list[LifeEvent] = Field(
        description=f"events in the order of their times; at most {LIST_LIMIT_MAX}: `incomplete` "
        "then says that there are more"
    )
    groups: list[GroupProgress]
    read_model: list[ReadModelPosition]
    incomplete: list[Missing]


# --- The service itself ---------------------------------------------------------------------------


class Rebuild(Answer):
    """A rebuild of a read model; the old model answers until it is complete."""

    requested_at: Instant | None
    from_offset: int | None = Field(description="null: the rebuild has not begun")
    log_offset: int | None
    end_offset: int | None


class FollowedLog(Answer):
    """Progress in one broker's log, whichever instance follows it."""

    broker_name: str
    log_offset: int | None = Field(description="null: nothing has been read yet")
    end_offset: int | None = Field(description="end of the log at the last read")
    behind_bytes: int | None
    as_of: Instant | None
    read_at: Instant | None = Field(description="time of the last read")
    followed_by: str | None = Field(description="the instance that follows the log; null: none")
    rows: int
    oldest_stored_at: Instant | None = Field(
        description="store time of the oldest row; older rows have been deleted"
    )
    gaps: int = Field(description="stretches of the log that were deleted before they were read")
    rebuild: Rebuild | None


class QueryStatus(Answer):
    """Identity and health of a query service."""

    version: str
    name: str
    started_at: Instant
    brokers: list[str] = Field(description="brokers whose logs this instance follows")
    faults: dict[str, str] = Field(
        description="brokers whose logs it cannot follow now, each with the reason"
    )
    followed: list[FollowedLog]


class RebuildRequest(Request):
    """Rebuild the read model from the logs."""

    brokers: Annotated[list[BrokerName], Field(max_length=1_000, fail_fast=True)] | None = Field(
        default=None, description="brokers to rebuild; null: all"
    )


class RebuildBegun(Answer):
    """The brokers whose read model is being rebuilt; the status shows the progress."""

    brokers: list[str]
