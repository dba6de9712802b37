"""The tables of every SQL projection: the follower of each broker, and the progress in its log.

``log_positions`` holds for each broker the log offset before which everything is in the service's
rows, and the last block of records before it, which identifies the log. ``claims`` assigns each
broker to one instance at a time, and ``instances`` counts those that share them.

In PostgreSQL the claims are in ``leases``, numbered by ``lease_fences``: instances of an earlier
version share them while one instance is upgraded after the other.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, DateTime, MetaData, Sequence, Table, Text

metadata: Final = MetaData()

log_positions: Final = Table(
    "log_positions",
    metadata,
    Column("broker_name", Text, primary_key=True),
    Column("log_offset", BigInteger, nullable=False),  # of the next record to read
    Column("end_offset", BigInteger, nullable=False),  # end of the log at that time
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("block_offset", BigInteger),  # of the last records read
    Column("block_size", BigInteger),
    Column("block_crc", BigInteger),
    Column("epoch", BigInteger),  # of the last record read; null: none is known
)

claims: Final = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),  # grows with each holder
    Column("expires_at", DateTime(timezone=True), nullable=False),  # by PostgreSQL's clock
)

claim_fences: Final = Sequence("lease_fences", metadata=metadata)

instances: Final = Table(
    "instances",
    metadata,
    Column("holder", Text, primary_key=True),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)


def create_shared_tables() -> None:
    """Create the tables above; called by each service's first migration."""
    from alembic import op  # here, as in the functions below: migrations alone need it

    metadata.create_all(op.get_bind())


def add_last_blocks() -> None:
    """Add the columns of the last block to a schema that was created without them."""
    from alembic import op

    op.execute(
        "ALTER TABLE log_positions"
        " ADD COLUMN IF NOT EXISTS block_offset bigint,"
        " ADD COLUMN IF NOT EXISTS block_size bigint,"
        " ADD COLUMN IF NOT EXISTS block_crc bigint"
    )


def add_epochs() -> None:
    """Add the epoch of positions to a schema that was created without it."""
    from alembic import op

    op.execute("ALTER TABLE log_positions ADD COLUMN IF NOT EXISTS epoch bigint")
