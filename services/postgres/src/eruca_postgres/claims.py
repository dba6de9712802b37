"""Divide the brokers among the instances of a service: one instance at a time works on each.

States of a broker at an instance::

                 taken                        expired, or PostgreSQL says so
    not ours ───────────────► ours ──────────────────────────────────► not ours
                                └─ released: more than our share, or shutdown ─────────┘

An instance counts its claim from before its request, PostgreSQL from its answer. So the instance is
the first to consider it expired. A write under a claim proves the claim in the same transaction
(:meth:`Claim.prove`), so an instance that slept through the end writes nothing.

No instance waits for another one. A claim under which a transaction is still writing is skipped,
and taken the next time. So a slow instance costs nobody else a claim.

Invariants: at any time at most one transaction under a claim of one name commits; with all
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
from eruca_postgres.tables import claim_fences, claims, instances


class ClaimLostError(Exception):
    """Another instance holds the claim, or may: work begun under it must not count."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on something; valid until the keeper drops it."""

    name: str
    holder: str
    fence: int

    async def prove(self, connection: AsyncConnection) -> None:
        """Ensure that *connection*'s transaction commits only while this claim holds.

        Raises:
            ClaimLostError: The claim does not hold any more.
        """
        found = await connection.execute(
            select(claims.c.name)
            .where(
                claims.c.name == self.name,
                claims.c.holder == self.holder,
                claims.c.fence == self.fence,
            )
            .with_for_update(read=True)  # a takeover waits for our commit
        )
        if found.first() is None:
            raise ClaimLostError(f"another instance holds the claim of {self.name}")


class ClaimKeeper:
    """Takes, renews and releases the claims of one instance; a loop calls ``step``.

    Args:
        database: Holds the claims.
        holder: This process's name; unique, even across restarts.
        seconds: Duration of a claim; call ``step`` at least three times within it.
        clock: The instance's clock.
    """

    def __init__(self, database: Database, holder: str, *, seconds: float, clock: Clock) -> None:
        self.holder = holder
        self._database = database
        self._seconds = seconds
        self._clock = clock
        self._held: dict[str, Claim] = {}
        self._good_until = 0.0  # monotonic

    @property
    def held(self) -> dict[str, Claim]:
        """The claims that are valid now, by name."""
        return dict(self._held) if self._clock.monotonic() < self._good_until else {}

    async def step(self, names: Iterable[str]) -> dict[str, Claim]:
        """Renew the claims held, take free ones up to a fair share of *names*, return all.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unreachable; the claims stay valid until they
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
        """Release all claims, so that others need not wait."""
        self._held = {}
        async with self._database.transaction() as connection:
            await connection.execute(delete(claims).where(claims.c.holder == self.holder))
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
    ) -> dict[str, Claim]:
        """Renew up to *share* of our claims, and release the others."""
        is_ours = claims.c.holder == self.holder
        ours = await self._claims(
            connection,
            update(claims)
            .where(is_ours, claims.c.name.in_(wanted))
            .values(expires_at=self._expiry)
            .returning(claims.c.name, claims.c.fence),
        )
        kept = sorted(ours, key=lambda name: (name not in self._held, name))[:share]
        await connection.execute(delete(claims).where(is_ours, claims.c.name.not_in(kept)))
        return {name: ours[name] for name in kept}

    async def _take_expired(
        self, connection: AsyncConnection, wanted: list[str], count: int
    ) -> dict[str, Claim]:
        """Take up to *count* expired claims of other instances."""
        free = (
            select(claims.c.name)
            .where(claims.c.name.in_(wanted), claims.c.expires_at < func.now())
            .order_by(claims.c.name)
            .limit(count)
            .with_for_update(skip_locked=True)  # skip a claim under which somebody is writing
            .cte("free")
        )
        return await self._claims(
            connection,
            update(claims)
            .where(claims.c.name == free.c.name)
            .values(holder=self.holder, fence=claim_fences.next_value(), expires_at=self._expiry)
            .returning(claims.c.name, claims.c.fence),
        )

    async def _take_new(
        self, connection: AsyncConnection, wanted: list[str], count: int
    ) -> dict[str, Claim]:
        """Take up to *count* claims that nobody holds."""
        found = await connection.scalars(select(claims.c.name).where(claims.c.name.in_(wanted)))
        new = sorted(set(wanted).difference(found))[:count]  # sorted: a fixed order, no deadlock
        if not new:
            return {}
        return await self._claims(
            connection,
            insert(claims)
            .values(
                [
                    {
                        "name": name,
                        "holder": self.holder,
                        "fence": claim_fences.next_value(),
                        "expires_at": self._expiry,
                    }
                    for name in new
                ]
            )
            .on_conflict_do_nothing()
            .returning(claims.c.name, claims.c.fence),
        )

    async def _claims(
        self, connection: AsyncConnection, change: ReturningUpdate[Any] | ReturningInsert[Any]
    ) -> dict[str, Claim]:
        """Execute *change*; return the claims that it made ours."""
        found = await connection.execute(change)
        return {name: Claim(name, self.holder, fence) for name, fence in found}

    @property
    def _expiry(self) -> ColumnElement[datetime]:
        return func.now() + timedelta(seconds=self._seconds)
