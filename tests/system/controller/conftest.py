"""A PostgreSQL, an etcd and an API server; tests of this folder may kill the first two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eruca_postgres.embedded import EmbeddedServer
from support.etcd import EtcdServer, etcd_server
from support.kubernetes import KubernetesServer, kubernetes_server
from support.postgres import embedded_server


@pytest.fixture(scope="session")
def shared_server() -> Iterator[EmbeddedServer]:
    with embedded_server() as server:
        yield server


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        yield server


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    with kubernetes_server(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server
