"""What is left of a broker that is forgotten (:mod:`eruca_postgres.forgetting`): deleting its rows.

It can have had many transactions that are over. So no list shows it from the moment on at which it
is decided, and its rows are deleted after that, some at a time, by whichever instance comes to it.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import DatabaseUnavailableError
from eruca_postgres.database import Database
from eruca_postgres.forgetting import being_forgotten, end_forgetting
from eruca_txn_checker.projection.tables import transactions

PERIOD_SECONDS: Final = 5.0
ROWS_MAX: Final = 10_000  # transactions deleted in one go


class ForgottenRows:
    """Deletes what is left of brokers that were forgotten; ``step`` is called by a loop.

    Every instance does it. One that another instance is at is left to it.

    Args:
        database: Where the rows are.
        rows_max: Transactions that are deleted in one go.
    """

    def __init__(self, database: Database, *, rows_max: int = ROWS_MAX) -> None:
        self._database = database
        self._rows_max = rows_max

    async def step(self) -> None:
        """Delete all that can be deleted."""
        try:
            while await self.delete_some():
                pass
        except DatabaseUnavailableError:
            return  # the service says so, and the next time will do

    async def delete_some(self) -> bool:
        """Delete some rows of one broker; tell whether there was one."""
        async with self._database.transaction() as connection:
            name: str | None = await connection.scalar(
                being_forgotten().limit(1).with_for_update(skip_locked=True)
            )
            if name is None:
                return False
            if await delete_some(connection, name, rows_max=self._rows_max) < self._rows_max:
                await end_forgetting(connection, name)
        return True


async def delete_some(connection: AsyncConnection, broker_name: str, *, rows_max: int) -> int:
    """Delete some of a broker's transactions with their checks; return how many."""
    its = transactions.c.broker_name == broker_name
    some = select(transactions.c.transaction_id).where(its).limit(rows_max)
    deleted = await connection.execute(
        delete(transactions).where(its, transactions.c.transaction_id.in_(some))
    )
    return deleted.rowcount
