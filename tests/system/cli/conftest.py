"""The command line, beside a cluster for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eruca_testing import RunningCluster
from support.command_line import Eruca


@pytest.fixture(scope="module")
def namesrv_url() -> Iterator[str]:
    with RunningCluster(brokers=2) as cluster:
        yield cluster.namesrv_urls[0]


@pytest.fixture
def eruca(namesrv_url: str) -> Eruca:
    return Eruca(namesrv_url)
