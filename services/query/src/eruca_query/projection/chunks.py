"""Chunks: the partitions of the large tables, filled one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_query.projection.tables import PARTITIONED, chunks, commits, life_events, messages

# Chunks only grow, are analyzed when they are full, and are dropped as a whole.
_STORAGE: Final = "autovacuum_enabled = false"
_SUMMARIZE: Final = text(
    "SELECT brin_summarize_new_values(c.oid) FROM pg_index i JOIN pg_class c ON c.oid = indexrelid "
    "JOIN pg_am a ON a.oid = c.relam WHERE amname = 'brin' AND indrelid = CAST(:table AS regclass)"
)


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """The limits at which a chunk is full."""

    rows: int
    span_ms: int  # from its first message's store time


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk that is being filled."""

    number: int
    from_offset: int
    first_ms: int
    last_ms: int
    row_count: int

    def is_full(self, limits: ChunkLimits, now_ms: int) -> bool:
        """Tell whether a record stored at *now_ms* belongs to the next chunk."""
        return self.row_count >= limits.rows or now_ms - self.first_ms >= limits.span_ms


async def open_chunk(
    connection: AsyncConnection,
    broker_no: int,
    build: int,
    *,
    from_offset: int,
    stored_ms: int,
    limits: ChunkLimits,
) -> Chunk:
    """Return the chunk for records from a log offset on; begin a new one if the last is full."""
    found = await connection.execute(
        select(chunks)
        .where(chunks.c.broker_no == broker_no, chunks.c.build == build, chunks.c.is_open)
        .with_for_update()
    )
    row = found.first()
    if row is not None:
        chunk = Chunk(row.chunk, row.from_offset, row.first_ms, row.last_ms, row.row_count)
        if not chunk.is_full(limits, stored_ms):
            return chunk
        await close_chunk(connection, chunk.number)
    number = await connection.scalar(
        insert(chunks)
        .values(
            broker_no=broker_no,
            build=build,
            from_offset=from_offset,
            to_offset=from_offset,
            first_ms=stored_ms,
            last_ms=stored_ms,
            row_count=0,
            is_open=True,
        )
        .returning(chunks.c.chunk)
    )
    assert isinstance(number, int)
    for table in PARTITIONED:
        await _create_partition(connection, table, number)
    return Chunk(number, from_offset, stored_ms, stored_ms, 0)


async def close_chunk(connection: AsyncConnection, number: int) -> None:
    """Close a chunk for further rows, and update the planner's statistics on it."""
    await connection.execute(update(chunks).where(chunks.c.chunk == number).values(is_open=False))
    await connection.execute(_SUMMARIZE, {"table": f"messages_{number}"})
    for table in PARTITIONED:
        await connection.execute(text(f"ANALYZE {table}_{number}"))


async def grow_chunk(
    connection: AsyncConnection,
    number: int,
    *,
    to_offset: int,
    times_ms: tuple[int, int],
    rows: int,
) -> None:
    """Record an addition to a chunk; *times_ms* are the earliest and the latest of its times.

    In a log that RocketMQ has written, times may decrease.
    """
    earliest, latest = times_ms
    assert earliest <= latest
    assert rows >= 0, "a chunk only grows"
    await connection.execute(
        update(chunks)
        .where(chunks.c.chunk == number)
        .values(
            to_offset=to_offset,
            first_ms=func.least(chunks.c.first_ms, earliest),
            last_ms=func.greatest(chunks.c.last_ms, latest),
            row_count=chunks.c.row_count + rows,
        )
    )


async def cut_chunks(
    connection: AsyncConnection, broker_no: int, build: int, to_offset: int
) -> None:
    """Let a build's chunks, all of which are closed, end at a log offset.

    A chunk that begins there or later stays unchanged. The time of a chunk's last record remains an
    upper bound of its times.
    """
    reaching = select(chunks.c.chunk).where(
        chunks.c.broker_no == broker_no,
        chunks.c.build == build,
        chunks.c.from_offset < to_offset,
        chunks.c.to_offset > to_offset,
    )
    for number in list(await connection.scalars(reaching)):
        for table in (life_events, commits):
            await connection.execute(
                delete(table).where(table.c.chunk == number, table.c.log_offset >= to_offset)
            )
        deleted = await connection.execute(
            delete(messages).where(messages.c.chunk == number, messages.c.log_offset >= to_offset)
        )
        await connection.execute(
            update(chunks)
            .where(chunks.c.chunk == number)
            .values(to_offset=to_offset, row_count=chunks.c.row_count - deleted.rowcount)
        )


async def drop_partitions(connection: AsyncConnection, number: int) -> None:
    """Drop the rows of a chunk; wait for its readers, while others wait for this."""
    for table in PARTITIONED:
        await connection.execute(text(f"DROP TABLE IF EXISTS {table}_{number}"))


async def _create_partition(connection: AsyncConnection, table: str, number: int) -> None:
    # Created first and attached afterwards: this takes far weaker locks than creating it in place.
    # The constraint spares a scan of the rows on attaching.
    name = f"{table}_{number}"
    for statement in (
        f"CREATE TABLE {name} (LIKE {table}, CONSTRAINT of_{name} CHECK (chunk = {number})) "
        f"WITH ({_STORAGE})",
        f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES IN ({number})",
        f"ALTER TABLE {name} DROP CONSTRAINT of_{name}",
    ):
        await connection.execute(text(statement))
