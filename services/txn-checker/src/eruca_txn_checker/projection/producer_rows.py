"""The reachable producer groups: those with a waiting producer, or with a webhook."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, func, select, union
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_txn_checker.projection.tables import producers, webhooks


async def note_seen(connection: AsyncConnection, groups: Collection[str], *, now_ms: int) -> None:
    """Record that producers of *groups* waited for checks just now."""
    statement = insert(producers)
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["producer_group"],
            set_={"seen_ms": func.greatest(producers.c.seen_ms, statement.excluded.seen_ms)},
        ),
        [{"producer_group": group, "seen_ms": now_ms} for group in sorted(groups)],
    )


async def forget_unseen(connection: AsyncConnection, *, before_ms: int) -> None:
    """Delete groups that were seen last before *before_ms*."""
    await connection.execute(delete(producers).where(producers.c.seen_ms < before_ms))


async def reachable_groups(connection: AsyncConnection, *, since_ms: int) -> set[str]:
    """Return the groups that were seen since *since_ms* or have a webhook."""
    seen = select(producers.c.producer_group).where(producers.c.seen_ms >= since_ms)
    called = select(webhooks.c.producer_group).where(webhooks.c.is_enabled)
    return set(await connection.scalars(union(seen, called)))
