"""A schema for each test of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eruca_postgres.database import Database
from eruca_postgres.settings import sqlalchemy_url
from support.postgres import fresh_schema


@pytest.fixture
def alchemy_url(postgres_url: str) -> str:
    return sqlalchemy_url(postgres_url)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    async with fresh_schema(postgres_url) as database:
        yield database
