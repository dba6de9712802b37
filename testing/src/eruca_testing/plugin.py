"""The pytest plug-in: fixtures.

A fixture imports its dependencies only when a test uses it, because pytest loads this module in
every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import eruca
    from eruca_testing import ClusterOptions, InMemoryBroker, RunningCluster


@pytest.fixture
def eruca_broker_settings() -> Mapping[str, object]:
    """Return settings for the test's broker, by name; override this fixture."""
    return {}


@pytest.fixture
def eruca_broker(eruca_broker_settings: Mapping[str, object]) -> Iterator[InMemoryBroker]:
    """Yield a broker in memory with a name server, empty for each test, with a settable clock."""
    from eruca_testing.broker import InMemoryBroker

    with InMemoryBroker(eruca_broker_settings) as broker:
        yield broker


@pytest.fixture
def eruca_client(eruca_broker: InMemoryBroker) -> Iterator[eruca.Client]:
    """Yield a client of ``eruca_broker``."""
    import eruca

    with eruca.Client(eruca_broker.namesrv_urls) as client:
        yield client


@pytest.fixture(scope="session")
def eruca_cluster_options() -> ClusterOptions:
    """Return options for the session's cluster, if not one of each service; override this."""
    return {}


@pytest.fixture(scope="session")
def eruca_cluster(eruca_cluster_options: ClusterOptions) -> Iterator[RunningCluster]:
    """Yield a cluster of processes, one of each service, shared by all tests of the session."""
    from eruca_testing.cluster import RunningCluster

    options: ClusterOptions = {"txn_checkers": 1, "queries": 1, **eruca_cluster_options}
    with RunningCluster(**options) as cluster:
        yield cluster
