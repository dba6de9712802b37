"""One PostgreSQL for all tests of this folder that need rows, and a topic for each test."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from eruca_postgres.embedded import EmbeddedServer
from support.postgres import embedded_server


@pytest.fixture(scope="session")
def shared_server() -> Iterator[EmbeddedServer]:
    with embedded_server() as server:
        yield server


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses."""
    return re.sub(r"[^a-z]+", "-", str(request.node.name).lower())[-60:].strip("-")
