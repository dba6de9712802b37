"""One PostgreSQL for all tests of this folder, and a schema for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from eruca_postgres.database import Database
from eruca_postgres.settings import sqlalchemy_url
from support.postgres import embedded_server, fresh_schema


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with embedded_server() as server:
        yield server.url


@pytest.fixture
def alchemy_url(postgres_url: str) -> str:
    return sqlalchemy_url(postgres_url)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    async with fresh_schema(postgres_url) as database:
        yield database
