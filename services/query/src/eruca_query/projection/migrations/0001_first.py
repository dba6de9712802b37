"""The first schema: messages, life events, groups' positions, and the progress."""

from __future__ import annotations

from alembic import op

from eruca_postgres.tables import create_shared_tables

revision = "0001"
down_revision = None

_TABLES = """
CREATE TABLE names (
    name_no integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);
CREATE TABLE brokers (
    broker_no smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    broker_name text NOT NULL UNIQUE,
    rebuild_requested_at timestamptz
);
CREATE TABLE store_hosts (
    broker_no smallint,
    generation integer,
    from_offset bigint,
    address bytea NOT NULL,
    port integer NOT NULL,
    PRIMARY KEY (broker_no, generation, from_offset)
);
CREATE TABLE generations (
    broker_no smallint,
    generation integer,
    is_serving boolean NOT NULL,
    from_offset bigint NOT NULL,
    log_offset bigint NOT NULL,
    stored_ms bigint,
    unreadable bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (broker_no, generation)
);
CREATE TABLE gaps (
    broker_no smallint,
    generation integer,
    from_offset bigint,
    to_offset bigint NOT NULL,
    noticed_at timestamptz NOT NULL,
    PRIMARY KEY (broker_no, generation, from_offset)
);
CREATE TABLE chunks (
    chunk integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    broker_no smallint NOT NULL,
    generation integer NOT NULL,
    from_offset bigint NOT NULL,
    to_offset bigint NOT NULL,
    first_ms bigint NOT NULL,
    last_ms bigint NOT NULL,
    row_count bigint NOT NULL,
    is_open boolean NOT NULL
);
CREATE TABLE messages (
    log_offset bigint NOT NULL,
    stored_ms bigint NOT NULL,
    born_ms bigint NOT NULL,
    queue_offset bigint NOT NULL,
    unique_id uuid NOT NULL,
    chunk integer NOT NULL,
    topic_no integer NOT NULL,
    queue_id integer NOT NULL,
    size integer NOT NULL,
    key_hash integer NOT NULL,
    broker_no smallint NOT NULL,
    key_no smallint NOT NULL,
    tag bytea NOT NULL,
    keys bytea NOT NULL,
    other_id bytea NOT NULL
) PARTITION BY LIST (chunk);
CREATE TABLE life_events (
    log_offset bigint NOT NULL,
    at_ms bigint NOT NULL,
    queue_offset bigint,
    waited_at bigint,
    unique_id uuid NOT NULL,
    chunk integer NOT NULL,
    topic_no integer,
    queue_id integer,
    broker_no smallint NOT NULL,
    kind text NOT NULL,
    other_id bytea NOT NULL,
    detail jsonb NOT NULL
) PARTITION BY LIST (chunk);
CREATE TABLE commits (
    log_offset bigint NOT NULL,
    at_ms bigint NOT NULL,
    next_offset bigint NOT NULL,
    chunk integer NOT NULL,
    group_no integer NOT NULL,
    topic_no integer NOT NULL,
    queue_id integer NOT NULL,
    broker_no smallint NOT NULL,
    is_back boolean NOT NULL
) PARTITION BY LIST (chunk);
CREATE TABLE group_positions (
    broker_no smallint,
    generation integer,
    topic_no integer,
    queue_id integer,
    group_no integer,
    next_offset bigint NOT NULL,
    at_ms bigint NOT NULL,
    source text NOT NULL,
    PRIMARY KEY (broker_no, generation, topic_no, queue_id, group_no)
);
CREATE TABLE subscriptions (
    broker_no smallint,
    generation integer,
    group_no integer,
    topic_no integer,
    filter text NOT NULL,
    filter_type text NOT NULL,
    PRIMARY KEY (broker_no, generation, group_no, topic_no)
);
CREATE TABLE topic_ends (
    broker_no smallint,
    generation integer,
    topic_no integer,
    log_offset bigint NOT NULL,
    PRIMARY KEY (broker_no, generation, topic_no)
)
"""
_NO_ID = "'00000000-0000-0000-0000-000000000000'"
_INDEXES = f"""
CREATE UNIQUE INDEX generations_serving ON generations (broker_no) WHERE is_serving;
CREATE UNIQUE INDEX chunks_open ON chunks (broker_no, generation) WHERE is_open;
CREATE INDEX messages_by_id ON messages (unique_id)
    WHERE unique_id <> {_NO_ID} AND key_no = 0;
CREATE INDEX messages_by_key ON messages (key_hash) WHERE key_hash <> 0;
CREATE INDEX messages_by_time ON messages (topic_no, stored_ms) WHERE key_no = 0;
CREATE INDEX messages_by_offset ON messages USING brin (log_offset) WITH (pages_per_range = 32);
CREATE INDEX life_events_by_id ON life_events (unique_id) WHERE unique_id <> {_NO_ID};
CREATE INDEX life_events_by_place ON life_events (topic_no, queue_id, queue_offset)
    WHERE topic_no IS NOT NULL;
CREATE INDEX life_events_by_wait ON life_events (waited_at) WHERE waited_at IS NOT NULL;
CREATE INDEX commits_by_place ON commits (topic_no, queue_id, group_no, next_offset)
"""


def upgrade() -> None:
    """Create everything."""
    create_shared_tables()
    for statement in (_TABLES + ";" + _INDEXES).split(";"):
        op.execute(statement)
