"""An empty schema and a cluster for each test of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca_query.projection.tables import SCHEMA
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.postgres import drop_schema
from support.query_services import Queried, queried_by


@pytest.fixture
def database_url(postgres_url: str) -> str:
    drop_schema(postgres_url, SCHEMA)
    return postgres_url


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    async with in_process_cluster(tmp_path, brokers=2) as cluster:
        yield cluster


@pytest.fixture
async def queried(cluster: InProcessCluster, database_url: str) -> AsyncIterator[Queried]:
    async with queried_by(cluster, database_url) as queried:
        yield queried
