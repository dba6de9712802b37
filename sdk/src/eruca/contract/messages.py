"""Messages in JSON: what a client sends, what it gets back, what it pulls.

These structs are the hot path's JSON: msgspec decodes, checks and encodes them in one step. Their
OpenAPI schemas come from the same structs.

A body names its own form: exactly one of ``text``, ``json`` and ``base64``. Nothing is guessed on
the way in. On the way out a body that was sent as ``json`` comes as ``json``: the reserved property
``ERUCA_BODY_FORMAT`` says so. Any other that is UTF-8 comes as ``text``, the rest as ``base64``.
"""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from eruca.contract.instant_texts import InstantText
from eruca.contract.limits import (
    BATCH_COUNT_MAX,
    DELAY_LEVEL_MAX,
    DELAY_SECONDS_MAX,
    KEY_SIZE_MAX,
    PULL_COUNT_DEFAULT,
    PULL_COUNT_MAX,
    PULL_QUEUE_COUNT_MAX,
    PULL_SIZE_DEFAULT,
    PULL_SIZE_MAX,
    QUEUE_ID_MAX,
    TOPIC_SIZE_MAX,
    USER_PROPERTY_COUNT_MAX,
    WAIT_SECONDS_MAX,
)
from eruca.contract.wire import PullStatus

Tag = Annotated[
    str, Meta(min_length=1, max_length=KEY_SIZE_MAX, description="One tag; consumers filter by it.")
]
Key = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=KEY_SIZE_MAX,
        pattern=r"^\S+$",
        description="A key to find it by.",
    ),
]


class Body(Struct, frozen=True, forbid_unknown_fields=True):
    """A message's body: exactly one of the three."""

    text: str | UnsetType = UNSET  # stored as UTF-8
    json: Raw | UnsetType = UNSET  # stored as its JSON text, without white space between tokens
    base64: str | UnsetType = UNSET  # stored decoded


class NewMessage(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message to send."""

    body: Body
    tag: Tag | None = None
    keys: list[Key] = []
    properties: Annotated[dict[str, str], Meta(max_length=USER_PROPERTY_COUNT_MAX)] = {}
    sharding_key: Annotated[str, Meta(min_length=1)] | None = None  # same key, same queue
    # The unique id; not dots alone, which are another place in a URL's path.
    message_id: (
        Annotated[str, Meta(min_length=1, max_length=255, extra_json_schema={"pattern": r"[^.]"})]
        | None
    ) = None
    flag: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0  # the application's own
    # At most one of the three. A time that has passed delays nothing.
    deliver_at: Annotated[datetime, Meta(tz=True)] | None = None  # RFC 3339, to the millisecond
    # The broker's own limit, delay_max_seconds, may be lower; it is what a refusal names.
    delay_seconds: (
        Annotated[float, Meta(ge=0, extra_json_schema={"maximum": DELAY_SECONDS_MAX})] | None
    ) = None
    delay_level: Annotated[int, Meta(ge=1, le=DELAY_LEVEL_MAX)] | None = None  # 1 s … 2 h


class NewMessages(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A batch: stored as a whole or not at all, in one queue."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=BATCH_COUNT_MAX)]


class SendReceipt(Struct, frozen=True, kw_only=True):
    """Where a message has been stored."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int | None  # index in the queue; null for a message that is delivered later
    log_offset: int  # bytes from the start of the broker's log
    message_id: str  # the unique id: the client's, or made by the broker
    offset_message_id: str
    stored_at: InstantText
    durability: str  # "flushed": on disk. "written": with the kernel, survives kill -9
    deliver_at: InstantText | None = None  # null for a message that was delivered at once
    recall_handle: str | None = None  # recalls it before it is delivered; null like deliver_at


class SendReceipts(Struct, frozen=True):
    """Receipts of a batch, in the request's order."""

    messages: list[SendReceipt]


class BatchReceipt(Struct, frozen=True, kw_only=True):
    """Place of a stored batch of records: consecutive offsets from these on.

    With ``born_host_is_ipv6`` each record is 12 bytes longer than one laid out for an IPv4 address.
    """

    queue_id: int
    queue_offset: int  # of the first message
    log_offset: int  # of the first record; the others follow back to back
    count: int
    store_timestamp: int = field(name="store_timestamp_ms")  # since the epoch, of all of them
    durability: str
    born_host_is_ipv6: bool = False


class PulledBody(Struct, frozen=True, omit_defaults=True):
    """A body on its way out: ``json`` where it was sent so, ``text`` where it is UTF-8.

    Else ``base64``.

    ``compression`` is there only where the broker could not undo it: ``base64`` then holds the
    compressed bytes, in the format it names (``lz4``, ``zstd``, ``zlib``).
    """

    text: str | None = None
    json: Raw | UnsetType = UNSET
    base64: str | None = None
    compression: str | None = None

    def octets(self) -> bytes:
        """Return the bytes, as they are stored."""
        if self.json is not UNSET:
            return bytes(self.json)
        if self.text is not None:
            return self.text.encode()
        return b64decode(self.base64 or "", validate=True)

    def line(self) -> str:
        """Return the body as people are shown it."""
        if self.json is not UNSET:
            return bytes(self.json).decode()
        return f"base64:{self.base64}" if self.text is None else self.text


class PulledMessage(Struct, frozen=True, kw_only=True):
    """A stored message.

    One that is damaged says so in ``damage``, and has its place alone: all else is null or empty,
    for what the disk holds is not what was stored.
    """

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int  # bytes in the log
    damage: str | None = None  # what is wrong with it; null: nothing
    message_id: str | None  # the unique id
    offset_message_id: str | None
    tag: str | None
    keys: list[str]
    sharding_key: str | None
    properties: dict[str, str]  # the user's own
    body: PulledBody | None
    flag: int | None
    reconsume_times: int | None
    born_at: InstantText | None  # the producer's clock
    born_host: str | None
    stored_at: InstantText | None  # the broker's clock
    store_host: str | None


class PullAnswer(Struct, frozen=True, kw_only=True):
    """What a pull of one queue found."""

    status: PullStatus
    messages: list[PulledMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class DamagedRecord(Struct, frozen=True, kw_only=True):
    """A record of the log that is not what was stored."""

    log_offset: int
    reason: str  # what is wrong with it


class FoundMessages(Struct, frozen=True):
    """Result of a look-up by key, newest first.

    ``is_complete`` is false where the bodies of further ones would have made the answer too large,
    and where records that might have the key are damaged.
    """

    messages: list[PulledMessage]
    is_complete: bool
    next_cursor: str | None = None  # null: there are no more
    damaged: list[DamagedRecord] = []  # records of which nobody can tell whether they have the key


class QueuePosition(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """One queue of a multi-queue pull."""

    topic: Annotated[str, Meta(min_length=1, max_length=TOPIC_SIZE_MAX + 128)]
    queue_id: Annotated[int, Meta(ge=0, le=QUEUE_ID_MAX)]
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    filter: str = "*"  # tags, "a || b"; or a condition over properties, "price > 20"
    filter_type: Literal["tag", "sql92"] = "tag"


class MultiPullRequest(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A pull of many queues in one request; the limits are of the answer as a whole."""

    queues: Annotated[list[QueuePosition], Meta(min_length=1, max_length=PULL_QUEUE_COUNT_MAX)]
    max_count: Annotated[int, Meta(ge=1, le=PULL_COUNT_MAX)] = PULL_COUNT_DEFAULT
    max_bytes: Annotated[int, Meta(ge=1, le=PULL_SIZE_MAX)] = PULL_SIZE_DEFAULT
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0


class MultiPullQueueAnswer(Struct, frozen=True, kw_only=True):
    """One queue's part of a multi-queue pull in JSON."""

    topic: str
    queue_id: int
    answer: PullAnswer


class MultiPullAnswer(Struct, frozen=True):
    """What a pull of many queues found; queues without news are left out."""

    queues: list[MultiPullQueueAnswer]


class LogRecordView(Struct, frozen=True, kw_only=True):
    """A record of the log in JSON, system topics' records included."""

    log_offset: int
    size: int
    message: PulledMessage
    sys_flag: int
    prepared_offset: int
    system_properties: dict[str, Any]


class LogAnswer(Struct, frozen=True, kw_only=True):
    """A stretch of the log in JSON."""

    records: list[LogRecordView]
    damaged: list[DamagedRecord]  # records of this stretch that are left out
    next_offset: int
    min_offset: int
    max_offset: int


def as_builtins(message: Struct) -> Any:  # noqa: ANN401 - a JSON value
    """Return what *message* is in JSON, as dicts, lists and texts."""
    # By way of JSON: what a body holds as JSON is not taken apart otherwise.
    return json.loads(msgspec.json.encode(message))
