"""Looking transactions up: by id, and a page at a time; none of a broker that is forgotten."""

from __future__ import annotations

from dataclasses import fields
from typing import Final, NamedTuple

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_postgres.forgetting import being_forgotten
from eruca_txn_checker.core.transaction_rows import TransactionRow
from eruca_txn_checker.projection.tables import transactions

COLUMNS: Final = [transactions.c[field.name] for field in fields(TransactionRow)]
_IS_SHOWN: Final = transactions.c.broker_name.not_in(being_forgotten())


class Place(NamedTuple):
    """Where a transaction stands in lists: they go from old to young."""

    begun_ms: int
    broker_name: str
    transaction_id: str


def place_of(row: TransactionRow) -> Place:
    """Return where *row* stands."""
    return Place(row.begun_ms, row.broker_name, row.transaction_id)


async def find_rows(
    connection: AsyncConnection, transaction_id: str, broker_name: str | None = None
) -> list[TransactionRow]:
    """Return the transactions of an id: one for each broker that has one."""
    chosen = select(*COLUMNS).where(transactions.c.transaction_id == transaction_id, _IS_SHOWN)
    if broker_name is not None:
        chosen = chosen.where(transactions.c.broker_name == broker_name)
    found = await connection.execute(chosen.order_by(transactions.c.broker_name))
    return [TransactionRow(*row) for row in found]


async def page_of(
    connection: AsyncConnection,
    *,
    state: str | None,
    producer_group: str | None,
    broker_name: str | None,
    after: Place | None,
    limit: int,
) -> list[TransactionRow]:
    """Return up to *limit* transactions behind *after*, oldest first.

    Args:
        connection: A transaction.
        state: Only those in it.
        producer_group: Only those of it.
        broker_name: Only those at it.
        after: The last one of the page before.
        limit: How many.
    """
    key = (transactions.c.begun_ms, transactions.c.broker_name, transactions.c.transaction_id)
    wanted = {
        transactions.c.state: state,
        transactions.c.producer_group: producer_group,
        transactions.c.broker_name: broker_name,
    }
    conditions = [column == value for column, value in wanted.items() if value is not None]
    if after is not None:
        conditions.append(tuple_(*key) > tuple_(*after))
    chosen = select(*COLUMNS).where(_IS_SHOWN, *conditions).order_by(*key).limit(limit)
    return [TransactionRow(*row) for row in await connection.execute(chosen)]
