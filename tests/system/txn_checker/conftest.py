"""One PostgreSQL for all tests of this folder, and a stage for each that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eruca_postgres.embedded import EmbeddedServer
from eruca_txn_checker.projection.tables import SCHEMA
from support.checker_stage import Stage, checker_stage
from support.postgres import drop_schema, embedded_server


@pytest.fixture(scope="session")
def shared_server() -> Iterator[EmbeddedServer]:
    with embedded_server() as server:
        yield server


@pytest.fixture
def server(shared_server: EmbeddedServer) -> EmbeddedServer:
    """A PostgreSQL that runs, in which there is nothing of ours."""
    shared_server.start()  # a test may have stopped it
    drop_schema(shared_server.url, SCHEMA)
    return shared_server


@pytest.fixture
async def stage(tmp_path: Path, server: EmbeddedServer) -> AsyncIterator[Stage]:
    async with checker_stage(tmp_path, server) as stage:
        yield stage
