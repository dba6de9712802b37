"""Delete the rows of a broker that is being forgotten (:mod:`eruca_postgres.forgetting`).

The broker may have many decided transactions. So no list shows it from the moment of the decision.
Its rows are deleted afterwards, in portions, by any instance.
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
ROWS_MAX: Final = 10_000  # transactions deleted in one database transaction


class ForgottenRows:
    """Deletes the rows of brokers that were forgotten; a loop calls ``step``.

    Every instance does this, and skips a broker that another instance is working on.

    Args:
        database: Holds the rows.
        rows_max: Maximum of transactions deleted in one database transaction.
    """

    def __init__(self, database: Database, *, rows_max: int = ROWS_MAX) -> None:
        self._database = database
        self._rows_max = rows_max

    async def step(self) -> None:
        """Delete all rows that can be deleted now."""
        try:
            while await self.delete_some():
                pass
        except DatabaseUnavailableError:
            return  # readiness reports it, and the next step tries again

    async def delete_some(self) -> bool:
        """Delete a portion of one broker's rows; return whether there was such a broker."""
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
    """Delete a portion of a broker's transactions with their checks; return their number."""
    its = transactions.c.broker_name == broker_name
    some = select(transactions.c.transaction_id).where(its).limit(rows_max)
    deleted = await connection.execute(
        delete(transactions).where(its, transactions.c.transaction_id.in_(some))
    )
    return deleted.rowcount
