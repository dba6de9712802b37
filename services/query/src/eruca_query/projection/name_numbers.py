"""Numbers for topics' and groups' names, by which rows refer to them. No number is ever dropped.

A PostgreSQL that was restored, or replaced by a standby, may lack the latest commits, and give
those numbers to other names. All connections were closed before that. So the cache is valid only
until there is a new connection.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import any_, literal, select
from sqlalchemy.dialects.postgresql import ARRAY, TEXT, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_query.core.storable import storable
from eruca_query.projection.tables import names


class NameNumbers:
    """Assigns and caches numbers. One instance serves a whole process."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}

    async def ensure(self, connection: AsyncConnection, wanted: Iterable[str]) -> dict[str, int]:
        """Return the number of each name; assign missing ones in *connection*'s transaction.

        Call it once in a transaction, with all names, so that two transactions cannot deadlock. The
        result is valid only once the transaction is committed; see :meth:`keep`.
        """
        self._meet(connection)
        texts = {name: storable(name) for name in wanted}
        known = {name: self._numbers[text] for name, text in texts.items() if text in self._numbers}
        unknown = sorted({text for name, text in texts.items() if name not in known})
        if not unknown:
            return known
        await connection.execute(
            insert(names).on_conflict_do_nothing(), [{"name": text} for text in unknown]
        )
        found = await self._find(connection, unknown)
        return known | {name: found[text] for name, text in texts.items() if name not in known}

    def keep(self, numbers: dict[str, int]) -> None:
        """Cache numbers after their commit."""
        self._numbers.update({storable(name): number for name, number in numbers.items()})

    async def known(self, connection: AsyncConnection, wanted: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those names that have one."""
        self._meet(connection)
        texts = {storable(name) for name in wanted}
        known = {text: self._numbers[text] for text in texts if text in self._numbers}
        if unknown := sorted(texts - known.keys()):
            found = await self._find(connection, unknown)
            self._numbers.update(found)
            known |= found
        return known

    async def names(self, connection: AsyncConnection, wanted: Iterable[int]) -> dict[int, str]:
        """Return names by their numbers."""
        self._meet(connection)
        numbers = set(wanted)
        known = {number: self._names[number] for number in numbers if number in self._names}
        if unknown := numbers - known.keys():
            rows = await connection.execute(
                select(names.c.name_no, names.c.name).where(names.c.name_no.in_(unknown))
            )
            found = {row.name_no: row.name for row in rows}
            self._names.update(found)
            known |= found
        return known

    def _meet(self, connection: AsyncConnection) -> None:
        """Clear the cache if *connection* is new: it may lead to another server."""
        if self not in connection.info:
            connection.info[self] = True
            self._numbers.clear()
            self._names.clear()

    async def _find(self, connection: AsyncConnection, texts: list[str]) -> dict[str, int]:
        found = await connection.execute(
            select(names.c.name, names.c.name_no).where(
                names.c.name == any_(literal(texts, ARRAY(TEXT)))
            )
        )
        return {row.name: row.name_no for row in found}
