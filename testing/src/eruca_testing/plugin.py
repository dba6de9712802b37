"""The pytest plug-in: fixtures.

What a fixture stands on is imported when a test asks for it: pytest loads this module in every run.
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
    """What the test's broker is set to, by the names of the broker's settings; to be overridden."""
    return {}


@pytest.fixture
def eruca_broker(eruca_broker_settings: Mapping[str, object]) -> Iterator[InMemoryBroker]:
    """A broker in memory with a name server, empty for each test; its clock can be set forward."""
    from eruca_testing.broker import InMemoryBroker

    with InMemoryBroker(eruca_broker_settings) as broker:
        yield broker


@pytest.fixture
def eruca_client(eruca_broker: InMemoryBroker) -> Iterator[eruca.Client]:
    """A client of ``eruca_broker``."""
    import eruca

    with eruca.Client(eruca_broker.namesrv_urls) as client:
        yield client


@pytest.fixture(scope="session")
def eruca_cluster_options() -> ClusterOptions:
    """What the session's cluster consists of, if not one of each service; to be overridden."""
    return {}


@pytest.fixture(scope="session")
def eruca_cluster(eruca_cluster_options: ClusterOptions) -> Iterator[RunningCluster]:
    """A cluster of processes, one of each service, for all tests of the session."""
    from eruca_testing.cluster import RunningCluster

    options: ClusterOptions = {"txn_checkers": 1, "queries": 1, **eruca_cluster_options}
    with RunningCluster(**options) as cluster:
        yield cluster
