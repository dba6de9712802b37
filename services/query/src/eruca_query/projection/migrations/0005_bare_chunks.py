"""Let each chunk of messages have indexes of its own, so that one can be filled without."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0005"
down_revision = "0004"

_PARTITIONS = text(
    "SELECT c.relname, chunk FROM chunks JOIN pg_inherits i ON inhparent = 'messages'::regclass "
    "JOIN pg_class c ON c.oid = inhrelid AND c.relname = 'messages_' || chunk ORDER BY chunk"
)


def upgrade() -> None:
    """Drop the partitioned indexes; a partition that is detached meanwhile keeps its own ones."""
    op.execute("ALTER TABLE chunks ADD COLUMN is_indexed boolean NOT NULL DEFAULT true")
    # An instance of an earlier version begins chunks without indexes from now on.
    op.execute("ALTER TABLE chunks ALTER COLUMN is_indexed SET DEFAULT false")
    partitions = op.get_bind().execute(_PARTITIONS).all()
    for name, _ in partitions:
        op.execute(f"ALTER TABLE messages DETACH PARTITION {name}")
    op.execute("DROP INDEX messages_by_id, messages_by_key, messages_by_time, messages_by_offset")
    for name, chunk in partitions:
        op.execute(f"ALTER TABLE messages ATTACH PARTITION {name} FOR VALUES IN ({chunk})")
