"""A service is ready while its database is: migrated once, then looked at again and again.

A service that is started before its PostgreSQL waits for it, and one that loses it says so and
refuses requests until it is back; so the two may be started and stopped in any order. Only a schema
that a newer version has made ends the start.

States::

    waiting ──it answers, migrations are run──▶ open ──it does not answer──▶ closed
                                                 ▲───────it answers────────────┘

To answer is to have the schema that work began with, and to take changes. A server that comes back
empty, or restored from a dump, is not worked with: what the service knows from the rows that are
gone would get into the new ones. A further start begins from what is there. One that is the same
and has merely gone back, restored from its files, or a standby that had not got everything, is not
told from one that was away: what services remember of rows ends with the connections, or is
compared with them.

An embedded server that has died is started again, for nobody else would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from eruca.contract.errors import DatabaseUnavailableError
from eruca_chassis.loops import BackgroundLoop
from eruca_chassis.readiness import Readiness
from eruca_chassis.start import StartError
from eruca_postgres.database import Database
from eruca_postgres.embedded import EmbeddedServer
from eruca_postgres.migrations import UnreachableError, upgrade

PERIOD_SECONDS: Final = 1.0  # between two looks
_FIX: Final = "start it, or set DATABASE_URL to one that runs; work goes on when it is back"
_FIX_EMBEDDED: Final = "wait: the service starts its embedded PostgreSQL again"
_LOST: Final = (
    "start this service again, and it makes what is missing; or bring the former database back"
)

_log = structlog.get_logger()


class DatabaseGate:
    """Throws a service's readiness.

    Args:
        database: The service's.
        url: Where it is, as SQLAlchemy takes it.
        versions: The service's migrations.
        server: The embedded server that the database is in, if it is.
        readiness: What is thrown.
        on_migrated: Called once, when the schema is there for the first time: work may begin.
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
        self._schema_id: int | None = None  # of the schema that work began with
        self._fault: str | None = None
        self._loop = BackgroundLoop("database", self._step, period_seconds=PERIOD_SECONDS)

    @property
    def is_open(self) -> bool:
        """Whether the database answered when it was looked at last."""
        return self._is_migrated and self._fault is None

    async def start(self) -> None:
        """Look for the first time, and keep looking.

        Raises:
            StartError: The schema was made by a newer version.
        """
        await self._step()
        self._loop.start()

    async def stop(self) -> None:
        """Look no more."""
        await self._loop.stop()

    async def _step(self) -> None:
        try:
            schema_id = await self._database.check()
            if not self._is_migrated:
                await self._migrate()
            elif schema_id != self._schema_id:
                self._close(f"schema {self._database.schema} is not the one that was there", _LOST)
                return
        except DatabaseUnavailableError as error:
            await self._lack(error.detail, error.fix or _FIX)
        except UnreachableError as error:
            await self._lack(str(error).partition(";")[0], _FIX)
        else:
            self._open()

    async def _lack(self, fault: str, fix: str) -> None:
        """Say that there is no database, and start it again if it is our own and has died.

        Raises:
            StartError: It does not start; the next step tries again.
        """
        if self._server is None:
            self._close(fault, fix)
            return
        self._close(fault, _FIX_EMBEDDED)
        try:
            if await asyncio.to_thread(self._server.revive):
                _log.warning("embedded PostgreSQL had died and was started again")
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
        if self._fault is None:  # said once, not with every look
            _log.error("no database", why=fault, fix=fix)
        self._fault = fault
        self._readiness.not_ready(fault, fix=fix)
