"""A client of a broker whose log is projected."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import eruca
from support.in_process_cluster import in_process_cluster


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[eruca.AsyncClient]:
    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        yield client
