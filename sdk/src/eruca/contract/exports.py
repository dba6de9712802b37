"""Exports: read a topic's queues as tables, for lakes and for files.

A **plan** fixes the rows of an export at one moment. For each queue it takes the offsets from the
requested start up to the high-water mark. It splits them into **partitions** of about equal size,
which can be read independently. Messages never change and queues have no gaps. So reading a range
twice gives the same rows, and a client resumes a broken stream by requesting the missing rows.

A **range** is written ``broker-a/0:1000-2500``: broker, queue, first offset, and the offset behind
the last one. If retention has deleted the beginning of a range, the answer is 410
``range-deleted``; a range never silently starts later. Ranges of a plan end in ``@`` and the topic
id. A service thus detects a topic that was deleted and created again.

A **position** says where a reader continues, and proves that the queue still holds what the reader
has read. It consists of an offset, the topic id, and the store time of the last message before that
offset, all from a plan. A different id means a different topic or a different log. Store times
never decrease within a queue. So if the first message stored after that time lies before the
offset, the log was truncated or restored from an older copy, and has grown again since.

The rows consist of the **columns** below. On the wire every Arrow field is nullable, as Spark
declares columns by default, so a later version may leave any of them empty. ``nullable`` here
promises more: a column that is not nullable holds no null in this version of the schema. New
versions only append nullable columns.

A **damaged** message ends an export with 410 ``message-damaged``, which names topic, queue, offset
and log offset. With ``damaged=mark`` it has a row like all others, so a range keeps one row for
each offset. ``damage`` then describes the fault; only the columns of the message's place are set.

========================  ====================================================================
Arrow type                in NDJSON
========================  ====================================================================
string, int32, int64      string, number
timestamp[us, tz=UTC]     RFC 3339 string in UTC, with milliseconds
binary                    ``{"json": …}`` if it was sent as JSON, ``{"text": …}`` if it is
                          UTF-8, else ``{"base64": …}``
list<string>              array
map<string, string>       object
========================  ====================================================================

Source: Apache Arrow, columnar format and IPC streaming; the names are those of
:mod:`eruca.contract.messages`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final, Literal, Self

import msgspec
from pydantic import Field

from eruca.contract.fields import OFFSET_MAX, Answer, BrokerName, Offset, QueueId
from eruca.contract.queries import Missing
from eruca.contract.times import Instant
from eruca.contract.topics import TopicId

EXPORT_SCHEMA_VERSION: Final = 2
ARROW_MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"
NDJSON_MEDIA_TYPE: Final = "application/x-ndjson"
EXPORT_ROWS_HEADER: Final = "eruca-export-rows"  # row count of the whole answer
# Metadata of each Arrow record batch, which never spans two ranges; see ExportRange.
BATCH_RANGE_METADATA: Final = b"eruca.range"

ExportCodec = Literal["none", "lz4", "zstd"]
"""Compression of an Arrow batch's buffers; readers decompress by themselves."""

MissingRows = Literal["refuse", "skip"]
"""For requested rows that retention has deleted: answer 410, or skip them."""

DamagedRows = Literal["refuse", "mark"]
"""For a damaged message: answer 410, or give it a row that names the damage."""

ArrowType = Literal[
    "string",
    "int32",
    "int64",
    "timestamp[us, tz=UTC]",
    "binary",
    "list<string>",
    "map<string, string>",
]

_RANGE: Final = re.compile(
    r"([a-zA-Z0-9_.@-]{1,127})/([0-9]{1,10}):([0-9]{1,19})-([0-9]{1,19})(?:@([0-9a-f]+-[0-9]+))?\Z"
)


class ExportColumn(Answer):
    """A column of an export."""

    name: str
    type: ArrowType = Field(description="Arrow type.")
    spark_type: str = Field(description="Spark type, as in Spark's DDL.")
    unit: str | None = Field(description="Unit of the values; null: none.")
    nullable: bool = Field(description="True if a row may hold null.")
    meaning: str


class ExportSchema(Answer):
    """The columns of exports, in their order."""

    schema_version: int
    columns: list[ExportColumn]


class ExportStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The start of a queue, with the values of an earlier plan that prove it; in ``start``."""

    offset: Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
    topic_id: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[0-9a-f]+-[0-9]+$")] | None = (
        None  # unknown
    )
    # Of the queue, at the time of the earlier plan.
    latest_stored_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class ExportRange(Answer):
    """Messages of one queue: from an offset up to another one, which is excluded."""

    broker_name: BrokerName
    queue_id: QueueId
    from_offset: Offset
    to_offset: Offset
    topic_id: TopicId | None = Field(
        default=None, description="Id of the topic that holds the messages; null: any."
    )

    @property
    def rows(self) -> int:
        """Number of messages in the range."""
        return self.to_offset - self.from_offset

    @property
    def text(self) -> str:
        """The range in a request: ``broker-a/0:1000-2500``, with ``@ID`` if it has a topic id."""
        place = f"{self.broker_name}/{self.queue_id}:{self.from_offset}-{self.to_offset}"
        return place if self.topic_id is None else f"{place}@{self.topic_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range that *text* names.

        Raises:
            ValueError: The text is not a valid range.
        """
        match = _RANGE.match(text)
        if match is None:
            raise ValueError(
                "expected a range BROKER/QUEUE:FROM-TO, as in broker-a/0:1000-2500, with an "
                "optional @TOPIC_ID at the end"
            )
        queue_id, from_offset, to_offset = (int(digits) for digits in match.groups()[1:4])
        if queue_id > 2**31 - 1 or to_offset > OFFSET_MAX:
            raise ValueError("out of range: a queue id has 31 bits, an offset has 63")
        if from_offset > to_offset:
            raise ValueError(f"expected FROM <= TO, found {from_offset}-{to_offset}")
        return cls(
            broker_name=match[1],
            queue_id=queue_id,
            from_offset=from_offset,
            to_offset=to_offset,
            topic_id=match[5],
        )


class ExportQueue(ExportRange):
    """One queue of a plan: the range to read, and the offsets that the queue held.

    ``to_offset``, ``topic_id`` and ``latest_stored_at`` make the next plan's ``start``.
    """

    broker_started_at: Instant | None = Field(
        default=None,
        description="While this stays the same, the log was neither restored nor truncated.",
    )
    latest_stored_at: Instant | None = Field(
        default=None, description="Store time of the queue's last message; null: it is empty."
    )
    lost: str | None = Field(
        default=None,
        description="Says why the queue cannot continue at the requested start, and where it "
        "continues instead; null: it can. Only with `missing=skip`; otherwise it is an error.",
    )
    min_offset: int = Field(description="Offset of the first message that retention has kept.")
    max_offset: int = Field(description="Offset of the next message: the high-water mark.")
    missing_rows: int = Field(
        description="Number of requested messages that retention has deleted; 0 unless skipped."
    )


class ExportPartition(Answer):
    """A part of a plan, read by one task."""

    index: int
    rows: int
    ranges: list[ExportRange]


class ExportBroker(Answer):
    """A broker group's log, at the moment at which it reported the ends of its queues."""

    broker_name: BrokerName
    epoch: int | None = Field(
        description="Epoch of the log's last record that readers may see; 0: the broker has no "
        "replicas; null: its version does not report it."
    )
    log_offset: int | None = Field(
        description="Log offset behind that record: the topic's queues contain every record "
        "before it."
    )


class ExportPlan(Answer):
    """The rows of an export, fixed at one moment."""

    topic: str
    schema_version: int
    taken_at: Instant = Field(
        description="The plan includes every requested message acknowledged before this time."
    )
    rows: int
    queues: list[ExportQueue]
    brokers: list[ExportBroker] = Field(
        default=[], description="The broker groups whose queues the plan contains."
    )
    partitions: list[ExportPartition]
    incomplete: list[Missing] = Field(
        default=[],
        description="What the plan may lack: brokers on which the read model knows messages of "
        "the topic, but which no name server lists with it now. While the read model's database "
        "is unreachable, nobody knows them: `read_model_unreachable`, without a broker.",
    )


class ExportTopics(Answer):
    """A page of the topics that can be exported."""

    topics: list[str]
    next_cursor: str | None = None


def _column(
    name: str,
    type: ArrowType,
    meaning: str,
    *,
    unit: str | None = None,
    nullable: bool = False,
) -> ExportColumn:
    return ExportColumn(
        name=name,
        type=type,
        spark_type=_SPARK_TYPES[type],
        unit=unit,
        nullable=nullable,
        meaning=meaning,
    )


_SPARK_TYPES: Final[dict[ArrowType, str]] = {
    "string": "STRING",
    "int32": "INT",
    "int64": "BIGINT",
    "timestamp[us, tz=UTC]": "TIMESTAMP",
    "binary": "BINARY",
    "list<string>": "ARRAY<STRING>",
    "map<string, string>": "MAP<STRING, STRING>",
}

EXPORT_COLUMNS: Final = (
    _column(
        "topic", "string", "The message's topic; for a retry or a dead letter, its derived topic."
    ),
    _column("broker_name", "string", "The broker that stores the message."),
    _column("queue_id", "int32", "The message's queue on that broker."),
    _column(
        "queue_offset",
        "int64",
        "Index in the queue, counted from 0 without gaps.",
        unit="messages",
    ),
    _column("log_offset", "int64", "Start of the record in the broker's log.", unit="bytes"),
    _column(
        "stored_at",
        "timestamp[us, tz=UTC]",
        "Store time by the broker's clock; never decreases within a queue, unless RocketMQ wrote "
        "the log while its clock was set back.",
        unit="ms, told in µs",
    ),
    _column(
        "born_at",
        "timestamp[us, tz=UTC]",
        "Creation time by the producer's clock; null if that is out of range.",
        unit="ms, told in µs",
        nullable=True,
    ),
    _column(
        "message_id",
        "string",
        "The producer's unique id; retries and copies keep it.",
        nullable=True,
    ),
    _column("offset_message_id", "string", "The id that encodes the message's place."),
    _column("tag", "string", "The message's tag.", nullable=True),
    _column("keys", "list<string>", "The message's keys; empty if there are none."),
    _column("sharding_key", "string", "The key that selected the queue.", nullable=True),
    _column(
        "body",
        "binary",
        "The body, decompressed; as stored if sys_flag still has bit 1.",
        unit="bytes",
    ),
    _column(
        "properties",
        "map<string, string>",
        "All properties, the system's included, except TAGS, KEYS, UNIQ_KEY and __SHARDINGKEY, "
        "which have their own columns.",
    ),
    _column(
        "reconsume_times",
        "int32",
        "Number of times the message was sent back; for a dead letter, the last time included.",
        unit="times",
    ),
    _column(
        "sys_flag",
        "int32",
        "RocketMQ's flags; the compression flags are cleared if the body was decompressed.",
    ),
    _column("flag", "int32", "The application's number."),
    _column(
        "prepared_offset",
        "int64",
        "Log offset of the half message that this message decides, else 0.",
        unit="bytes",
    ),
    _column("size", "int32", "Size of the record in the log.", unit="bytes"),
    _column(
        "damage",
        "string",
        "Fault of a damaged message, which has a row only with damaged=mark; null: not damaged.",
        nullable=True,
    ),
)
"""The columns of an export, in their order."""

PLACE_COLUMNS: Final = (
    "topic",
    "broker_name",
    "queue_id",
    "queue_offset",
    "log_offset",
    "size",
)
"""Columns that are set in a damaged message's row, besides ``damage``."""

EXPORT_SCHEMA: Final = ExportSchema(
    schema_version=EXPORT_SCHEMA_VERSION, columns=list(EXPORT_COLUMNS)
)
