"""What was read last of a log is known, so that one that was rewritten is noticed."""

from __future__ import annotations

from eruca_postgres.tables import add_last_blocks

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add it to the positions; there is none until more is read."""
    add_last_blocks()
