"""Local clusters fork their services, but for the tests of what a local cluster does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.forked import forking_clusters

PROGRAMS = ("test_local_cluster.py",)  # where services are started as programs


@pytest.fixture(scope="module", autouse=True)
def _clusters(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.name in PROGRAMS:
        yield
        return
    with forking_clusters():
        yield
