"""Tie a controller's readiness to a store that it does not start itself: etcd, or a file.

PostgreSQL has a gate of its own (:mod:`eruca_postgres.gate`), which also migrates the schema.
"""

from __future__ import annotations

from typing import Final

import structlog

from eruca.contract.errors import ArbiterUnavailableError
from eruca_chassis.loops import BackgroundLoop
from eruca_chassis.readiness import Readiness
from eruca_controller.store.seam import GroupStore

PERIOD_SECONDS: Final = 1.0  # between two checks

_log = structlog.get_logger()


class StoreGate:
    """Sets a controller's readiness: ready while the store answers."""

    def __init__(self, store: GroupStore, readiness: Readiness) -> None:
        self._store = store
        self._readiness = readiness
        self._fault: str | None = None
        self._loop = BackgroundLoop("store", self._step, period_seconds=PERIOD_SECONDS)

    async def start(self) -> None:
        """Make the first check, and start the periodic ones."""
        await self._step()
        self._loop.start()

    async def stop(self) -> None:
        """Stop the checks."""
        await self._loop.stop()

    async def _step(self) -> None:
        try:
            await self._store.check()
        except ArbiterUnavailableError as error:
            if self._fault is None:  # log it once, not with every check
                _log.error("no store", why=error.detail, fix=error.fix)
            self._fault = error.detail
            self._readiness.not_ready(error.detail, fix=error.fix)
            return
        if self._fault is not None:
            _log.info("store is back")
        self._fault = None
        self._readiness.ready()
