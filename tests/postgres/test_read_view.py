"""A view's snapshot: what it shows is there until it is closed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio.to_thread
import pytest
from sqlalchemy import exc, text

from eruca_postgres.database import Database
from eruca_postgres.migrations import upgrade
from eruca_postgres.settings import sqlalchemy_url
from eruca_query.core.chunk_states import ChunkLimits
from eruca_query.projection.chunks import drop_partitions, grow_chunk, open_chunk
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.tables import SCHEMA, brokers, builds
from eruca_query.searching.read_view import read_view
from eruca_query.wiring import MIGRATIONS
from support.postgres import drop_schema

pytestmark = pytest.mark.anyio

LIMITS = ChunkLimits(rows=1, span_ms=1, far_bytes=1, near_bytes=0)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    drop_schema(postgres_url, SCHEMA)
    url = sqlalchemy_url(postgres_url)
    await anyio.to_thread.run_sync(upgrade, url, SCHEMA, MIGRATIONS)
    database = Database(url, SCHEMA, connections_max=4)
    yield database
    await database.close()


async def test_chunks_are_not_dropped_under_a_view_even_before_it_looks_into_them(
    database: Database,
) -> None:
    async with database.transaction() as connection:
        chunk, _ = await open_chunk(
            connection, 1, 1, from_offset=0, stored_ms=1, behind_bytes=0, limits=LIMITS
        )

    async def drop() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("SET LOCAL lock_timeout = '200ms'"))
            await drop_partitions(connection, chunk.number)

    async with read_view(database, NameNumbers()):
        with pytest.raises(exc.OperationalError, match="lock timeout"):
            await drop()


async def test_behind_an_offset_there_are_no_chunks_that_end_before_it(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(brokers.insert().values(broker_name="broker-a"))
        serving = {"is_serving": True, "from_offset": 0, "log_offset": 30}
        await connection.execute(builds.insert().values(broker_no=1, build=1, **serving))
        numbers = []
        for begin in (0, 10, 20):
            chunk, _ = await open_chunk(
                connection,
                1,
                1,
                from_offset=begin,
                stored_ms=begin,
                behind_bytes=0,
                limits=LIMITS,
            )
            times = (begin, begin + 9)
            await grow_chunk(connection, chunk.number, to_offset=begin + 10, times_ms=times, rows=1)
            numbers.append(chunk.number)

    async with read_view(database, NameNumbers()) as view:
        behind = [await view.spans(broker_no=1, from_offset=offset) for offset in (0, 9, 10, 15)]

    assert [len(spans) for spans in behind] == [3, 3, 2, 2]
    assert {span.chunk for span in behind[-1]} == set(numbers[1:])
