"""The read side: finding messages, and what befell them.

The query service knows messages from the brokers' logs, which it follows into a **read model**. It
runs a little behind them, so every answer tells by ``read_model``, broker by broker, how far it has
come; and whatever may be missing from an answer is named in ``incomplete``, with the reason. What
the model has not reached yet is looked for at the brokers themselves, so a client finds what it has
just sent.

Bodies are not in the read model: they come from the broker's log. Where they cannot be had,
``body`` is null and ``body_missing`` says why.

A record that was damaged when the model read it is in no answer, for nothing in it is proved. It is
named in ``incomplete`` (``damaged``) wherever it may belong.

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
        description="An offset id, or the unique id that the client gave it.",
        examples=["7F0000010000A1B20000000100000001"],
    ),
]
GroupFilter = Annotated[str, Field(min_length=1, max_length=GROUP_SIZE_MAX, pattern=NAME_PATTERN)]


class LifeEventKind(StrEnum):
    """What befalls a message, in about the order in which it can."""

    HALF = "half"  # stored as a half message: a transaction has begun
    HALF_CARRIED = "half_carried"  # … stored again, since its segment was about to be deleted
    CHECKED = "checked"  # its producer group was asked about it
    DECIDED = "decided"  # committed or rolled back
    PARKED = "parked"  # given up; an operator may look at it
    DELAYED = "delayed"  # stored, and waiting for its delivery
    RECALLED = "recalled"  # its delivery was called off
    STORED = "stored"  # in a queue, where consumers get it
    LEASED = "leased"  # handed out for a time
    EXTENDED = "lease_extended"
    ACKED = "acked"  # done, says who it was handed out to
    NACKED = "nacked"  # given up by who it was handed out to
    LEASE_EXPIRED = "lease_expired"  # not acknowledged in time, and not handed out again
    SENT_BACK = "sent_back"  # not consumed; waiting to be tried again
    RETRY = "retry"  # in the group's retry queue: tried again from here
    DEAD_LETTER = "dead_letter"  # the group has given up on it
    REDRIVEN = "redriven"  # a dead letter, sent to its topic again


BodyMissing = Literal["retention", "broker_unreachable", "not_asked", "damaged"]
"""Why a body is not there: the log has been deleted as far; its broker is away; nobody asked; its
record has been damaged since the read model read it, which has the rest from before."""

IncompleteReason = Literal[
    "broker_unreachable",
    "model_behind",
    "log_gap",
    "too_many",
    "name_servers_unreachable",
    "damaged",
]
GroupState = Literal["past", "not_yet", "in_delivery", "done", "filtered", "unknown"]


class ReadModelPosition(Answer):
    """How far the read model has come in one broker's log."""

    broker_name: str
    log_offset: int | None = Field(
        description="everything before it is in the read model; null: nothing has been read yet"
    )
    end_offset: int | None = Field(
        description="where the log ended when this was asked; null: the broker does not answer"
    )
    behind_bytes: int | None = Field(description="what lies between the two; null: unknown")
    as_of: Instant | None = Field(
        description="when the last record was stored that is in the read model; null: there is none"
    )


class Missing(Answer):
    """Something an answer may lack."""

    broker_name: str | None = Field(description="null: of any broker")
    reason: IncompleteReason
    detail: str


class StoredMessage(Answer):
    """A message, and where it lies."""

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
        description="as a pull returns it: `json`, `text` or `base64`; null: see `body_missing`",
        examples=[{"text": "paid"}],
    )
    body_missing: BodyMissing | None
    properties: dict[str, str] | None = Field(description="the user's own; null with the body")
    sharding_key: str | None
    reconsume_times: int | None
    flag: int | None
    system_properties: dict[str, Any] | None

    def octets(self) -> bytes:
        """Return the body as it was sent; one that was sent as JSON as a text of that value.

        Raises:
            RecordNotFoundError: Retention has deleted it.
            MessageDamagedError: Its record is damaged.
            SearchIncompleteError: Its broker does not answer.
            NotAcceptableError: It is compressed, and the broker could not undo it.
        """
        where = f"the body of {self.offset_message_id}"
        if self.body_missing == "retention":
            raise RecordNotFoundError(
                f"{where} is not there any more", fix="nothing brings back what retention deleted"
            )
        if self.body_missing == "damaged":
            raise MessageDamagedError(
                f"{where} is damaged, at log offset {self.log_offset} of {self.broker_name}",
                fix="restore its log's file from a backup, and repeat",
            )
        if self.body is None:
            raise SearchIncompleteError(f"{where} is not known now: {self.broker_name} is away")
        if "compression" in self.body:
            raise NotAcceptableError(
                f"{where} is compressed ({self.body['compression']}), which the broker cannot undo",
                fix="take it as JSON; body.compression says how it is to be undone",
            )
        if "json" in self.body:
            return msgspec.json.encode(self.body["json"])
        if "text" in self.body:
            text: str = self.body["text"]
            return text.encode()
        return b64decode(self.body["base64"])


class MessageFound(Answer):
    """A message that was looked for by an id."""

    message: WholeMessage
    also_stored: list[StoredMessage] = Field(
        description="further places with this unique id, oldest first: the half message, where it "
        f"waited, retries, dead letters, or the same sent twice; {LIST_LIMIT_MAX} at most, then "
        "`incomplete` says that there are more"
    )
    read_model: list[ReadModelPosition]
    incomplete: list[Missing]


class MessagePage(Answer):
    """Messages, the newest first."""

    messages: list[WholeMessage]
    next_cursor: str | None = Field(description="null: there are no more")
    read_model: list[ReadModelPosition]
    incomplete: list[Missing]


class LifeEvent(Answer):
    """Something that befell a message."""

    at: Instant
    kind: LifeEventKind
    broker_name: str
    log_offset: int = Field(description="of the record that tells it")
    topic: str | None = Field(description="where the message lay then")
    queue_id: int | None
    queue_offset: int | None
    detail: dict[str, Any] = Field(
        description="what there is to say about it, such as `group`, `attempt` and `reason`"
    )


class GroupProgress(Answer):
    """Where a consumer group stands with a message.

    ``past``: its position is behind the message; ``done``: it says that it is done with it;
    ``in_delivery``: it is handed out, and its time is not over; ``not_yet``: its position is before
    it, or it is to be handed out again; ``filtered``: it does not want it; ``unknown``: see
    ``detail``. A position tells where a group reads, not what it did.
    """

    group: str
    broker_name: str
    topic: str
    queue_id: int
    queue_offset: int = Field(description="the message's")
    next_offset: int | None = Field(description="the group's position in the queue")
    state: GroupState
    since: Instant | None = Field(description="since when it is so; null: not known")
    detail: str | None


class Timeline(Answer):
    """A message's life, as far as it is known."""

    message_id: str | None
    places: list[StoredMessage] = Field(description="where it lies or lay, the oldest first")
    events: list[LifeEvent] = Field(
        description=f"in the order in which they happened; {LIST_LIMIT_MAX} at most, then "
        "`incomplete` says that there are more"
    )
    groups: list[GroupProgress]
    read_model: list[ReadModelPosition]
    incomplete: list[Missing]


# --- The service itself ---------------------------------------------------------------------------


class Rebuild(Answer):
    """A read model that is being made anew; the old one answers meanwhile."""

    requested_at: Instant | None
    from_offset: int | None = Field(description="null: it has not begun yet")
    log_offset: int | None
    end_offset: int | None


class FollowedLog(Answer):
    """How far one broker's log has been read, by whichever instance follows it."""

    broker_name: str
    log_offset: int | None = Field(description="null: nothing has been read yet")
    end_offset: int | None = Field(description="where the log ended when it was read last")
    behind_bytes: int | None
    as_of: Instant | None
    read_at: Instant | None = Field(description="when it was read last")
    followed_by: str | None = Field(description="the instance; null: nobody does")
    rows: int
    oldest_stored_at: Instant | None = Field(description="what is older has been deleted")
    gaps: int = Field(description="stretches that were deleted before they had been read")
    rebuild: Rebuild | None


class QueryStatus(Answer):
    """Who a query service is and how it is doing."""

    version: str
    name: str
    started_at: Instant
    brokers: list[str] = Field(description="whose logs this instance follows")
    faults: dict[str, str] = Field(description="what cannot be followed just now, and why")
    followed: list[FollowedLog]


class RebuildRequest(Request):
    """Make the read model anew from the logs."""

    brokers: Annotated[list[BrokerName], Field(max_length=1_000, fail_fast=True)] | None = Field(
        default=None, description="of these; null: of all"
    )


class RebuildBegun(Answer):
    """Which brokers' logs are read anew; see the status for how far that has come."""

    brokers: list[str]
