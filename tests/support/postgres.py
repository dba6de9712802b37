"""A real PostgreSQL for tests, one per test process, and a fresh schema for each who asks."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import anyio.to_thread
import psutil
from sqlalchemy import NullPool, create_engine, text

from eruca_postgres.database import Database
from eruca_postgres.embedded import EmbeddedServer
from eruca_postgres.migrations import upgrade
from eruca_postgres.settings import sqlalchemy_url
from support.patience import PATIENCE_SECONDS

EXAMPLE: Final = Path(__file__).parent / "migrations_example"
_numbers: Final = count()


@contextmanager
def reachable_directory() -> Iterator[Path]:
    """Make a directory that the user gets to as whom PostgreSQL runs under root.

    Those that pytest makes are closed to other users, again with every pytest that starts.
    """
    with tempfile.TemporaryDirectory(prefix="eruca-postgres-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@contextmanager
def embedded_server() -> Iterator[EmbeddedServer]:
    """Run a server whose data goes with it."""
    with reachable_directory() as directory, EmbeddedServer(directory / "data") as server:
        yield server


def kill_server(server: EmbeddedServer) -> None:
    """Kill all of a server's processes at once; ``start`` starts it again, and it recovers."""
    postmaster = psutil.Process(postmaster_pid(server))
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(processes, timeout=PATIENCE_SECONDS)


def postmaster_pid(server: EmbeddedServer) -> int:
    """Return which process the server is, or was, as its own file says."""
    return int((server._directory / "postmaster.pid").read_text().split()[0])


def drop_schema(url: str, schema: str) -> None:
    """Delete a service's tables on the server at *url*: much cheaper than a new database."""
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))


@asynccontextmanager
async def fresh_schema(url: str) -> AsyncIterator[Database]:
    """Open a schema that nobody has used, with the example's tables."""
    schema = f"example_{next(_numbers)}"
    await anyio.to_thread.run_sync(upgrade, sqlalchemy_url(url), schema, EXAMPLE)
    database = Database(sqlalchemy_url(url), schema, connections_max=4)
    try:
        yield database
    finally:
        await database.close()
