"""Dividing the brokers among the instances of a service: one at a time works on each.

States of a broker at an instance::

                 claimed                      its time is up, or PostgreSQL says so
    not ours ───────────────► ours ──────────────────────────────────► not ours
                                └─ released: more than our share, or the service stops ─┘

An instance counts its lease from before it asked for it, PostgreSQL from when it answered: so the
instance is the first to think that it is over. Writing under a lease proves it in the very
transaction (:meth:`Lease.prove`), so an instance that slept through its end writes nothing.

Invariants: at any time at most one transaction under a lease of one name commits; with all
instances alive each has its share, to within one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import case, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_postgres.tables import instances, leases


class LeaseLostError(Exception):
    """Another instance has the lease now, or may have: what was begun under it must not count."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on something; good until the keeper says otherwise."""

    name: str
    holder: str
    fence: int

    async def prove(self, connection: AsyncConnection) -> None:
        """Make sure that *connection*'s transaction commits only while this lease holds.

        Raises:
            LeaseLostError: It does not.
        """
        found = await connection.execute(
            select(leases.c.name)
            .where(
                leases.c.name == self.name,
                leases.c.holder == self.holder,
                leases.c.fence == self.fence,
            )
            .with_for_update(read=True)  # whoever takes it over waits for our commit
        )
        if found.first() is None:
            raise LeaseLostError(f"the lease of {self.name} is another instance's now")


class LeaseKeeper:
    """Claims, renews and gives back the leases of one instance; ``step`` is called by a loop.

    Args:
        database: Where they are kept.
        holder: This process's name; no other has it, and none after a restart.
        seconds: How long a lease lasts; ``step`` is due three times within it.
        clock: The instance's.
    """

    def __init__(self, database: Database, holder: str, *, seconds: float, clock: Clock) -> None:
        self.holder = holder
        self._database = database
        self._seconds = seconds
        self._clock = clock
        self._held: dict[str, Lease] = {}
        self._good_until = 0.0  # by the monotonic clock

    @property
    def held(self) -> dict[str, Lease]:
        """The leases that are good now, by name."""
        return dict(self._held) if self._clock.monotonic() < self._good_until else {}

    async def step(self, names: Iterable[str]) -> dict[str, Lease]:
        """Renew what is held, take what is free up to a fair share of *names*, return what is held.

        Raises:
            DatabaseUnavailableError: PostgreSQL is not there; what was held is, until its time is
                up.
        """
        wanted = sorted(set(names))
        asked_at = self._clock.monotonic()
        async with self._database.transaction() as connection:
            expiry = func.now() + timedelta(seconds=self._seconds)
            await connection.execute(delete(instances).where(instances.c.expires_at < func.now()))
            await connection.execute(
                insert(instances)
                .values(holder=self.holder, expires_at=expiry)
                .on_conflict_do_update(index_elements=["holder"], set_={"expires_at": expiry})
            )
            count = await connection.scalar(select(func.count()).select_from(instances))
            share = math.ceil(len(wanted) / max(count or 1, 1))
            kept = [name for name in wanted if name in self._held][:share]
            held: dict[str, Lease] = {}
            for name in kept + [name for name in wanted if name not in kept]:
                if len(held) == share:
                    break
                lease = await self._claim(connection, name)
                if lease is not None:
                    held[name] = lease
            await connection.execute(
                delete(leases).where(
                    leases.c.holder == self.holder, leases.c.name.not_in(list(held))
                )
            )
        self._held, self._good_until = held, asked_at + self._seconds
        return dict(held)

    async def leave(self) -> None:
        """Give everything back, so that others need not wait."""
        self._held = {}
        async with self._database.transaction() as connection:
            await connection.execute(delete(leases).where(leases.c.holder == self.holder))
            await connection.execute(delete(instances).where(instances.c.holder == self.holder))

    async def _claim(self, connection: AsyncConnection, name: str) -> Lease | None:
        """Take a lease that is free, or renew our own; None where another instance has it."""
        claim = insert(leases).values(
            name=name,
            holder=self.holder,
            fence=func.nextval("lease_fences"),
            expires_at=func.now() + timedelta(seconds=self._seconds),
        )
        is_ours = leases.c.holder == self.holder
        fence = await connection.scalar(
            claim.on_conflict_do_update(
                index_elements=["name"],
                set_={
                    "holder": claim.excluded.holder,
                    "fence": case((is_ours, leases.c.fence), else_=claim.excluded.fence),
                    "expires_at": claim.excluded.expires_at,
                },
                where=(leases.c.expires_at < func.now()) | is_ours,
            ).returning(leases.c.fence)
        )
        return None if fence is None else Lease(name, self.holder, fence)
