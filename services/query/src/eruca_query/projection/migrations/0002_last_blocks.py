"""Record the last block read of each log, so that a rewritten log is detected."""

from __future__ import annotations

from eruca_postgres.tables import add_last_blocks

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add it to the positions; it stays empty until more is read."""
    add_last_blocks()
