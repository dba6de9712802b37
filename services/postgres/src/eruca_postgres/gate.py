"""Tie a service's readiness to its database: migrate it once, then check it periodically.

A service that is started before its PostgreSQL waits for it. One that loses it reports that, and
refuses requests until it is back. So the two may be started and stopped in any order. Only a schema
of a newer version makes the start fail.

States::

    waiting ──it answers, migrations are run──▶ open ──it does not answer──▶ closed
                                                 ▲───────it answers────────────┘

To answer means to be writable and to have the schema with which the work began. A server that
returns empty, or restored from a dump, is not used: the service's memory of rows that are gone
would corrupt the new ones. A restart of the service begins with the data that is there.

A server with the same schema but older data looks as if it had only been unreachable: one restored
from its files, or a standby that lagged. That is safe: what services remember about rows either
ends with the connections or is compared with the rows.

An embedded server that has died is restarted here, because nobody else would do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from eruca.contract.errors import DatabaseUnavailableError
from eruca_chassis.loops import BackgroundLoop
from eruca_chassis.readiness import Readiness
from eruca_chassis.start import StartError
from eruca_postgres.database import Database
from eruca_postgres.migrations import UnreachableError, fix_of, upgrade

if TYPE_CHECKING:
    from eruca_postgres.embedded import EmbeddedServer

PERIOD_SECONDS: Final = 1.0  # between two checks
_RESUMES: Final = "work resumes when it is back"
_FIX_EMBEDDED: Final = "wait: the service restarts its embedded PostgreSQL"
_LOST: Final = "restart this service to create what is missing, or bring the former database back"

_log = structlog.get_logger()


class DatabaseGate:
    """Sets a service's readiness.

    Args:
        database: The service's database.
        url: Its URL, as SQLAlchemy takes it.
        versions: The service's migrations.
        server: The embedded server that holds the database, if it is embedded.
        readiness: The readiness to set.
        on_migrated: Called once, when the schema is first available: work may begin.
    """

    def __init__(
        self,
        database: Database,
        url: str,
        versions: Path,
        *,
        server: EmbeddedServer | None = None,
        readiness: Readiness,
        on_migrated: Callable[[], Awaitable[None]],
    ) -> None:
        self._database = database
        self._url = url
        self._versions = versions
        self._server = server
        self._readiness = readiness
        self._on_migrated = on_migrated
        self._is_migrated = False
        self._schema_id: int | None = None  # of the schema with which the work began
        self._fault: str | None = None
        self._loop = BackgroundLoop("database", self._step, period_seconds=PERIOD_SECONDS)

    @property
    def is_open(self) -> bool:
        """True if the database answered at the last check."""
        return self._is_migrated and self._fault is None

    async def start(self) -> None:
        """Make the first check, and start the periodic ones.

        Raises:
            StartError: The schema was made by a newer version.
        """
        await self._step()
        self._loop.start()

    async def stop(self) -> None:
        """Stop the checks."""
        await self._loop.stop()

    async def _step(self) -> None:
        try:
            schema_id = await self._database.check()
            if not self._is_migrated:
                await self._migrate()
            elif schema_id != self._schema_id:
                self._close(f"schema {self._database.schema} was replaced by another one", _LOST)
                return
        except DatabaseUnavailableError as error:
            await self._lack(error.detail, error.fix or f"{fix_of(error.detail)}; {_RESUMES}")
        except UnreachableError as error:
            detail, _, fix = str(error).partition("; ")
            await self._lack(detail, f"{fix}; {_RESUMES}")
        else:
            self._open()

    async def _lack(self, fault: str, fix: str) -> None:
        """Report that there is no database; restart it if it is embedded and has died.

        Raises:
            StartError: It does not start; the next step tries again.
        """
        if self._server is None:
            self._close(fault, fix)
            return
        self._close(fault, _FIX_EMBEDDED)
        try:
            if await asyncio.to_thread(self._server.revive):
                _log.warning("embedded PostgreSQL had died and was restarted")
        except StartError as error:
            self._close(str(error), _FIX_EMBEDDED)
            raise

    async def _migrate(self) -> None:
        await asyncio.to_thread(upgrade, self._url, self._database.schema, self._versions)
        self._schema_id = await self._database.check()
        await self._on_migrated()
        self._is_migrated = True

    def _open(self) -> None:
        if self._fault is not None:
            _log.info("database is back")
        self._fault = None
        self._readiness.ready()

    def _close(self, fault: str, fix: str) -> None:
        if self._fault is None:  # log it once, not with every check
            _log.error("no database", why=fault, fix=fix)
        self._fault = fault
        self._readiness.not_ready(fault, fix=fix)
