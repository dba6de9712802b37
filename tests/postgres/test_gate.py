"""A service is ready exactly while its database is there, in whatever order they are started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text

from eruca_chassis.readiness import Readiness
from eruca_chassis.start import StartError
from eruca_postgres.database import Database
from eruca_postgres.gate import DatabaseGate
from eruca_postgres.settings import sqlalchemy_url
from support.postgres import EXAMPLE, embedded_server
from support.waiting import until

pytestmark = pytest.mark.anyio


class Service:
    """What the gate opens for."""

    def __init__(self, url: str) -> None:
        self.readiness = Readiness()
        self.starts = 0
        self.database = Database(sqlalchemy_url(url), "gated", connections_max=2)
        self.gate = DatabaseGate(
            self.database,
            sqlalchemy_url(url),
            EXAMPLE,
            readiness=self.readiness,
            on_migrated=self.begin,
        )

    async def begin(self) -> None:
        self.starts += 1


@asynccontextmanager
async def service(url: str) -> AsyncIterator[Service]:
    made = Service(url)
    await made.gate.start()
    try:
        yield made
    finally:
        await made.gate.stop()
        await made.database.close()


async def test_a_service_that_starts_first_waits_for_its_database() -> None:
    with embedded_server() as server:
        url = server.url
        server.stop()
        async with service(url) as waiting:
            assert waiting.starts == 0
            error = waiting.readiness.error()
            assert "PostgreSQL does not answer" in error.detail
            assert "DATABASE_URL" in str(error.fix)

            server.start()
            await until(lambda: waiting.readiness.is_ready)

            assert waiting.starts == 1


async def test_a_database_that_goes_away_is_told_of_and_comes_back() -> None:
    with embedded_server() as server:
        async with service(server.url) as running:
            assert running.readiness.is_ready

            server.stop()
            await until(lambda: not running.readiness.is_ready)
            assert not running.gate.is_open
            assert "PostgreSQL does not answer" in running.readiness.error().detail

            server.start()
            await until(lambda: running.readiness.is_ready)
            assert running.starts == 1


async def test_a_schema_of_a_newer_version_ends_the_start(postgres_url: str) -> None:
    async with service(postgres_url) as older, older.database.transaction() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = 'newer'"))

    with pytest.raises(StartError, match="newer version"):
        await Service(postgres_url).gate.start()
