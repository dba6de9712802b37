"""The policy in PostgreSQL: rows that are only added.

A row names the version before it, and no two rows name the same one. So of two changes to one
version the second is not inserted.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import select, text
from sqlalchemy.dialects import postgresql

from eruca_controller.core.policies import PolicyRow
from eruca_controller.store.postgres import transaction
from eruca_controller.store.tables import policies
from eruca_postgres.database import Database
from eruca_postgres.notices import notify

NOTICE: Final = "/policy"  # no broker has this name
_NONE: Final = ""  # the version before the first one


class PostgresPolicies:
    """The store in PostgreSQL.

    Args:
        database: The service's schema.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest(self) -> PolicyRow | None:
        """Return the newest version; None: there has never been one."""
        found = await self.history(before=None, count_max=1)
        return found[0] if found else None

    async def newest_version(self) -> str | None:
        """Return the text that identifies the newest version; None: there is none."""
        query = select(policies.c.version).order_by(policies.c.number.desc()).limit(1)
        async with transaction(self._database) as connection:
            found: str | None = await connection.scalar(query)
            return found

    async def swap(self, expected: str | None, row: PolicyRow) -> bool:
        """Store *row* if the newest version is *expected*; return whether it was."""
        async with transaction(self._database) as connection:
            await connection.execute(text("SET LOCAL synchronous_commit TO on"))
            written = await connection.scalar(
                postgresql.insert(policies)
                .values(
                    number=row.number,
                    previous=expected or _NONE,
                    version=row.version,
                    row=row.to_text(),
                )
                .on_conflict_do_nothing()
                .returning(policies.c.number)
            )
            if written is None:
                return False
            await notify(connection, NOTICE)
        return True

    async def history(self, *, before: int | None, count_max: int) -> list[PolicyRow]:
        """Return versions, the newest first; *before* is a number, exclusive."""
        query = select(policies.c.row).order_by(policies.c.number.desc()).limit(count_max)
        if before is not None:
            query = query.where(policies.c.number < before)
        async with transaction(self._database) as connection:
            return [PolicyRow.from_text(kept) for kept in await connection.scalars(query)]
