"""Rows of damaged records: kept beside the messages' rows, as long as those of the same time."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_query.core.damaged_records import DamagedRecord
from eruca_query.core.storable import storable
from eruca_query.projection.builds import Build
from eruca_query.projection.tables import chunks, damaged


async def write_damaged(
    connection: AsyncConnection, build: Build, records: Sequence[DamagedRecord]
) -> None:
    """Write the damaged records of a block."""
    if not records:
        return
    rows = [
        {
            "broker_no": build.broker_no,
            "build": build.number,
            "log_offset": record.log_offset,
            "size": record.size,
            "fault": storable(record.fault),
            "after_ms": record.after_ms,
            "before_ms": record.before_ms,
            # A text from damaged bytes may contain anything.
            "topic": _bytes(record.topic),
            "queue_id": record.queue_id,
            "queue_offset": record.queue_offset,
            "unique_id": _bytes(record.unique_id),
        }
        for record in records
    ]
    await connection.execute(insert(damaged).on_conflict_do_nothing(), rows)


async def drop_damaged(connection: AsyncConnection, chunk: int) -> None:
    """Drop the damaged records in a chunk, or before it, of its build."""
    its = chunks.c
    await connection.execute(
        delete(damaged).where(
            tuple_(damaged.c.broker_no, damaged.c.build) == tuple_(its.broker_no, its.build),
            its.chunk == chunk,
            damaged.c.log_offset < its.to_offset,
        )
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogatepass")
