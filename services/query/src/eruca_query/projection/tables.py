"""The read model's tables.

The large tables are partitioned into **chunks**: each is a stretch of one broker's log, and so a
stretch of time. A chunk is filled up to a number of rows or hours and hardly changes afterwards, so
its indexes stay small and fast to fill, or are built once it is full. Retention drops whole chunks.
So does a rebuild, except for the chunk in which the log then begins, which is cut there. The
partitions are ``messages_N``, ``life_events_N`` and ``commits_N``.

A broker's rows belong to a **build**. One serves; during a rebuild another one grows beside it, and
replaces it when it has caught up. In PostgreSQL a build is a ``generation``: instances of an
earlier version share the tables while one instance is upgraded after the other.

Producers choose tags, keys and ids freely, so these are bytes, not text: they need not be UTF-8.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

SCHEMA: Final = "eruca_query"
NO_ID: Final = "'00000000-0000-0000-0000-000000000000'"
PARTITIONED: Final = ("messages", "life_events", "commits")
MESSAGE_INDEXES: Final = {
    "by_id": f"(unique_id) WHERE unique_id <> {NO_ID} AND key_no = 0",
    "by_key": "(key_hash) WHERE key_hash <> 0",
    "by_time": "(topic_no, stored_ms) WHERE key_no = 0",
    "by_offset": "USING brin (log_offset) WITH (pages_per_range = 32)",
}
"""The indexes of a chunk's messages. The partitioned table has none, so a chunk begins without."""

metadata: Final = MetaData()

names: Final = Table(
    "names",  # of topics and groups
    metadata,
    Column("name_no", Integer, Identity(always=True), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
)

brokers: Final = Table(
    "brokers",
    metadata,
    Column("broker_no", SmallInteger, Identity(always=True), primary_key=True),
    Column("broker_name", Text, nullable=False, unique=True),
    Column("rebuild_requested_at", DateTime(timezone=True)),
)

store_hosts: Final = Table(
    "store_hosts",  # the address in a broker's records from a log offset on, for offset ids
    metadata,
    Column("broker_no", SmallInteger, primary_key=True),
    Column("generation", Integer, key="build", primary_key=True),
    Column("from_offset", BigInteger, primary_key=True),
    Column("address", LargeBinary, nullable=False),
    Column("port", Integer, nullable=False),
)

builds: Final = Table(
    "generations",
    metadata,
    Column("broker_no", SmallInteger, primary_key=True),
    Column("generation", Integer, key="build", primary_key=True),
    Column("is_serving", Boolean, nullable=False),
    Column("from_offset", BigInteger, nullable=False),
    Column("log_offset", BigInteger, nullable=False),  # everything before it has been read
    Column("stored_ms", BigInteger),  # of the last record
    Column("unreadable", BigInteger, nullable=False, server_default=text("0")),
    Index(
        "generations_serving",
        "broker_no",
        unique=True,
        postgresql_where=text("is_serving"),
    ),
)

gaps: Final = Table(
    "gaps",  # stretches that the broker deleted before they were read
    metadata,
    Column("broker_no", SmallInteger, primary_key=True),
    Column("generation", Integer, key="build", primary_key=True),
    Column("from_offset", BigInteger, primary_key=True),
    Column("to_offset", BigInteger, nullable=False),
    Column("noticed_at", DateTime(timezone=True), nullable=False),
)

damaged: Final = Table(
    "damaged",  # see eruca_query.core.damaged_records
    metadata,
    Column("broker_no", SmallInteger, primary_key=True),
    Column("generation", Integer, key="build", primary_key=True),
    Column("log_offset", BigInteger, primary_key=True),
    Column("size", Integer, nullable=False),
    Column("fault", Text, nullable=False),
    Column("after_ms", BigInteger, nullable=False),
    Column("before_ms", BigInteger),
    Column("topic", LargeBinary),  # this and the following columns: as its bytes say
    Column("queue_id", Integer),
    Column("queue_offset", BigInteger),
    Column("unique_id", LargeBinary),
)

chunks: Final = Table(
    "chunks",
    metadata,
    Column("chunk", Integer, Identity(always=True), primary_key=True),
    Column("broker_no", SmallInteger, nullable=False),
    Column("generation", Integer, key="build", nullable=False),
    Column("from_offset", BigInteger, nullable=False),
    Column("to_offset", BigInteger, nullable=False),
    Column("first_ms", BigInteger, nullable=False),  # the earliest store time in it
    Column("last_ms", BigInteger, nullable=False),  # the latest one, or later
    Column("row_count", BigInteger, nullable=False),
    Column("is_open", Boolean, nullable=False),
    Column("is_indexed", Boolean, nullable=False, server_default=text("false")),
    Index(
        "chunks_open",
        "broker_no",
        "build",
        unique=True,
        postgresql_where=text("is_open"),
    ),
)

messages: Final = Table(
    "messages",  # see eruca_query.core.message_rows
    metadata,
    Column("log_offset", BigInteger, nullable=False),
    Column("stored_ms", BigInteger, nullable=False),
    Column("born_ms", BigInteger, nullable=False),
    Column("queue_offset", BigInteger, nullable=False),
    Column("unique_id", UUID(as_uuid=True), nullable=False),  # zeros: no unique id
    Column("chunk", Integer, nullable=False),
    Column("topic_no", Integer, nullable=False),
    Column("queue_id", Integer, nullable=False),
    Column("size", Integer, nullable=False),
    Column("key_hash", Integer, nullable=False),  # 0: no key
    Column("broker_no", SmallInteger, nullable=False),
    Column("key_no", SmallInteger, nullable=False),  # 0: the message's own row
    Column("tag", LargeBinary, nullable=False),
    Column("keys", LargeBinary, nullable=False),  # all keys, as the producer wrote them
    Column("other_id", LargeBinary, nullable=False),  # a unique id that is not 16 bytes in hex
    postgresql_partition_by="LIST (chunk)",
)

life_events: Final = Table(
    "life_events",  # see eruca_query.core.life_events
    metadata,
    Column("log_offset", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("queue_offset", BigInteger),
    Column("waited_at", BigInteger),
    Column("unique_id", UUID(as_uuid=True), nullable=False),
    Column("chunk", Integer, nullable=False),
    Column("topic_no", Integer),
    Column("queue_id", Integer),
    Column("broker_no", SmallInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("other_id", LargeBinary, nullable=False),
    Column("detail", JSONB, nullable=False),
    Index("life_events_by_id", "unique_id", postgresql_where=text(f"unique_id <> {NO_ID}")),
    Index(
        "life_events_by_place",
        "topic_no",
        "queue_id",
        "queue_offset",
        postgresql_where=text("topic_no IS NOT NULL"),
    ),
    Index("life_events_by_wait", "waited_at", postgresql_where=text("waited_at IS NOT NULL")),
    postgresql_partition_by="LIST (chunk)",
)

commits: Final = Table(
    "commits",  # changes of groups' positions except by deliveries, and changes that ended those
    metadata,
    Column("log_offset", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("chunk", Integer, nullable=False),
    Column("group_no", Integer, nullable=False),
    Column("topic_no", Integer, nullable=False),
    Column("queue_id", Integer, nullable=False),
    Column("broker_no", SmallInteger, nullable=False),
    Column("is_back", Boolean, nullable=False),  # to a lower offset than before
    Index("commits_by_place", "topic_no", "queue_id", "group_no", "next_offset"),
    postgresql_partition_by="LIST (chunk)",
)

group_positions: Final = Table(
    "group_positions",  # each group's present position
    metadata,
    Column("broker_no", SmallInteger, primary_key=True),
    Column("generation", Integer, key="build", primary_key=True),
    Column("topic_no", Integer, primary_key=True),
    Column("queue_id", Integer, primary_key=True),
    Column("group_no", Integer, primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
)

subscriptions: Final = Table(
    "subscriptions",
    metadata,
    Column("broker_no", SmallInteger, primary_key=True),
    Column("generation", Integer, key="build", primary_key=True),
    Column("group_no", Integer, primary_key=True),
    Column("topic_no", Integer, primary_key=True),
    Column("filter", Text, nullable=False),
    Column("filter_type", Text, nullable=False),
)

topic_ends: Final = Table(
    "topic_ends",  # deleted topics: their earlier messages are not listed
    metadata,
    Column("broker_no", SmallInteger, primary_key=True),
    Column("generation", Integer, key="build", primary_key=True),
    Column("topic_no", Integer, primary_key=True),
    Column("log_offset", BigInteger, nullable=False),
)
