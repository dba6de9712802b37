"""An etcd, an API server and files beside PostgreSQL; each test has its own store in one."""

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
from support.kubernetes import KubernetesServer, kubernetes_server
from support.postgres import drop_schema

_numbers: Final = count()


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        yield server


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    with kubernetes_server(tmp_path_factory.mktemp("kubernetes")) as server:
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
    if request.param == "kubernetes":
        account: KubernetesServer = request.getfixturevalue("kubernetes")
        return account.settings(f"test-{next(_numbers)}-")
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
