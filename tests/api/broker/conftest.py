"""A broker for each test, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import client_of, open_broker


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[ServiceApp]:
    async with open_broker(tmp_path / "store") as app:
        yield app


@pytest.fixture
async def client(app: ServiceApp) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        yield client
