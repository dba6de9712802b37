"""Let each chunk of messages have indexes of its own, so that one can be filled without.

The partitioned indexes can only be dropped without the chunks' own ones while the chunks are
detached, in one transaction, because every reader sees all chunks or waits. Attaching one reads all
its rows, unless a constraint proves that they belong there. So before that, while everybody reads
and writes, each chunk gets such a constraint and is read to validate it. Whatever dies meanwhile,
the next attempt validates the rest.

The last transaction locks the tables in an order that suits others: writers lock ``chunks`` first,
and readers ``messages``, then ``chunks`` in a mode that does not conflict with EXCLUSIVE.
"""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import text

from eruca_postgres.migrations import UnreachableError

revision = "0005"
down_revision = "0004"

LOCKS_PER_CHUNK: Final = 7  # its table, indexes and constraint: 6, and a margin
_PARTITIONS = text(
    "SELECT c.relname, chunk, con.convalidated FROM chunks "
    "JOIN pg_inherits i ON inhparent = 'messages'::regclass "
    "JOIN pg_class c ON c.oid = inhrelid AND c.relname = 'messages_' || chunk "
    "LEFT JOIN pg_constraint con ON con.conrelid = c.oid AND con.conname = 'of_' || c.relname "
    "ORDER BY chunk"
)
_LOCKS = text(
    "SELECT current_setting('max_locks_per_transaction')::int, "
    "current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int"
)


def upgrade() -> None:
    """Drop the partitioned indexes; a partition that is detached meanwhile keeps its own ones."""
    with op.get_context().autocommit_block():
        _require_locks(len(_partitions()))
        while missing := [row for row in _partitions() if not row[2]]:
            for name, chunk, is_valid in missing:  # more chunks may begin meanwhile
                _validate(name, chunk, is_added=is_valid is not None)
    op.execute("LOCK TABLE chunks IN EXCLUSIVE MODE")
    op.execute("LOCK TABLE ONLY messages IN ACCESS EXCLUSIVE MODE")
    partitions = _partitions()
    for name, _, _ in partitions:
        op.execute(f"ALTER TABLE messages DETACH PARTITION {name}")
    op.execute("DROP INDEX messages_by_id, messages_by_key, messages_by_time, messages_by_offset")
    for name, chunk, is_valid in partitions:
        op.execute(f"ALTER TABLE messages ATTACH PARTITION {name} FOR VALUES IN ({chunk})")
        if is_valid is not None:
            op.execute(f"ALTER TABLE {name} DROP CONSTRAINT of_{name}")
    op.execute("ALTER TABLE chunks ADD COLUMN is_indexed boolean NOT NULL DEFAULT true")
    # An instance of an earlier version begins chunks without indexes from now on.
    op.execute("ALTER TABLE chunks ALTER COLUMN is_indexed SET DEFAULT false")


def _partitions() -> list[tuple[str, int, bool | None]]:
    """Return each partition's name and chunk, and whether its constraint is valid; None: none."""
    found = op.get_bind().execute(_PARTITIONS)
    return [(row.relname, row.chunk, row.convalidated) for row in found]


def _validate(name: str, chunk: int, *, is_added: bool) -> None:
    """Prove that all rows of a partition, unless it was dropped meanwhile, are of its chunk."""
    if not is_added:
        op.execute(
            f"ALTER TABLE IF EXISTS {name} ADD CONSTRAINT of_{name} CHECK (chunk = {chunk}) "
            "NOT VALID"
        )
    op.execute(f"ALTER TABLE IF EXISTS {name} VALIDATE CONSTRAINT of_{name}")


def _require_locks(chunk_count: int) -> None:
    """Refuse before anything is locked what would fail with everything locked.

    Raises:
        UnreachableError: PostgreSQL has no room for so many locks; the text has the setting.
    """
    per_transaction, transactions = op.get_bind().execute(_LOCKS).one()
    needed = LOCKS_PER_CHUNK * chunk_count
    if needed > per_transaction * transactions:
        raise UnreachableError(
            f"PostgreSQL cannot be used: migrating {chunk_count} chunks needs {needed} locks, and "
            f"it has room for {per_transaction * transactions}; set max_locks_per_transaction to "
            f"{-(-needed // transactions)} or more, and restart it"
        )
