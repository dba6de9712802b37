"""Call an answer that the broker has not confirmed *forwarding*; name servers settle."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Rename the column and its index; no row changes."""
    op.alter_column("checks", "is_settling", new_column_name="is_forwarding")
    op.execute("ALTER INDEX checks_settling RENAME TO checks_forwarding")
