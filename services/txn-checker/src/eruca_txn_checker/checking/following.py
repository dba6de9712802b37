"""The position that any instance has reached in each broker's log."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.transactions import FollowedBroker
from eruca_postgres.positions import read_positions
from eruca_postgres.tables import claims


async def followed_brokers(connection: AsyncConnection) -> list[FollowedBroker]:
    """Return every broker that was ever followed, sorted by name."""
    living = select(claims.c.name, claims.c.holder).where(claims.c.expires_at >= func.now())
    holders = {row.name: row.holder for row in await connection.execute(living)}
    return [
        FollowedBroker(
            broker_name=name,
            log_offset=position.log_offset,
            end_offset=position.end_offset,
            behind_bytes=max(position.end_offset - position.log_offset, 0),
            read_at=position.updated_at,
            followed_by=holders.get(name),
        )
        for name, position in sorted((await read_positions(connection)).items())
    ]
