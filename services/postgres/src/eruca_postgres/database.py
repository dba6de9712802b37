"""The database of one service: its connections, and one error for when there is none.

Each service has a schema of its own in the database, named in ``search_path`` of every connection,
so that several share one server without seeing each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from sqlalchemy import exc, pool, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from eruca.contract.errors import DatabaseUnavailableError

CONNECT_SECONDS: Final = 5
POOL_WAIT_SECONDS: Final = 10.0  # for a connection of the pool
TRANSACTION_SECONDS: Final = 30.0  # a server that says nothing for so long is not there
SNAPSHOT_SECONDS: Final = 8.0  # … and for so long where somebody waits for what it says
RETRY_AFTER_SECONDS: Final = 2.0
# Classes of SQLSTATE: no connection, too few resources, an operator, a failing system; and what was
# rolled back for others' sake, which may be tried again.
_UNAVAILABLE: Final = frozenset(("", "08", "53", "57", "58", "40"))
_SHORT: Final = "53"  # of these: too few resources
_FIX_SHORT: Final = "see that it has disk space, memory and connections left; work goes on then"
# A server that answers and is not the one to work with: it takes no changes, as a standby does, or
# has lost our tables.
_WRONG_SERVER: Final = frozenset(("25006", "42P01"))
_LOOK: Final = (
    "SELECT current_setting('transaction_read_only')::bool,"
    " to_regclass('alembic_version')::oid::bigint"
)
# A connection whose other end has vanished without a word is given up soon, not after hours.
_KEEP_ALIVE: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # ms
}


class Database:
    """Connections to one schema.

    Args:
        url: As SQLAlchemy takes it.
        schema: The service's own.
        connections_max: How many are open at a time, beside one that listens for notices.
        transaction_seconds: How long a transaction may take before the server counts as away.
    """

    def __init__(
        self,
        url: str,
        schema: str,
        *,
        connections_max: int,
        transaction_seconds: float = TRANSACTION_SECONDS,
    ) -> None:
        assert schema.isidentifier(), schema
        self.schema = schema
        self._transaction_seconds = transaction_seconds
        self._url = url
        self._connect_args: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            # A look-up is over before a parallel worker would have started.
            "options": f"-c search_path={schema} -c max_parallel_workers_per_gather=0",
            "application_name": f"eruca {schema}",
            **_KEEP_ALIVE,
        }
        self.engine: AsyncEngine = create_async_engine(
            url,
            pool_size=connections_max,
            max_overflow=0,
            pool_timeout=POOL_WAIT_SECONDS,
            pool_pre_ping=True,  # a server that was restarted has closed them all
            connect_args=self._connect_args,
        )
        # The same connections; the driver says it with BEGIN, which takes no further question.
        self._snapshots = self.engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Run the block as one transaction.

        Raises:
            DatabaseUnavailableError: PostgreSQL is not there; nothing has changed, unless the
                connection was lost while committing.
        """
        async with self._transaction(self.engine, self._transaction_seconds) as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Run the block as one transaction that sees one state, and can change nothing.

        Raises:
            DatabaseUnavailableError: PostgreSQL is not there.
        """
        seconds = min(SNAPSHOT_SECONDS, self._transaction_seconds)
        async with self._transaction(self._snapshots, seconds) as connection:
            yield connection

    @asynccontextmanager
    async def _transaction(
        self, engine: AsyncEngine, seconds: float
    ) -> AsyncIterator[AsyncConnection]:
        try:
            async with asyncio.timeout(seconds), engine.begin() as connection:
                yield connection
        except exc.DBAPIError as error:
            if is_unavailable(error):
                raise unavailable(error) from error
            raise
        except (exc.TimeoutError, OSError) as error:
            raise unavailable(error) from error

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Give a connection of its own on which NOTIFYs of *channel* arrive.

        Raises:
            DatabaseUnavailableError: PostgreSQL is not there.
        """
        engine = create_async_engine(
            self._url,
            poolclass=pool.NullPool,
            isolation_level="AUTOCOMMIT",  # within a transaction nothing would arrive
            connect_args=self._connect_args,
        )
        try:
            async with engine.connect() as connection:
                quoted = engine.dialect.identifier_preparer.quote(channel)
                await connection.execute(text(f"LISTEN {quoted}"))
                driver = (await connection.get_raw_connection()).driver_connection
                assert isinstance(driver, psycopg.AsyncConnection)
                yield driver
        except exc.DBAPIError as error:
            if is_unavailable(error):
                raise unavailable(error) from error
            raise
        except OSError as error:
            raise unavailable(error) from error
        finally:
            await engine.dispose()

    async def check(self) -> int | None:
        """Return what tells the schema from any that is made later; None where there is none.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer, or not soon; or it takes no
                changes.
        """
        try:
            async with asyncio.timeout(CONNECT_SECONDS), self.transaction() as connection:
                found = await connection.execute(text(_LOOK))
        except TimeoutError as error:
            raise unavailable(error) from error
        is_read_only: bool
        schema_id: int | None
        is_read_only, schema_id = found.one()
        if is_read_only:
            raise DatabaseUnavailableError(
                "PostgreSQL takes no changes: it is a standby, or set to be read-only",
                fix="set DATABASE_URL to one that takes them; work goes on when it does",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        return schema_id

    async def close(self) -> None:
        """Close all connections."""
        await self.engine.dispose()


def is_unavailable(error: exc.DBAPIError) -> bool:
    """Tell whether *error* says that the server is not there, rather than what it thinks of us."""
    state = _sql_state(error)
    return (
        error.connection_invalidated
        or state in _WRONG_SERVER
        or (isinstance(error, exc.OperationalError) and state[:2] in _UNAVAILABLE)
    )


def _sql_state(error: Exception) -> str:
    return getattr(getattr(error, "orig", error), "sqlstate", None) or ""


def unavailable(error: Exception) -> DatabaseUnavailableError:
    """Return what callers are told when the server is not there, or cannot do what it should."""
    reason = str(getattr(error, "orig", None) or error).strip().splitlines() or ["not in time"]
    state = _sql_state(error)
    is_short = state.startswith(_SHORT)
    is_there = is_short or state in _WRONG_SERVER
    return DatabaseUnavailableError(
        f"PostgreSQL {'cannot be worked with' if is_there else 'does not answer'}: {reason[0]}",
        fix=_FIX_SHORT if is_short else None,
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
