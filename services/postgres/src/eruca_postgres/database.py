"""The database of one service: its connections, and one error for all kinds of unavailability.

Each service has its own schema in the database. Every connection has it in its ``search_path``, so
several services can share one server without seeing each other.
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
POOL_WAIT_SECONDS: Final = 10.0  # for a connection from the pool
TRANSACTION_SECONDS: Final = 30.0  # a server that is silent for so long counts as unreachable
SNAPSHOT_SECONDS: Final = 8.0  # the same for reads, whose client is waiting
RETRY_AFTER_SECONDS: Final = 2.0
# SQLSTATE classes: no connection, too few resources, operator intervention, system error; and
# transactions rolled back for the sake of others, which may be retried.
_UNAVAILABLE: Final = frozenset(("", "08", "53", "57", "58", "40"))
_SHORT: Final = "53"  # one of these: too few resources
FIX_SHORT: Final = "give it free disk space, memory and connections; work resumes then"
# The server answers but is the wrong one: it is read-only, as a standby is, or our tables are
# missing.
_WRONG_SERVER: Final = frozenset(("25006", "42P01"))
_LOOK: Final = (
    "SELECT current_setting('transaction_read_only')::bool,"
    " to_regclass('alembic_version')::oid::bigint"
)
# Detect a peer that vanished without closing the connection within seconds, not hours.
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
        schema: The service's own schema.
        connections_max: Maximum of open connections, beside one that listens for notices.
        transaction_seconds: Time after which a transaction counts as failed.
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
            # Look-ups are short: a parallel worker would take longer to start than to run one.
            "options": f"-c search_path={schema} -c max_parallel_workers_per_gather=0",
            "application_name": f"eruca {schema}",
            **_KEEP_ALIVE,
        }
        self.engine: AsyncEngine = create_async_engine(
            url,
            pool_size=connections_max,
            max_overflow=0,
            pool_timeout=POOL_WAIT_SECONDS,
            pool_pre_ping=True,  # a restart of the server closes all pooled connections
            connect_args=self._connect_args,
        )
        # The same pool. The driver sends these options with BEGIN, so they cost no round trip.
        self._snapshots = self.engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    @asynccontextmanager
    async def transaction(self, seconds: float | None = None) -> AsyncIterator[AsyncConnection]:
        """Run the block as one transaction.

        Args:
            seconds: Time after which it counts as failed, instead of that of all transactions. Long
                work needs it. A server that has vanished is noticed earlier.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unreachable; nothing has changed, unless the
                connection was lost during the commit.
        """
        limit = self._transaction_seconds if seconds is None else seconds
        async with self._transaction(self.engine, limit) as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Run the block as one read-only transaction that sees one state.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unreachable.
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
        """Open a separate connection that receives the NOTIFYs of *channel*.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unreachable.
        """
        engine = create_async_engine(
            self._url,
            poolclass=pool.NullPool,
            isolation_level="AUTOCOMMIT",  # inside a transaction no notification would arrive
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
        """Return an id of the current schema, which a recreated schema never has; None if missing.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer in time, or it is read-only.
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
                "PostgreSQL is read-only: it is a standby, or configured so",
                fix="set DATABASE_URL to a writable server; work resumes when it is writable",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        return schema_id

    async def close(self) -> None:
        """Close all connections."""
        await self.engine.dispose()


def is_unavailable(error: exc.DBAPIError) -> bool:
    """Return whether *error* means that the server is unavailable rather than our statement bad."""
    state = _sql_state(error)
    return (
        error.connection_invalidated
        or state in _WRONG_SERVER
        or (isinstance(error, exc.OperationalError) and state[:2] in _UNAVAILABLE)
    )


def is_shortage(error: Exception) -> bool:
    """Return whether the server answered that it is short of disk space, memory or connections."""
    return _sql_state(error).startswith(_SHORT)


def _sql_state(error: Exception) -> str:
    return getattr(getattr(error, "orig", error), "sqlstate", None) or ""


def unavailable(error: Exception) -> DatabaseUnavailableError:
    """Convert a driver's error to the one that callers see when the server is unavailable."""
    reason = str(getattr(error, "orig", None) or error).strip().splitlines() or ["timed out"]
    state = _sql_state(error)
    is_short = is_shortage(error)
    is_there = is_short or state in _WRONG_SERVER
    return DatabaseUnavailableError(
        f"PostgreSQL {'cannot be used' if is_there else 'does not answer'}: {reason[0]}",
        fix=FIX_SHORT if is_short else None,
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
