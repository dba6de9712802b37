"""The service that answers as asked for, and a connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.exchanges import (
    Things,
    settings,
)
from support.services import raw_connection, serving


@pytest.fixture
def things() -> Things:
    return Things()


@pytest.fixture
async def connection(
    things: Things,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with (
        serving(things.app, settings()) as (_, address),
        raw_connection(address) as connection,
    ):
        yield connection
