"""Notices: announcements from a transaction of one instance to all instances, sent at its commit.

A notice is PostgreSQL's NOTIFY, sent within a transaction, so nobody hears of rows that do not
exist. Each instance listens on one connection of its own::

    deaf ──connected, LISTEN, own probe heard──▶ listening ──connection or probe lost──▶ deaf

A probe is a notice to oneself through another connection, sent periodically. Only a received probe
proves that notices arrive: a pooler that assigns connections per transaction accepts LISTEN but
delivers nothing. While an instance is deaf its loops poll quickly. Each change of the state wakes
them, because a notice may have been lost before it.

Invariant: a notice whose transaction commits while an instance is listening wakes that instance, or
the instance is deaf within two probes. Notices carry no data: a notice says where to look, and the
rows say the rest. So a lost notice costs time, up to the slow poll, and nothing else.

Source: PostgreSQL 18, NOTIFY; psycopg 3.3, ``AsyncConnection.notifies``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import psycopg
import structlog
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import DatabaseUnavailableError
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.database import Database, unavailable

PROBE_SECONDS: Final = 10.0  # between two probes
RETRY_SECONDS: Final = 2.0  # after the connection or a probe was lost

_PROBE: Final = "probe "
_log = structlog.get_logger()


async def notify(connection: AsyncConnection, notice: str) -> None:
    """Send *notice* to all instances when *connection*'s transaction commits; repeats are free."""
    # The channel is named after the schema, because channels belong to the whole database.
    await connection.execute(select(func.pg_notify(func.current_schema(), notice)))


class Notices:
    """Receives the notices of all instances of a service.

    Args:
        database: The service's database.
        name: This instance's unique name.
        on_notice: Called with each notice.
        on_gap: Called when notices begin or stop arriving: some may have been lost.
        probe_seconds: Time between two probes.
        retry_seconds: Time from a failure to the next attempt.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        on_notice: Callable[[str], None],
        on_gap: Callable[[], None],
        probe_seconds: float = PROBE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.is_listening = False  # whether notices arrive, as proved by the last probe
        self._database = database
        self._probe = _PROBE + name
        self._on_notice = on_notice
        self._on_gap = on_gap
        self._probe_seconds = probe_seconds
        self._is_said = False  # whether the failure has been logged
        self._is_stopping = False
        self._hearing: asyncio.Task[None] | None = None
        self._loop = BackgroundLoop("notices", self._step, period_seconds=retry_seconds)

    def start(self) -> None:
        """Start listening."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop listening."""
        self._is_stopping = True
        if self._hearing is not None:
            self._hearing.cancel()
        await self._loop.stop()

    async def _step(self) -> None:
        """Listen until the connection or a probe is lost."""
        if self._is_stopping:
            return
        self._hearing = asyncio.create_task(self._hear(), name="listening")
        try:
            await asyncio.wait([self._hearing])
        finally:
            self._hearing.cancel()
            self._turn(is_listening=False)
        if self._hearing.cancelled():
            return
        error = self._hearing.exception()
        if not isinstance(error, DatabaseUnavailableError):
            assert error is not None  # listening ends only with an error
            raise error
        if not self._is_said:  # log it once, not with every attempt
            self._is_said = True
            _log.warning("no notices; PostgreSQL is polled instead", why=error.detail)

    async def _hear(self) -> None:
        async with self._database.listening(self._database.schema) as driver:
            while True:
                async with self._database.transaction() as connection:
                    await notify(connection, self._probe)
                if not await self._hear_probe(driver):
                    raise DatabaseUnavailableError(
                        "notifications do not arrive",
                        fix="set DATABASE_URL to a server, or to a pooler that keeps sessions",
                    )

    async def _hear_probe(self, driver: psycopg.AsyncConnection[Any]) -> bool:
        """Forward notices until the next probe is due; return whether this probe arrived."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._probe_seconds
        is_heard = False
        while (left := ends_at - loop.time()) > 0:
            for notice in await _arrived(driver):
                if notice == self._probe:
                    is_heard = True
                    self._turn(is_listening=True)
                elif not notice.startswith(_PROBE):
                    self._on_notice(notice)
            await _until_readable(driver.fileno(), left)
        return is_heard

    def _turn(self, *, is_listening: bool) -> None:
        if is_listening == self.is_listening:
            return
        self.is_listening = is_listening
        if is_listening and self._is_said:
            self._is_said = False
            _log.info("notices arrive again")
        self._on_gap()


async def _arrived(driver: psycopg.AsyncConnection[Any]) -> list[str]:
    """Return the notices that have arrived, without waiting.

    Raises:
        DatabaseUnavailableError: The connection is lost.
    """
    try:
        return [notice.payload async for notice in driver.notifies(timeout=0)]
    except psycopg.OperationalError as error:
        raise unavailable(error) from error


async def _until_readable(descriptor: int, seconds: float) -> None:
    """Wait until there is something to read, or *seconds* have passed.

    The driver itself would poll ten times a second, to react to Ctrl-C.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        async with asyncio.timeout(seconds):
            await readable.wait()
    except TimeoutError:
        pass
    finally:
        loop.remove_reader(descriptor)
