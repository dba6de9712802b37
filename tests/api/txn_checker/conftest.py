"""An empty schema and a broker for each test of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca_txn_checker.projection.tables import SCHEMA
from support.checkers import Checked, checked_by
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.postgres import drop_schema


@pytest.fixture
def database_url(postgres_url: str) -> str:
    drop_schema(postgres_url, SCHEMA)
    return postgres_url


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    async with in_process_cluster(tmp_path, brokers=1) as cluster:
        yield cluster


@pytest.fixture
async def checked(cluster: InProcessCluster, database_url: str) -> AsyncIterator[Checked]:
    async with checked_by(cluster, database_url) as checked:
        yield checked
