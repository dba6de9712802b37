"""Rows of ``life_events``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_postgres.copying import copy_values
from eruca_query.core.life_events import LifeEvent
from eruca_query.core.storable import storable_detail
from eruca_query.core.unique_ids import NO_ID, StoredId, stored_id

_NONE: Final = StoredId(NO_ID, b"")
_COLUMNS: Final = (
    "log_offset",
    "at_ms",
    "queue_offset",
    "waited_at",
    "unique_id",
    "chunk",
    "topic_no",
    "queue_id",
    "broker_no",
    "kind",
    "other_id",
    "detail",
)


def names_in(events: Iterable[LifeEvent]) -> set[str]:
    """Return every topic that *events* name in a place."""
    return {event.place.topic for event in events if event.place is not None}


async def write_life_events(
    connection: AsyncConnection,
    events: Sequence[LifeEvent],
    numbers: Mapping[str, int],
    *,
    broker_no: int,
    chunk: int,
) -> None:
    """Add rows to a chunk."""
    if events:
        rows = (_row(event, numbers, broker_no, chunk) for event in events)
        await copy_values(connection, f"life_events_{chunk}", _COLUMNS, rows)


def _row(
    event: LifeEvent, numbers: Mapping[str, int], broker_no: int, chunk: int
) -> tuple[object, ...]:
    place = event.place
    code, other = stored_id(event.unique_id) if event.unique_id else _NONE
    return (
        event.log_offset,
        event.at_ms,
        None if place is None else place.queue_offset,
        event.waited_at,
        UUID(bytes=code),
        chunk,
        None if place is None else numbers[place.topic],
        None if place is None else place.queue_id,
        broker_no,
        event.kind.value,
        other,
        Jsonb(storable_detail(event.detail)),
    )
