"""Notices: committed ones arrive at every instance, and an instance knows when none do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from eruca_postgres.database import Database
from eruca_postgres.notices import Notices, notify
from support.postgres import fresh_schema
from support.waiting import until

pytestmark = pytest.mark.anyio


class Heard:
    """Notices that one instance has received."""

    def __init__(self, database: Database, name: str, *, probe_seconds: float = 0.2) -> None:
        self.notices: list[str] = []
        self.gaps: list[bool] = []  # of each, whether notices arrive since
        self.hearing = Notices(
            database,
            name,
            on_notice=self.notices.append,
            on_gap=lambda: self.gaps.append(self.hearing.is_listening),
            probe_seconds=probe_seconds,
            retry_seconds=0.01,
        )


@asynccontextmanager
async def hearing(database: Database, name: str = "me") -> AsyncIterator[Heard]:
    heard = Heard(database, name, probe_seconds=60)
    heard.hearing.start()
    try:
        await until(lambda: heard.hearing.is_listening)
        yield heard
    finally:
        await heard.hearing.stop()


async def tell(database: Database, *notices: str) -> None:
    async with database.transaction() as connection:
        for notice in notices:
            await notify(connection, notice)


async def end_listening(database: Database) -> None:
    """End the listening connections of *database*'s schema, as an operator or a restart does."""
    async with database.transaction() as connection:
        ended = await connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE application_name = 'eruca {database.schema}' AND query LIKE 'LISTEN %'"
            )
        )
        assert ended.all(), "nobody was listening"


async def test_every_instance_hears_what_one_commits_and_nothing_else(database: Database) -> None:
    async with hearing(database, "one") as one, hearing(database, "two") as two:
        with pytest.raises(RuntimeError):
            await _tell_and_fail(database, "rolled back")
        await tell(database, "checks", "checks", "due")

        await until(lambda: "due" in one.notices and "due" in two.notices)

        assert one.notices == two.notices == ["checks", "due"]


async def _tell_and_fail(database: Database, notice: str) -> None:
    async with database.transaction() as connection:
        await notify(connection, notice)
        raise RuntimeError


async def test_another_schema_of_the_database_is_not_heard(
    database: Database, postgres_url: str
) -> None:
    async with fresh_schema(postgres_url) as other, hearing(database) as heard:
        await tell(other, "theirs")
        await tell(database, "ours")

        await until(lambda: heard.notices)

        assert heard.notices == ["ours"]


async def test_a_lost_connection_is_a_gap_and_is_replaced(database: Database) -> None:
    async with hearing(database) as heard:
        await end_listening(database)
        await until(lambda: heard.gaps == [True, False, True])
        await tell(database, "after")

        await until(lambda: heard.notices == ["after"])


class Pooled(Database):
    """Behind a pooler that hands connections out by the transaction: LISTEN is of no effect."""

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with super().listening(f"{channel}_elsewhere") as driver:
            yield driver


async def test_a_pooler_that_swallows_notices_is_found_out(
    alchemy_url: str, database: Database
) -> None:
    pooled = Pooled(alchemy_url, database.schema, connections_max=2)
    deaf = Heard(pooled, "deaf", probe_seconds=0.02)
    deaf.hearing.start()
    async with hearing(database) as control:
        # Its probes go out, so it has tried; and each probe that is not heard starts again.
        await until(lambda: deaf.hearing._is_said)
        await tell(database, "notice")
        await until(lambda: control.notices)

    assert not deaf.hearing.is_listening
    assert (deaf.notices, deaf.gaps) == ([], [])
    await deaf.hearing.stop()
    await pooled.close()


async def test_stopping_leaves_no_connection(database: Database) -> None:
    async with hearing(database):
        pass

    async with database.transaction() as connection:
        left = await connection.scalar(
            text(
                "SELECT count(*) FROM pg_stat_activity"
                f" WHERE application_name = 'eruca {database.schema}' AND query LIKE 'LISTEN %'"
            )
        )
    assert left == 0
