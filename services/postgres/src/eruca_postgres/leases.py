"""Divide the brokers among the instances of a service: one instance at a time works on each.

States of a broker at an instance::

                 claimed                      expired, or PostgreSQL says so
    not ours ───────────────► ours ──────────────────────────────────► not ours
                                └─ released: more than our share, or shutdown ─────────┘

An instance counts its lease from before its request, PostgreSQL from its answer. So the instance is
the first to consider it expired. A write under a lease proves the lease in the same transaction
(:meth:`Lease.prove`), so an instance that slept through the end writes nothing.

No instance waits for another one. A lease under which a transaction is still writing is skipped,
and taken the next time. So a slow instance costs nobody else a lease.

Invariants: at any time at most one transaction under a lease of one name commits; with all
instances alive each has its share, to within one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_postgres.tables import instances, lease_fences, leases


class LeaseLostError(Exception):
    """Another instance holds the lease, or may: work begun under it must not count."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on something; valid until the keeper drops it."""

    name: str
    holder: str
    fence: int

    async def prove(self, connection: AsyncConnection) -> None:
        """Ensure that *connection*'s transaction commits only while this lease holds.

        Raises:
            LeaseLostError: The lease does not hold any more.
        """
        found = await connection.execute(
            select(leases.c.name)
            .where(
                leases.c.name == self.name,
                leases.c.holder == self.holder,
                leases.c.fence == self.fence,
            )
            .with_for_update(read=True)  # a takeover waits for our commit
        )
        if found.first() is None:
            raise LeaseLostError(f"another instance holds the lease of {self.name}")


class LeaseKeeper:
    """Claims, renews and releases the leases of one instance; a loop calls ``step``.

    Args:
        database: Holds the leases.
        holder: This process's name; unique, even across restarts.
        seconds: Duration of a lease; call ``step`` at least three times within it.
        clock: The instance's clock.
    """

    def __init__(self, database: Database, holder: str, *, seconds: float, clock: Clock) -> None:
        self.holder = holder
        self._database = database
        self._seconds = seconds
        self._clock = clock
        self._held: dict[str, Lease] = {}
        self._good_until = 0.0  # monotonic

    @property
    def held(self) -> dict[str, Lease]:
        """The leases that are valid now, by name."""
        return dict(self._held) if self._clock.monotonic() < self._good_until else {}

    async def step(self, names: Iterable[str]) -> dict[str, Lease]:
        """Renew the leases held, take free ones up to a fair share of *names*, return all.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unreachable; the leases stay valid until they
                expire.
        """
        wanted = sorted(set(names))
        asked_at = self._clock.monotonic()
        async with self._database.transaction() as connection:
            share = math.ceil(len(wanted) / await self._count_instances(connection))
            held = await self._keep(connection, wanted, share)
            for take in (self._take_expired, self._take_new):
                if len(held) < min(share, len(wanted)):
                    held |= await take(connection, wanted, share - len(held))
        self._held, self._good_until = held, asked_at + self._seconds
        return dict(held)

    async def leave(self) -> None:
        """Release all leases, so that others need not wait."""
        self._held = {}
        async with self._database.transaction() as connection:
            await connection.execute(delete(leases).where(leases.c.holder == self.holder))
            await connection.execute(delete(instances).where(instances.c.holder == self.holder))

    async def _count_instances(self, connection: AsyncConnection) -> int:
        """Record that this instance is alive; return the number of live instances."""
        gone = (
            select(instances.c.holder)
            .where(instances.c.expires_at < func.now())
            .with_for_update(skip_locked=True)
            .cte("gone")
        )
        await connection.execute(delete(instances).where(instances.c.holder == gone.c.holder))
        await connection.execute(
            insert(instances)
            .values(holder=self.holder, expires_at=self._expiry)
            .on_conflict_do_update(index_elements=["holder"], set_={"expires_at": self._expiry})
        )
        return await connection.scalar(select(func.count()).select_from(instances)) or 1

    async def _keep(
        self, connection: AsyncConnection, wanted: list[str], share: int
    ) -> dict[str, Lease]:
        """Renew up to *share* of our leases, and release the others."""
        is_ours = leases.c.holder == self.holder
        ours = await self._leases(
            connection,
            update(leases)
            .where(is_ours, leases.c.name.in_(wanted))
            .values(expires_at=self._expiry)
            .returning(leases.c.name, leases.c.fence),
        )
        kept = sorted(ours, key=lambda name: (name not in self._held, name))[:share]
        await connection.execute(delete(leases).where(is_ours, leases.c.name.not_in(kept)))
        return {name: ours[name] for name in kept}

    async def _take_expired(
        self, connection: AsyncConnection, wanted: list[str], count: int
    ) -> dict[str, Lease]:
        """Take up to *count* expired leases of other instances."""
        free = (
            select(leases.c.name)
            .where(leases.c.name.in_(wanted), leases.c.expires_at < func.now())
            .order_by(leases.c.name)
            .limit(count)
            .with_for_update(skip_locked=True)  # skip a lease under which somebody is writing
            .cte("free")
        )
        return await self._leases(
            connection,
            update(leases)
            .where(leases.c.name == free.c.name)
            .values(holder=self.holder, fence=lease_fences.next_value(), expires_at=self._expiry)
            .returning(leases.c.name, leases.c.fence),
        )

    async def _take_new(
        self, connection: AsyncConnection, wanted: list[str], count: int
    ) -> dict[str, Lease]:
        """Take up to *count* leases that nobody holds."""
        found = await connection.scalars(select(leases.c.name).where(leases.c.name.in_(wanted)))
        new = sorted(set(wanted).difference(found))[:count]  # sorted: a fixed order, no deadlock
        if not new:
            return {}
        return await self._leases(
            connection,
            insert(leases)
            .values(
                [
                    {
                        "name": name,
                        "holder": self.holder,
                        "fence": lease_fences.next_value(),
                        "expires_at": self._expiry,
                    }
                    for name in new
                ]
            )
            .on_conflict_do_nothing()
            .returning(leases.c.name, leases.c.fence),
        )

    async def _leases(
        self, connection: AsyncConnection, change: ReturningUpdate[Any] | ReturningInsert[Any]
    ) -> dict[str, Lease]:
        """Execute *change*; return the leases that it made ours."""
        found = await connection.execute(change)
        return {name: Lease(name, self.holder, fence) for name, fence in found}

    @property
    def _expiry(self) -> ColumnElement[datetime]:
        return func.now() + timedelta(seconds=self._seconds)
