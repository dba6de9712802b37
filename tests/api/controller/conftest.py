"""A PostgreSQL, an etcd and a file; each test has a store of its own in one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca_controller.store.tables import SCHEMA
from support.controllers import STORES, controller
from support.etcd import EtcdServer, etcd_server
from support.postgres import drop_schema, embedded_server

_numbers: Final = count()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with embedded_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        yield server


@pytest.fixture(params=STORES)
def store_settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of controllers over one empty store."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        drop_schema(url, SCHEMA)
        return {"store": "postgres", "DATABASE_URL": url}
    if request.param == "etcd":
        server = request.getfixturevalue("etcd")
        prefix = f"/test-{next(_numbers)}/"
        return {"store": "etcd", "etcd_urls": server.url, "etcd_prefix": prefix}
    return {"store": "file", "file": tmp_path / "controller" / "groups.json"}


@pytest.fixture
async def client(store_settings: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    """A controller over each store in turn."""
    async with controller(store_settings) as client:
        yield client


@pytest.fixture
async def file_client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A controller over a file, for what does not depend on the store."""
    async with controller({"store": "file", "file": tmp_path / "groups.json"}) as client:
        yield client
