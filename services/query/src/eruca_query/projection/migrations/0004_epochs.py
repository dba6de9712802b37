"""Add the epoch of the last record read, so that any replica can continue."""

from __future__ import annotations

from eruca_postgres.tables import add_epochs

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add its column; it stays empty until more is read."""
    add_epochs()
