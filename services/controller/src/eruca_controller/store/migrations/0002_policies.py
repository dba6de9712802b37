"""Versions of the policy: who may do what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "policies",
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("previous", sa.Text(collation="C"), nullable=False, unique=True),
        sa.Column("version", sa.Text(collation="C"), nullable=False),
        sa.Column("row", sa.Text, nullable=False),
    )
