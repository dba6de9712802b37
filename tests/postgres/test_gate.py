"""A service is ready exactly while its database is there, in whatever order they are started."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text

from eruca.contract.errors import DatabaseUnavailableError
from eruca_chassis.readiness import Readiness
from eruca_chassis.start import StartError
from eruca_postgres.database import Database
from eruca_postgres.embedded import EmbeddedServer
from eruca_postgres.gate import DatabaseGate
from eruca_postgres.settings import sqlalchemy_url
from support.postgres import EXAMPLE, embedded_server, postmaster_pid
from support.waiting import until

pytestmark = pytest.mark.anyio


class Service:
    """The service that the gate opens for."""

    def __init__(self, url: str, server: EmbeddedServer | None = None) -> None:
        self.readiness = Readiness()
        self.starts = 0
        self.database = Database(sqlalchemy_url(url), "gated", connections_max=2)
        self.gate = DatabaseGate(
            self.database,
            sqlalchemy_url(url),
            EXAMPLE,
            server=server,
            readiness=self.readiness,
            on_migrated=self.begin,
        )

    async def begin(self) -> None:
        self.starts += 1


@asynccontextmanager
async def service(url: str, server: EmbeddedServer | None = None) -> AsyncIterator[Service]:
    made = Service(url, server)
    try:
        await made.gate.start()
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


async def test_an_embedded_database_that_dies_is_brought_back() -> None:
    with embedded_server() as server:
        async with service(server.url, server) as running:
            os.kill(postmaster_pid(server), signal.SIGKILL)
            await until(lambda: not running.readiness.is_ready)
            assert "restarts its embedded PostgreSQL" in str(running.readiness.error().fix)

            await until(lambda: running.readiness.is_ready)

            assert await count_things(running.database) == 0
            assert running.starts == 1


async def test_an_embedded_database_that_cannot_be_brought_back_says_why() -> None:
    with embedded_server() as server:
        async with service(server.url, server) as running:
            settings = server._directory / "postgresql.conf"
            good = settings.read_text()
            settings.write_text("nonsense")
            os.kill(postmaster_pid(server), signal.SIGKILL)

            def why() -> str:
                readiness = running.readiness
                return "" if readiness.is_ready else readiness.error().detail

            await until(lambda: f"{server._directory} does not start" in why())
            settings.write_text(good)
            await until(lambda: running.readiness.is_ready)


async def test_a_database_that_comes_back_without_the_tables_is_not_worked_with() -> None:
    with embedded_server() as server:
        async with service(server.url) as running:
            async with running.database.transaction() as connection:
                await connection.execute(text("DROP SCHEMA gated CASCADE"))
            with pytest.raises(DatabaseUnavailableError, match="cannot be used"):
                await count_things(running.database)
            await until(lambda: not running.readiness.is_ready)

            async with service(server.url) as another:
                assert await count_things(another.database) == 0
                await running.gate._step()  # the tables are there again, and others

                assert not running.gate.is_open
                assert "restart this service" in str(running.readiness.error().fix)


async def test_a_database_that_takes_no_changes_is_waited_for() -> None:
    with embedded_server() as server:
        async with service(server.url) as running:
            await set_read_only(server.url, is_on=True)
            await until(lambda: not running.readiness.is_ready)
            with pytest.raises(DatabaseUnavailableError, match="cannot be used"):
                await delete_things(running.database)
            assert "is read-only" in running.readiness.error().detail
            async with service(server.url) as another:
                assert another.starts == 0

                await set_read_only(server.url, is_on=False)
                await until(lambda: running.readiness.is_ready and another.readiness.is_ready)
                await delete_things(running.database)


async def set_read_only(url: str, *, is_on: bool) -> None:
    """Have the server at *url* take no changes, as a standby does, or take them again."""
    database = Database(sqlalchemy_url(url), "public", connections_max=1)
    connections = database.engine.execution_options(isolation_level="AUTOCOMMIT")
    async with connections.connect() as connection:
        value = "on" if is_on else "off"
        await connection.execute(text(f"ALTER SYSTEM SET default_transaction_read_only = {value}"))
        await connection.execute(text("SELECT pg_reload_conf()"))
    await database.close()


async def count_things(database: Database) -> int:
    async with database.transaction() as connection:
        count: int = (await connection.execute(text("SELECT count(*) FROM things"))).scalar_one()
    return count


async def delete_things(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM things"))


async def test_a_schema_of_a_newer_version_ends_the_start(postgres_url: str) -> None:
    async with service(postgres_url) as older, older.database.transaction() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = 'newer'"))

    with pytest.raises(StartError, match="newer version"):
        async with service(postgres_url):
            pass
