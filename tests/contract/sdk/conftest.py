"""A cluster of one name server and two brokers for a module's tests, and a client for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

import eruca
from support.in_process_cluster import InProcessCluster, in_process_cluster

_numbers = count()


@pytest.fixture(scope="module")
async def cluster(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[InProcessCluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with in_process_cluster(directory) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: InProcessCluster) -> AsyncIterator[eruca.AsyncClient]:
    async with eruca.AsyncClient(cluster.namesrv_urls) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name for a topic or a group that no other test uses."""
    return f"name-{next(_numbers)}"


@pytest.fixture
async def topic(client: eruca.AsyncClient, name: str) -> str:
    """A topic of two queues on each of two brokers."""
    await client.admin.create_topic(name, queue_count=2)
    return name
