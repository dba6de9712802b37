"""The migration to chunks with indexes of their own, beside readers and writers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread
import pytest
from sqlalchemy import NullPool, create_engine, text

from eruca_postgres.database import Database
from eruca_postgres.migrations import UnreachableError, upgrade
from eruca_postgres.settings import sqlalchemy_url
from eruca_query.projection.tables import MESSAGE_INDEXES, PARTITIONED, SCHEMA
from eruca_query.wiring import MIGRATIONS
from support.patience import PATIENCE_SECONDS
from support.postgres import drop_schema, embedded_server
from support.read_models import ReadModel

pytestmark = pytest.mark.anyio

CLOSED, OPEN = ((is_open, True, len(MESSAGE_INDEXES)) for is_open in (False, True))
CHECKS = "SELECT count(*) FROM pg_constraint WHERE conname ~ '^of_'"
PROVEN = f"{CHECKS} AND convalidated"
WAITS = (
    "SELECT 1 FROM pg_locks WHERE NOT granted AND relation IN "
    "('messages'::regclass, 'chunks'::regclass)"
)
SCANS = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname ~ '^messages_[12]$'"
OTHERS = (
    "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'client backend' "
    "AND datname = current_database() AND application_name NOT LIKE 'eruca %'"
)
IS_INDEXED_DEFAULT = (
    "SELECT column_default FROM information_schema.columns "
    "WHERE table_schema = current_schema AND table_name = 'chunks' AND column_name = 'is_indexed'"
)


def execute(url: str, *statements: str) -> None:
    """Execute statements in the schema, each on its own."""
    options = {"options": f"-c search_path={SCHEMA}"}
    engine = create_engine(
        url, poolclass=NullPool, connect_args=options, isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))


def fill_as_before(url: str, directory: Path, *, chunk_count: int) -> None:
    """Make the tables of the version before, with a message in each chunk; the last is open."""
    for number in range(1, 5):
        [file] = MIGRATIONS.glob(f"000{number}_*.py")
        shutil.copy(file, directory)
    upgrade(url, SCHEMA, directory)
    numbers = f"generate_series(1, {chunk_count}) number"
    execute(
        url,
        "INSERT INTO chunks (broker_no, generation, from_offset, to_offset, first_ms, last_ms, "
        f"row_count, is_open) SELECT 1, 1, number, number, 1, 1, 1, number = {chunk_count} "
        f"FROM {numbers}",
        *(
            f"CREATE TABLE {table}_{number} PARTITION OF {table} FOR VALUES IN ({number})"
            for table in PARTITIONED
            for number in range(1, chunk_count + 1)
        ),
        "INSERT INTO messages SELECT number + 2, 1, 1, 1, gen_random_uuid(), number, 1, 1, 1, 5, "
        f"1, 0, '', '', '' FROM {numbers}",
    )


@pytest.fixture
def older(postgres_url: str, tmp_path: Path) -> str:
    """A database with two chunks of the version before."""
    drop_schema(postgres_url, SCHEMA)
    url = sqlalchemy_url(postgres_url)
    fill_as_before(url, tmp_path, chunk_count=2)
    return url


async def migrate(url: str) -> None:
    await anyio.to_thread.run_sync(upgrade, url, SCHEMA, MIGRATIONS)


@asynccontextmanager
async def read_model(url: str) -> AsyncIterator[ReadModel]:
    database = Database(url, SCHEMA, connections_max=4)
    try:
        yield ReadModel(database)
    finally:
        await database.close()


async def test_rows_keep_their_indexes_and_chunks_that_an_earlier_version_begins_have_none(
    older: str,
) -> None:
    await migrate(older)

    async with read_model(older) as model:
        assert await model.index_states() == [CLOSED, OPEN]
        assert await model.select("SELECT count(*), sum(log_offset) FROM messages") == [(2, 7)]
        assert await model.select(IS_INDEXED_DEFAULT) == [("false",)]
        assert await model.select(CHECKS) == [(0,)]


async def test_rows_are_read_while_others_read_and_a_reader_that_goes_on_is_not_locked_out(
    older: str,
) -> None:
    """A reader locks the messages first and then the chunks."""
    async with read_model(older) as model:
        async with model.database.transaction() as reader:
            await reader.execute(text("LOCK TABLE ONLY messages IN ACCESS SHARE MODE"))
            migrating = asyncio.create_task(migrate(older))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await model.select(WAITS):
                    assert not migrating.done()
            proven = await reader.scalar(text(PROVEN))
            rows = await reader.scalar(text("SELECT sum(row_count) FROM chunks"))
        await migrating
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await model.select(OTHERS):  # a session that has ended has reported its scans
                pass
        scans = await model.select(SCANS)

    assert (proven, rows) == (2, 2)
    assert scans == [(5,), (5,)]  # one for each index, one to validate, none to attach


async def test_a_writer_that_began_before_is_waited_for_and_may_begin_a_chunk(older: str) -> None:
    """A writer locks the chunks first, and attaches a chunk to the messages later."""
    async with read_model(older) as model:
        async with model.database.transaction() as writer:
            await writer.execute(text("UPDATE chunks SET row_count = 2 WHERE chunk = 2"))
            migrating = asyncio.create_task(migrate(older))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await model.select(WAITS):
                    assert not migrating.done()
            await writer.execute(text("LOCK TABLE ONLY messages IN SHARE UPDATE EXCLUSIVE MODE"))
        await migrating

        assert await model.index_states() == [CLOSED, OPEN]


async def test_a_migration_that_died_is_continued(older: str) -> None:
    execute(
        older, "ALTER TABLE messages_1 ADD CONSTRAINT of_messages_1 CHECK (chunk = 1) NOT VALID"
    )

    await migrate(older)

    async with read_model(older) as model:
        assert await model.index_states() == [CLOSED, OPEN]
        assert await model.select(CHECKS) == [(0,)]


async def test_more_chunks_than_the_server_can_lock_are_refused_with_a_setting_that_is_enough(
    tmp_path: Path,
) -> None:
    with embedded_server() as server:
        few = ("max_connections = 20", "max_locks_per_transaction = 10")
        execute(sqlalchemy_url(server.url), *(f"ALTER SYSTEM SET {setting}" for setting in few))
        server.stop()
        server.start()
        url = sqlalchemy_url(server.url)
        fill_as_before(url, tmp_path, chunk_count=40)

        with pytest.raises(UnreachableError, match=r"set max_locks_per_transaction to 14") as error:
            await migrate(url)
        assert "migrating 40 chunks needs 280 locks, and it has room for 200; set" in str(
            error.value
        )
        execute(url, "ALTER SYSTEM SET max_locks_per_transaction = 14")
        server.stop()
        server.start()
        await migrate(sqlalchemy_url(server.url))

        async with read_model(sqlalchemy_url(server.url)) as model:
            assert await model.index_states() == [CLOSED] * 39 + [OPEN]
