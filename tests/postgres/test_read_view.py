"""A view's snapshot: what it shows is there until it is closed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio.to_thread
import pytest
from sqlalchemy import exc, text

from eruca_postgres.database import Database
from eruca_postgres.migrations import upgrade
from eruca_postgres.settings import sqlalchemy_url
from eruca_query.app import MIGRATIONS
from eruca_query.projection.chunks import ChunkLimits, drop_partitions, open_chunk
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.tables import SCHEMA
from eruca_query.searching.read_view import read_view
from support.postgres import drop_schema

pytestmark = pytest.mark.anyio


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
        chunk = await open_chunk(
            connection, 1, 1, from_offset=0, stored_ms=1, limits=ChunkLimits(10, 10)
        )

    async def drop() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("SET LOCAL lock_timeout = '200ms'"))
            await drop_partitions(connection, chunk.number)

    async with read_view(database, NameNumbers()):
        with pytest.raises(exc.OperationalError, match="lock timeout"):
            await drop()
