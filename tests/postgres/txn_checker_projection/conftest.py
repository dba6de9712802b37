"""A schema with the tables of the checker, and the fold that fills it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio.to_thread
import pytest

from eruca_postgres.database import Database
from eruca_postgres.migrations import upgrade
from eruca_postgres.settings import sqlalchemy_url
from eruca_txn_checker.projection.tables import SCHEMA
from eruca_txn_checker.wiring import MIGRATIONS
from support.check_rows import Folder
from support.postgres import drop_schema


@pytest.fixture
async def rows(postgres_url: str) -> AsyncIterator[Database]:
    """A database with the checker's empty tables."""
    url = sqlalchemy_url(postgres_url)
    drop_schema(postgres_url, SCHEMA)
    await anyio.to_thread.run_sync(upgrade, url, SCHEMA, MIGRATIONS)
    database = Database(url, SCHEMA, connections_max=4)
    yield database
    await database.close()


@pytest.fixture
def folder(rows: Database) -> Folder:
    return Folder(rows)
