"""Chunks: the partitions of the large tables, filled one after the other.

Their states are those of :mod:`eruca_query.core.chunk_states`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_query.core.chunk_states import Chunk, ChunkLimits, begins_indexed
from eruca_query.projection.tables import (
    MESSAGE_INDEXES,
    PARTITIONED,
    chunks,
    commits,
    life_events,
    messages,
)

# Chunks only grow, are analyzed when they are settled, and are dropped as a whole.
_STORAGE: Final = "autovacuum_enabled = false"
_SUMMARIZE: Final = text(
    "SELECT brin_summarize_new_values(c.oid) FROM pg_index i JOIN pg_class c ON c.oid = indexrelid "
    "JOIN pg_am a ON a.oid = c.relam WHERE amname = 'brin' AND indrelid = CAST(:table AS regclass)"
)


async def open_chunk(
    connection: AsyncConnection,
    broker_no: int,
    build: int,
    *,
    from_offset: int,
    stored_ms: int,
    behind_bytes: int,
    limits: ChunkLimits,
) -> tuple[Chunk, int | None]:
    """Return the chunk for records from a log offset on; begin a new one if the last is full.

    Also return the number of the chunk that was closed, if there is one. The caller settles it.

    Args:
        connection: Has the transaction that writes the records.
        broker_no: The broker's number.
        build: The build to which the records belong.
        from_offset: The log offset of the first one.
        stored_ms: The time at which it was stored.
        behind_bytes: The size of the log after these records.
        limits: Decide whether the last chunk is full, and whether a new one is bare.
    """
    chunk = await last_chunk(connection, broker_no, build)
    if chunk is not None:
        if not chunk.is_full(limits, stored_ms):
            return chunk, None
        await close_chunk(connection, chunk)
    is_indexed = begins_indexed(limits, behind_bytes)
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
            is_indexed=is_indexed,
        )
        .returning(chunks.c.chunk)
    )
    assert isinstance(number, int)
    for table in PARTITIONED:
        await _create_partition(connection, table, number)
    if is_indexed:
        await _create_indexes(connection, number)
    closed = None if chunk is None else chunk.number
    return Chunk(number, from_offset, stored_ms, 0, is_indexed), closed


async def last_chunk(connection: AsyncConnection, broker_no: int, build: int) -> Chunk | None:
    """Return the open chunk of a build, locked for this transaction; None if there is none."""
    its = chunks.c
    found = await connection.execute(
        select(its.chunk, its.from_offset, its.first_ms, its.row_count, its.is_indexed)
        .where(its.broker_no == broker_no, its.build == build, its.is_open)
        .with_for_update()
    )
    row = found.first()
    return None if row is None else Chunk(*row)


async def close_chunk(connection: AsyncConnection, chunk: Chunk) -> None:
    """Close a chunk for further rows. It stays as it is until it is settled."""
    await connection.execute(
        update(chunks).where(chunks.c.chunk == chunk.number).values(is_open=False)
    )


async def settle_rows(connection: AsyncConnection, number: int, *, is_indexed: bool) -> None:
    """Build the indexes of a bare chunk, or add the new rows of an indexed one to the summaries.

    Readers continue meanwhile. The caller has locked the chunk's row, so nobody writes. Without
    statistics the planner would not use the index by log offset.
    """
    if is_indexed:
        await connection.execute(_SUMMARIZE, {"table": f"messages_{number}"})
    else:
        await _create_indexes(connection, number)
        await connection.execute(
            update(chunks).where(chunks.c.chunk == number).values(is_indexed=True)
        )
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


async def _create_indexes(connection: AsyncConnection, number: int) -> None:
    for name, definition in MESSAGE_INDEXES.items():
        await connection.execute(
            text(f"CREATE INDEX messages_{number}_{name} ON messages_{number} {definition}")
        )
