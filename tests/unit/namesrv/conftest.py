"""A route table without brokers."""

from __future__ import annotations

import pytest

from eruca_namesrv.route_table import RouteTable


@pytest.fixture
def table() -> RouteTable:
    return RouteTable(brokers_max=100, topics_max=100)
