"""Exports: a topic's queues as tables, for lakes and for files.

A **plan** fixes what there is to read: of each queue the offsets from the first one wanted up to
its high-water mark, all taken at one moment, and split into **partitions** of about equal size
that can be read independently. Messages never change and queues have no gaps, so reading the same
range twice gives the same rows, and a stream that broke is resumed by asking for what is missing.

A **range** is written ``broker-a/0:1000-2500``: broker, queue, first offset, and the offset behind
the last one. It is limited by retention alone: where that has deleted the beginning of a range, the
answer is 410 ``range-deleted``, never a range that silently starts later. Ranges of a plan end in
``@`` and the topic's id, so that a topic that was deleted and created again is noticed, too.

A **position** is where a reader goes on: an offset, and what proves that the queue still holds what
the reader has read before it. That is the topic's id and the store time of the last message that
was there, both as a plan told them. Where the id is another one, the topic or the log is. Where the
first message that was stored after that time lies before the offset, the log was restored from an
older copy, or cut, and has gone on from there: store times never go back within a queue.

The rows are in the **columns** below. On the wire every Arrow field is nullable, as Spark declares
columns by default, so that a later version may leave any of them empty; ``nullable`` here promises
more: a column that is not nullable holds no null in this version of the schema. New versions only
ever add columns that are nullable, behind the others.

A **damaged** message ends an export: 410 ``message-damaged``, which names topic, queue, offset and
log offset. With ``damaged=mark`` it has a row like all others, so that ranges keep one row for each
offset: ``damage`` says what is wrong, and of all other columns only the message's place is there.

========================  ====================================================================
Arrow type                what it is in NDJSON
========================  ====================================================================
string, int32, int64      string, number
timestamp[us, tz=UTC]     RFC 3339 string in UTC, with milliseconds
binary                    ``{"json": …}`` where it was sent so, ``{"text": …}`` where it is
                          UTF-8, else ``{"base64": …}``
list<string>              array
map<string, string>       object
========================  ====================================================================

Source: Apache Arrow, columnar format and IPC streaming; the names are those of
:mod:`eruca.contract.messages`.
"""

from __future__ import annotations

import re
from typing import Final, Literal, Self

from pydantic import Field

from eruca.contract.fields import OFFSET_MAX, Answer, BrokerName, Offset, QueueId
from eruca.contract.queries import Missing
from eruca.contract.times import Instant
from eruca.contract.topics import TopicId

EXPORT_SCHEMA_VERSION: Final = 2
ARROW_MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"
NDJSON_MEDIA_TYPE: Final = "application/x-ndjson"
EXPORT_ROWS_HEADER: Final = "eruca-export-rows"  # of records: how many a whole answer has
# Of each Arrow record batch, which never reaches beyond one range; see ExportRange.
BATCH_RANGE_METADATA: Final = b"eruca.range"

ExportCodec = Literal["none", "lz4", "zstd"]
"""How Arrow compresses the buffers of a batch; readers undo it by themselves."""

MissingRows = Literal["refuse", "skip"]
"""Where rows before a queue's first one are asked for: 410, or go on with what is there."""

DamagedRows = Literal["refuse", "mark"]
"""Where a message that is asked for is damaged: 410, or a row that says so and goes on."""

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
    type: ArrowType = Field(description="Arrow's name of it.")
    spark_type: str = Field(description="Spark's name of it, as in its DDL.")
    unit: str | None = Field(description="Null where there is none.")
    nullable: bool = Field(description="Whether a row may have none.")
    meaning: str


class ExportSchema(Answer):
    """The columns of exports, in their order."""

    schema_version: int
    columns: list[ExportColumn]


class ExportRange(Answer):
    """Messages of one queue: from an offset up to, not including, another."""

    broker_name: BrokerName
    queue_id: QueueId
    from_offset: Offset
    to_offset: Offset
    topic_id: TopicId | None = Field(
        default=None, description="Of the topic whose messages those are; null: of any."
    )

    @property
    def rows(self) -> int:
        """How many messages those are."""
        return self.to_offset - self.from_offset

    @property
    def text(self) -> str:
        """Its name in a request: ``broker-a/0:1000-2500``, and ``@ID`` where it has a topic id."""
        place = f"{self.broker_name}/{self.queue_id}:{self.from_offset}-{self.to_offset}"
        return place if self.topic_id is None else f"{place}@{self.topic_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range that *text* names.

        Raises:
            ValueError: It names none.
        """
        match = _RANGE.match(text)
        if match is None:
            raise ValueError(
                "a range is written BROKER/QUEUE:FROM-TO, as in broker-a/0:1000-2500, and may end "
                "in @TOPIC_ID"
            )
        queue_id, from_offset, to_offset = (int(digits) for digits in match.groups()[1:4])
        if queue_id > 2**31 - 1 or to_offset > OFFSET_MAX:
            raise ValueError("a queue's number has 31 bits, an offset 63")
        if from_offset > to_offset:
            raise ValueError(f"it ends at {to_offset}, before it begins, at {from_offset}")
        return cls(
            broker_name=match[1],
            queue_id=queue_id,
            from_offset=from_offset,
            to_offset=to_offset,
            topic_id=match[5],
        )


class ExportQueue(ExportRange):
    """What a plan takes of one queue, and what the queue held when it was made.

    The next plan's ``start`` is made of ``to_offset``, ``topic_id`` and ``latest_stored_at``.
    """

    broker_started_at: Instant | None = Field(
        default=None,
        description="While this stays the same, the log was neither restored nor cut.",
    )
    latest_stored_at: Instant | None = Field(
        default=None, description="Of the queue's last message; null: it holds none."
    )
    lost: str | None = Field(
        default=None,
        description="Why the queue cannot go on at the start that was given, and where it goes on "
        "instead; null: it can. Only with `missing=skip`, else it is an error.",
    )
    min_offset: int = Field(description="Of the first message that retention has left.")
    max_offset: int = Field(description="Of the next message: the high-water mark.")
    missing_rows: int = Field(
        description="How many of the messages asked for retention has deleted; 0 unless skipped."
    )


class ExportPartition(Answer):
    """A share of a plan; what one task reads."""

    index: int
    rows: int
    ranges: list[ExportRange]


class ExportPlan(Answer):
    """What there is to export, fixed at one moment."""

    topic: str
    schema_version: int
    taken_at: Instant = Field(
        description="Whatever was acknowledged before is in the plan, as far as it was asked for."
    )
    rows: int
    queues: list[ExportQueue]
    partitions: list[ExportPartition]
    incomplete: list[Missing] = Field(
        default=[],
        description="Brokers that are not in the plan, for no name server knows them with this "
        "topic now, and that have or had messages of it, as far as the read model can tell.",
    )


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
    _column("topic", "string", "The topic it lies in; of a retry or a dead letter, its own."),
    _column("broker_name", "string", "The broker it lies on."),
    _column("queue_id", "int32", "The queue it lies in, on that broker."),
    _column(
        "queue_offset",
        "int64",
        "Its index in the queue, counted from 0 with no gap.",
        unit="messages",
    ),
    _column("log_offset", "int64", "Where its record begins in the broker's log.", unit="bytes"),
    _column(
        "stored_at",
        "timestamp[us, tz=UTC]",
        "When the broker stored it, by the broker's clock; never goes back within a queue.",
        unit="ms, told in µs",
    ),
    _column(
        "born_at",
        "timestamp[us, tz=UTC]",
        "When it was made, by the producer's clock; null where that is no date.",
        unit="ms, told in µs",
        nullable=True,
    ),
    _column(
        "message_id",
        "string",
        "The unique id its producer gave it; retries and copies keep it.",
        nullable=True,
    ),
    _column("offset_message_id", "string", "The id that says where it is stored."),
    _column("tag", "string", "Its tag.", nullable=True),
    _column("keys", "list<string>", "Its keys; empty where it has none."),
    _column("sharding_key", "string", "What decided its queue.", nullable=True),
    _column(
        "body",
        "binary",
        "What it says, decompressed; as it is stored where sys_flag still has bit 1.",
        unit="bytes",
    ),
    _column(
        "properties",
        "map<string, string>",
        "All properties, the system's too, but for those that are columns: TAGS, KEYS, UNIQ_KEY "
        "and __SHARDINGKEY.",
    ),
    _column(
        "reconsume_times",
        "int32",
        "How often it had been sent back; of a dead letter, the last time included.",
        unit="times",
    ),
    _column(
        "sys_flag",
        "int32",
        "RocketMQ's flags; those of a compression that was undone are cleared.",
    ),
    _column("flag", "int32", "The application's number."),
    _column(
        "prepared_offset",
        "int64",
        "Log offset of the half message that this one decides, else 0.",
        unit="bytes",
    ),
    _column("size", "int32", "Of its record in the log.", unit="bytes"),
    _column(
        "damage",
        "string",
        "Fault of a damaged message, which has a row only with damaged=mark; null: it is sound.",
        nullable=True,
    ),
)
"""Every column of an export, in its order."""

PLACE_COLUMNS: Final = (
    "topic",
    "broker_name",
    "queue_id",
    "queue_offset",
    "log_offset",
    "size",
)
"""Columns of a damaged message that are not null, ``damage`` aside."""

EXPORT_SCHEMA: Final = ExportSchema(
    schema_version=EXPORT_SCHEMA_VERSION, columns=list(EXPORT_COLUMNS)
)
