"""Rows in PostgreSQL: a row is updated if it has the expected version.

A row and its entry in the history are written in one transaction. It is committed with
``synchronous_commit`` on, whatever the server's default is: a row that was answered is on disk, and
on every synchronous standby that the server has.

Source: PostgreSQL 18, "Transaction Isolation": a second UPDATE of a row waits for the first one's
commit, then evaluates its condition again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from sqlalchemy import ColumnElement, Select, delete, func, insert, select, text, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import ArbiterUnavailableError, DatabaseUnavailableError
from eruca_controller.core.rows import GroupRow
from eruca_controller.store.tables import broker_group_changes, broker_groups
from eruca_postgres.database import Database
from eruca_postgres.notices import notify


class PostgresGroups:
    """The store in PostgreSQL.

    Args:
        database: The service's schema.
        history_count_max: Entries of the history that are kept for each group.
    """

    def __init__(self, database: Database, *, history_count_max: int) -> None:
        self._database = database
        self._history_count_max = history_count_max

    async def read(self, broker_name: str) -> GroupRow | None:
        """Return the current version of a row; None if the name has never been used."""
        found = await self._rows(broker_groups.c.broker_name == broker_name)
        return found[0] if found else None

    async def swap(self, expected: str | None, row: GroupRow) -> bool:
        """Store *row* if the current version is *expected*; return whether it was."""
        kept = row.to_text()
        values = {"version": row.version, "is_live": row.is_live, "row": kept}
        async with self._transaction() as connection:
            await connection.execute(text("SET LOCAL synchronous_commit TO on"))
            if expected is None:
                written = await connection.execute(
                    postgresql.insert(broker_groups)
                    .values(broker_name=row.broker_name, **values)
                    .on_conflict_do_nothing()
                )
            else:
                written = await connection.execute(
                    update(broker_groups)
                    .where(
                        broker_groups.c.broker_name == row.broker_name,
                        broker_groups.c.version == expected,
                    )
                    .values(values)
                )
            if written.rowcount == 0:
                return False
            await self._note(connection, row, kept)
        return True

    async def _note(self, connection: AsyncConnection, row: GroupRow, kept: str) -> None:
        changes = broker_group_changes
        await connection.execute(
            insert(changes).values(broker_name=row.broker_name, number=row.number, row=kept)
        )
        await connection.execute(
            delete(changes).where(
                changes.c.broker_name == row.broker_name,
                changes.c.number <= row.number - self._history_count_max,
            )
        )
        await notify(connection, row.broker_name)

    async def live(self, *, after: str | None, count_max: int) -> list[GroupRow]:
        """Return the groups that exist, in order of their names, from the one behind *after*."""
        return await self._rows(
            broker_groups.c.is_live,
            broker_groups.c.broker_name > (after or ""),
            count_max=count_max,
        )

    async def history(
        self, broker_name: str, *, before: int | None, count_max: int
    ) -> list[GroupRow]:
        """Return the versions of a row, the newest first; *before* is a number, exclusive."""
        changes = broker_group_changes
        query = (
            select(changes.c.row)
            .where(changes.c.broker_name == broker_name)
            .order_by(changes.c.number.desc())
            .limit(count_max)
        )
        if before is not None:
            query = query.where(changes.c.number < before)
        return await self._read(query)

    async def versions(self, broker_names: Collection[str]) -> dict[str, str]:
        """Return the current versions of these rows; a name that was never used is left out."""
        columns = (broker_groups.c.broker_name, broker_groups.c.version)
        query = select(*columns).where(broker_groups.c.broker_name.in_(broker_names))
        async with self._transaction() as connection:
            return {found.broker_name: found.version for found in await connection.execute(query)}

    async def count(self) -> int:
        """Return the number of names that have a row, removed or not."""
        async with self._transaction() as connection:
            found = await connection.execute(select(func.count()).select_from(broker_groups))
            return found.scalar_one()

    async def check(self) -> None:
        """Raise ArbiterUnavailableError unless rows can be read."""
        try:
            await self._database.check()
        except DatabaseUnavailableError as error:
            raise _unavailable(error) from error

    async def _rows(
        self, *conditions: ColumnElement[bool], count_max: int | None = None
    ) -> list[GroupRow]:
        query = select(broker_groups.c.row).where(*conditions).order_by(broker_groups.c.broker_name)
        return await self._read(query.limit(count_max))

    async def _read(self, query: Select[str]) -> list[GroupRow]:
        async with self._transaction() as connection:
            return [GroupRow.from_text(kept) for kept in await connection.scalars(query)]

    def _transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return transaction(self._database)


@asynccontextmanager
async def transaction(database: Database) -> AsyncIterator[AsyncConnection]:
    """Run the block in a transaction.

    Raises:
        ArbiterUnavailableError: The database is out of reach.
    """
    try:
        async with database.transaction() as connection:
            yield connection
    except DatabaseUnavailableError as error:
        raise _unavailable(error) from error


def _unavailable(error: DatabaseUnavailableError) -> ArbiterUnavailableError:
    return ArbiterUnavailableError(
        error.detail, fix=error.fix, retry_after_seconds=error.retry_after_seconds
    )
