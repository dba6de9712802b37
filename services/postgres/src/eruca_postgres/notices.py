"""Notices: what a transaction of one instance tells all instances once it is committed.

A notice is PostgreSQL's NOTIFY, sent within a transaction, so nobody hears of rows that are not
there. Each instance listens on one connection of its own::

    deaf ──connected, LISTEN, own probe heard──▶ listening ──connection or probe lost──▶ deaf

A probe is a notice to oneself through another connection, sent again and again. Only a probe that
was heard proves that notices arrive: a pooler that hands connections out by the transaction accepts
LISTEN and delivers nothing. While an instance is deaf its loops poll quickly. Each change of the
state wakes them, since a notice may have been lost before it.

Invariant: a notice whose transaction commits while an instance is listening wakes that instance, or
the instance is deaf within two probes. Notices carry no data: a wake says where to look, and the
rows say what there is. So a lost one costs time, up to the slow poll, and nothing else.

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

PROBE_SECONDS: Final = 10.0  # from one probe to the next
RETRY_SECONDS: Final = 2.0  # after the connection was lost, or a probe

_PROBE: Final = "probe "
_log = structlog.get_logger()


async def notify(connection: AsyncConnection, notice: str) -> None:
    """Tell all instances *notice* when *connection*'s transaction commits; repeating it is free."""
    # The channel is the schema's name: channels belong to the whole database.
    await connection.execute(select(func.pg_notify(func.current_schema(), notice)))


class Notices:
    """Hears the notices of all instances of a service.

    Args:
        database: The service's.
        name: This instance's; no other has it.
        on_notice: Called with each notice.
        on_gap: Called when notices begin or cease to arrive: some may have been lost.
        probe_seconds: From one probe to the next.
        retry_seconds: From a failure to the next attempt.
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
        self.is_listening = False  # notices arrive, as the last probe has proved
        self._database = database
        self._probe = _PROBE + name
        self._on_notice = on_notice
        self._on_gap = on_gap
        self._probe_seconds = probe_seconds
        self._is_said = False  # that notices do not arrive
        self._is_stopping = False
        self._hearing: asyncio.Task[None] | None = None
        self._loop = BackgroundLoop("notices", self._step, period_seconds=retry_seconds)

    def start(self) -> None:
        """Begin to listen."""
        self._loop.start()

    async def stop(self) -> None:
        """Listen no more."""
        self._is_stopping = True
        if self._hearing is not None:
            self._hearing.cancel()
        await self._loop.stop()

    async def _step(self) -> None:
        """Listen until the connection is lost or probes are."""
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
            assert error is not None  # listening has no other end
            raise error
        if not self._is_said:  # once, not with every attempt
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
                        fix="give DATABASE_URL a server, or a pooler that keeps sessions",
                    )

    async def _hear_probe(self, driver: psycopg.AsyncConnection[Any]) -> bool:
        """Pass notices on until the next probe is due; tell whether this one was heard."""
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
    """Return the notices that have arrived; never waits.

    Raises:
        DatabaseUnavailableError: The connection is lost.
    """
    try:
        return [notice.payload async for notice in driver.notifies(timeout=0)]
    except psycopg.OperationalError as error:
        raise unavailable(error) from error


async def _until_readable(descriptor: int, seconds: float) -> None:
    """Wait until there is something to read, or *seconds* are over.

    The driver would look ten times a second, for the sake of Ctrl-C.
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
