"""The first schema: transactions, checks, reachable producer groups, webhooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eruca_postgres.tables import create_shared_tables

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    create_shared_tables()
    op.create_table(
        "transactions",
        sa.Column("broker_name", sa.Text, primary_key=True),
        sa.Column("transaction_id", sa.Text, primary_key=True),
        sa.Column("producer_group", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("begun_ms", sa.BigInteger, nullable=False),
        sa.Column("immunity_ms", sa.BigInteger),
        sa.Column("checks", sa.Integer, nullable=False),
        sa.Column("checked_ms", sa.BigInteger),
        sa.Column("due_ms", sa.BigInteger),
        sa.Column("half_offset", sa.BigInteger),
        sa.Column("outcome", sa.Text),
        sa.Column("decided_by", sa.Text),
        sa.Column("decided_ms", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.Column("check_number", sa.Integer),
    )
    op.create_table(
        "checks",
        sa.Column("check_id", sa.Text, primary_key=True),
        sa.Column("broker_name", sa.Text, nullable=False),
        sa.Column("transaction_id", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("producer_group", sa.Text, nullable=False),
        sa.Column("checker", sa.Text, nullable=False),
        sa.Column("checked_ms", sa.BigInteger, nullable=False),
        sa.Column("opened_ms", sa.BigInteger, nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("asked", sa.Text),
        sa.Column("asked_ms", sa.BigInteger),
        sa.Column("answer_until_ms", sa.BigInteger),
        sa.Column("answer", sa.Text),
        sa.Column("answered_by", sa.Text),
        sa.Column("answered_ms", sa.BigInteger),
        sa.Column("answer_reason", sa.Text),
        sa.Column("is_settling", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("fault", sa.Text),
        sa.ForeignKeyConstraint(
            ["broker_name", "transaction_id"],
            ["transactions.broker_name", "transactions.transaction_id"],
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "producers",
        sa.Column("producer_group", sa.Text, primary_key=True),
        sa.Column("seen_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "webhooks",
        sa.Column("producer_group", sa.Text, primary_key=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("timeout_seconds", sa.Float, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.Column("last_answer_ms", sa.BigInteger),
        sa.Column("last_error", sa.Text),
    )
    _create_indexes()


def _create_indexes() -> None:
    listed = ["begun_ms", "broker_name", "transaction_id"]
    op.create_index(
        "transactions_due",
        "transactions",
        ["broker_name", "due_ms"],
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "transactions_decided",
        "transactions",
        ["decided_ms"],
        postgresql_where=sa.text("decided_ms IS NOT NULL"),
    )
    op.create_index("transactions_listed", "transactions", listed)
    op.create_index("transactions_by_state", "transactions", ["state", *listed])
    op.create_index("transactions_by_id", "transactions", ["transaction_id"])
    op.create_index(
        "checks_open",
        "checks",
        ["producer_group", "checked_ms"],
        postgresql_where=sa.text("is_open"),
    )
    op.create_index(
        "checks_settling", "checks", ["broker_name"], postgresql_where=sa.text("is_settling")
    )
    op.create_index(
        "checks_of_transaction",
        "checks",
        ["broker_name", "transaction_id", "number"],
        unique=True,
    )
