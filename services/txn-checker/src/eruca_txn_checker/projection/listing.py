"""Look transactions up, by id and page by page; those of a forgotten broker are hidden."""

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
    """A transaction's position in lists, which go from old to young."""

    begun_ms: int
    broker_name: str
    transaction_id: str


def place_of(row: TransactionRow) -> Place:
    """Return the position of *row* in lists."""
    return Place(row.begun_ms, row.broker_name, row.transaction_id)


async def find_rows(
    connection: AsyncConnection, transaction_id: str, broker_name: str | None = None
) -> list[TransactionRow]:
    """Return the transactions with an id: at most one per broker."""
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
    """Return up to *limit* transactions after *after*, oldest first.

    Args:
        connection: A transaction.
        state: Only transactions in this state.
        producer_group: Only transactions of this group.
        broker_name: Only transactions at this broker.
        after: Position of the previous page's last transaction.
        limit: Maximum number.
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
