"""Record the damaged records of a log, so that no answer hides them."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create their table; earlier damaged records are added once the log is read again."""
    op.execute(
        """
        CREATE TABLE damaged (
            broker_no smallint,
            generation integer,
            log_offset bigint,
            size integer NOT NULL,
            fault text NOT NULL,
            after_ms bigint NOT NULL,
            before_ms bigint,
            topic bytea,
            queue_id integer,
            queue_offset bigint,
            unique_id bytea,
            PRIMARY KEY (broker_no, generation, log_offset)
        )
        """
    )
