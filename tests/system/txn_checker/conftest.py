"""One PostgreSQL for all tests of this folder, and one stage for the tests of each module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from eruca_postgres.embedded import EmbeddedServer
from eruca_txn_checker.projection.tables import SCHEMA
from support.checker_stage import Stage, checker_stage
from support.postgres import drop_schema, embedded_server


@pytest.fixture(scope="session")
def shared_server() -> Iterator[EmbeddedServer]:
    with embedded_server() as server:
        yield server


@pytest.fixture(scope="module")
async def stage(
    tmp_path_factory: pytest.TempPathFactory, shared_server: EmbeddedServer
) -> AsyncIterator[Stage]:
    """A stage for the tests of a module; each leaves everything running."""
    shared_server.start()
    drop_schema(shared_server.url, SCHEMA)
    async with checker_stage(tmp_path_factory.mktemp("stage"), shared_server) as stage:
        yield stage
