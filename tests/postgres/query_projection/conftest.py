"""A read model without rows, and a log."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio.to_thread
import pytest

from eruca_postgres.database import Database
from eruca_postgres.migrations import upgrade
from eruca_postgres.settings import sqlalchemy_url
from eruca_query.projection.tables import SCHEMA
from eruca_query.wiring import MIGRATIONS
from support.postgres import drop_schema
from support.read_models import T0, Log, ReadModel


@pytest.fixture
async def model(postgres_url: str) -> AsyncIterator[ReadModel]:
    """A read model with its empty tables."""
    url = sqlalchemy_url(postgres_url)
    drop_schema(postgres_url, SCHEMA)
    await anyio.to_thread.run_sync(upgrade, url, SCHEMA, MIGRATIONS)
    database = Database(url, SCHEMA, connections_max=4)
    yield ReadModel(database)
    await database.close()


@pytest.fixture
def log() -> Log:
    """A log of twelve messages, stored within a minute."""
    log = Log()
    for number in range(12):
        log.append(at_ms=T0 + number * 5_000)
    return log
