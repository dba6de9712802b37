"""Local clusters fork their services, but for the tests of what a local cluster does.

Tests that start their own brokers get a name server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.forked import forked, forking_clusters

PROGRAMS = ("test_local_cluster.py",)  # where services are started as programs


@pytest.fixture(scope="module", autouse=True)
def _clusters(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.name in PROGRAMS:
        yield
        return
    with forking_clusters():
        yield


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    """Run a name server that does not wait for brokers; return its URL."""
    settings = {
        "ERUCA_NAMESRV_PORT": "0",
        "ERUCA_NAMESRV_SETTLE_SECONDS": "0",
        "ERUCA_NAMESRV_KV_FILE": str(tmp_path / "kv.json"),
    }
    with forked("eruca_namesrv", settings) as process:
        yield process.url
