"""A schema for the tests of what SQL projections share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eruca_postgres.tables import create_shared_tables

revision = "0001"
down_revision = None


def upgrade() -> None:
    create_shared_tables()
    op.create_table("things", sa.Column("id", sa.BigInteger, primary_key=True))
