"""Let the key index follow the visible log, a little later, so that keys are hashed in bulk.

A few records wait for at most ``INDEX_DELAY_SECONDS``; many are indexed at once when they are
published. If the disk refuses, the index stays behind, and the next records retry. Only look-ups by
key are affected, and they read the missing records from the log. If too many gather, the index lags
like a queue (:mod:`eruca_broker.store.queues.lagging`), and is no longer handled here.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from eruca_broker.store.projecting.dispatcher import Dispatcher

INDEX_DELAY_SECONDS: Final = 0.02  # the longest delay of a few records

logger = structlog.get_logger(__name__)


class IndexFollower:
    """Keeps one store's key index up to date."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._timer: asyncio.TimerHandle | None = None
        self._is_failing = False

    def notice(self) -> None:
        """Have newly published records indexed soon."""
        if self._timer is None and self._dispatcher.is_index_behind:
            self._timer = asyncio.get_running_loop().call_later(INDEX_DELAY_SECONDS, self.catch_up)

    def catch_up(self) -> None:
        """Index the visible records now; log a failure of the disk."""
        self.stop()
        if self._dispatcher.is_index_lagging:
            return
        try:
            self._dispatcher.catch_up_index()
        except OSError as error:
            if not self._is_failing:  # logged once, not with every write
                logger.warning("key index is behind", reason=error.strerror or str(error))
            self._is_failing = True
        else:
            if self._is_failing:
                logger.info("key index has caught up")
            self._is_failing = False

    def stop(self) -> None:
        """Stop until new records are noticed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
