"""The transaction checker's tables.

``transactions`` and the number, checker and time of ``checks`` are derived from the brokers' logs
and can be rebuilt from them. The rest of ``checks`` is the service's own data: the producer asked,
and its answer. So is ``webhooks``. Times are ms since the epoch. Times from the logs are by their
broker's clock, the service's own by PostgreSQL's, which all instances share.

A check **is open** while it has been sent to nobody and is still worth sending. It **is
forwarding** while it has an answer that the broker has not confirmed. :mod:`.check_columns` tells
its state from its columns.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

SCHEMA: Final = "eruca_txn_checker"
metadata: Final = MetaData()

transactions: Final = Table(
    "transactions",
    metadata,
    Column("broker_name", Text, primary_key=True),
    Column("transaction_id", Text, primary_key=True),
    Column("producer_group", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("queue_id", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("begun_ms", BigInteger, nullable=False),
    Column("immunity_ms", BigInteger),
    Column("checks", Integer, nullable=False),
    Column("checked_ms", BigInteger),
    Column("due_ms", BigInteger),
    Column("half_offset", BigInteger),
    Column("outcome", Text),
    Column("decided_by", Text),
    Column("decided_ms", BigInteger),
    Column("reason", Text),
    Column("check_number", Integer),
    Index("transactions_due", "broker_name", "due_ms", postgresql_where=text("state = 'pending'")),
    Index("transactions_decided", "decided_ms", postgresql_where=text("decided_ms IS NOT NULL")),
    Index("transactions_listed", "begun_ms", "broker_name", "transaction_id"),
    Index("transactions_by_state", "state", "begun_ms", "broker_name", "transaction_id"),
    Index("transactions_by_id", "transaction_id"),
)

checks: Final = Table(
    "checks",
    metadata,
    Column("check_id", Text, primary_key=True),
    Column("broker_name", Text, nullable=False),
    Column("transaction_id", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("producer_group", Text, nullable=False),
    Column("checker", Text, nullable=False),
    Column("checked_ms", BigInteger, nullable=False),
    Column("opened_ms", BigInteger, nullable=False),  # when its grant was read from the log
    Column("is_open", Boolean, nullable=False),
    Column("asked", Text),  # a client id, or "webhook"
    Column("asked_ms", BigInteger),
    Column("answer_until_ms", BigInteger),
    Column("answer", Text),
    Column("answered_by", Text),
    Column("answered_ms", BigInteger),
    Column("answer_reason", Text),
    Column("is_forwarding", Boolean, nullable=False, server_default=text("false")),
    Column("fault", Text),  # why a webhook call failed, or an answer was refused
    ForeignKeyConstraint(
        ["broker_name", "transaction_id"],
        ["transactions.broker_name", "transactions.transaction_id"],
        ondelete="CASCADE",
    ),
    Index("checks_open", "producer_group", "checked_ms", postgresql_where=text("is_open")),
    Index("checks_forwarding", "broker_name", postgresql_where=text("is_forwarding")),
    Index("checks_of_transaction", "broker_name", "transaction_id", "number", unique=True),
)

producers: Final = Table(
    "producers",
    metadata,
    Column("producer_group", Text, primary_key=True),
    Column("seen_ms", BigInteger, nullable=False),  # the last time a producer waited for checks
)

webhooks: Final = Table(
    "webhooks",
    metadata,
    Column("producer_group", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("timeout_seconds", Float, nullable=False),
    Column("is_enabled", Boolean, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("last_answer_ms", BigInteger),
    Column("last_error", Text),
)
