"""A service's progress in each broker's log, stored beside the rows made from it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.core.messages.log_block import LogBlock
from eruca_postgres.tables import log_positions


@dataclass(frozen=True, slots=True)
class LastBlock:
    """The last records read from a log, for recognizing the log later."""

    log_offset: int
    size: int  # bytes
    crc: int

    @classmethod
    def of(cls, block: LogBlock) -> Self | None:
        """Return the identity of *block*; None if it holds no record."""
        if not block.data:
            return None  # it only led to the next segment
        return cls(block.from_offset, len(block.data), zlib.crc32(block.data))


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A projection's progress in one broker's log."""

    broker_name: str
    log_offset: int  # everything before it has been read
    end_offset: int  # end of the log at that time
    updated_at: datetime
    last_block: LastBlock | None
    epoch: int | None = None  # of the record before log_offset; None: none is known


async def read_positions(connection: AsyncConnection) -> dict[str, LogPosition]:
    """Return all positions, by broker; a broker never read is missing."""
    found = await connection.execute(select(log_positions))
    return {
        row.broker_name: LogPosition(
            row.broker_name,
            row.log_offset,
            row.end_offset,
            row.updated_at,
            None
            if row.block_offset is None
            else LastBlock(row.block_offset, row.block_size, row.block_crc),
            row.epoch,
        )
        for row in found
    }


async def locked_position(connection: AsyncConnection, broker_name: str) -> int | None:
    """Return the position in *broker_name*'s log, and lock it for this transaction."""
    offset: int | None = await connection.scalar(
        select(log_positions.c.log_offset)
        .where(log_positions.c.broker_name == broker_name)
        .with_for_update()
    )
    return offset


async def write_position(
    connection: AsyncConnection,
    broker_name: str,
    log_offset: int,
    *,
    end_offset: int,
    last_block: LastBlock | None = None,
    epoch: int | None = None,
) -> None:
    """Record that everything before *log_offset* is in the rows of this or earlier transactions.

    *last_block* None keeps the stored one.
    """
    values = {
        "log_offset": log_offset,
        "end_offset": end_offset,
        "updated_at": func.now(),
        "epoch": epoch,
    }
    if last_block is not None:
        values |= {
            "block_offset": last_block.log_offset,
            "block_size": last_block.size,
            "block_crc": last_block.crc,
        }
    await connection.execute(
        insert(log_positions)
        .values(broker_name=broker_name, **values)
        .on_conflict_do_update(index_elements=["broker_name"], set_=values)
    )


async def delete_position(connection: AsyncConnection, broker_name: str) -> None:
    """Delete the position, so that *broker_name*'s log is read from its beginning."""
    await connection.execute(
        delete(log_positions).where(log_positions.c.broker_name == broker_name)
    )
