"""The first schema: groups and their changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "broker_groups",
        sa.Column("broker_name", sa.Text(collation="C"), primary_key=True),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("is_live", sa.Boolean, nullable=False),
        sa.Column("row", sa.Text, nullable=False),
    )
    op.create_table(
        "broker_group_changes",
        sa.Column("broker_name", sa.Text(collation="C"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("row", sa.Text, nullable=False),
    )
