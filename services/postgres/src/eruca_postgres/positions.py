"""How far a service has read each broker's log, kept beside the rows it made of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_postgres.tables import log_positions


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where a projection stands in one broker's log."""

    broker_name: str
    log_offset: int  # everything before it has been read
    end_offset: int  # where the log ended when that was noted
    updated_at: datetime


async def read_positions(connection: AsyncConnection) -> dict[str, LogPosition]:
    """Return where the projection stands, by broker; a broker never read is not in it."""
    found = await connection.execute(select(log_positions))
    return {row.broker_name: LogPosition(*row) for row in found}


async def locked_position(connection: AsyncConnection, broker_name: str) -> int | None:
    """Return how far *broker_name*'s log has been read, which stays so in this transaction."""
    offset: int | None = await connection.scalar(
        select(log_positions.c.log_offset)
        .where(log_positions.c.broker_name == broker_name)
        .with_for_update()
    )
    return offset


async def write_position(
    connection: AsyncConnection, broker_name: str, log_offset: int, *, end_offset: int
) -> None:
    """Note that everything before *log_offset* is in the rows of this transaction and before."""
    values = {"log_offset": log_offset, "end_offset": end_offset, "updated_at": func.now()}
    await connection.execute(
        insert(log_positions)
        .values(broker_name=broker_name, **values)
        .on_conflict_do_update(index_elements=["broker_name"], set_=values)
    )


async def delete_position(connection: AsyncConnection, broker_name: str) -> None:
    """Forget how far *broker_name*'s log has been read: it is read anew."""
    await connection.execute(
        delete(log_positions).where(log_positions.c.broker_name == broker_name)
    )
