"""The key index, following what is visible: a little later, so that keys are hashed in bulk.

A few records wait for ``INDEX_DELAY_SECONDS`` at the most; many are taken in by whoever publishes
them. Where the disk does not take it, the index stays behind, and it is tried again with what comes
next: nothing but look-ups by key is concerned, and they read what it lacks from the log. When too
much has gathered it lags like a queue (:mod:`.queues.lagging`), and is left alone here.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from eruca_broker.store.dispatcher import Dispatcher

INDEX_DELAY_SECONDS: Final = 0.02  # how long a few records may wait for the key index

logger = structlog.get_logger(__name__)


class IndexFollower:
    """Lets one store's key index catch up."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._timer: asyncio.TimerHandle | None = None
        self._is_failing = False

    def notice(self) -> None:
        """See to it that what has been published meanwhile is indexed soon."""
        if self._timer is None and self._dispatcher.is_index_behind:
            self._timer = asyncio.get_running_loop().call_later(INDEX_DELAY_SECONDS, self.catch_up)

    def catch_up(self) -> None:
        """Index now what is visible, if the disk lets it; that it does not is logged."""
        self.stop()
        if self._dispatcher.is_index_lagging:
            return
        try:
            self._dispatcher.catch_up_index()
        except OSError as error:
            if not self._is_failing:  # said once, not with every write
                logger.warning("key index is behind", reason=error.strerror or str(error))
            self._is_failing = True
        else:
            if self._is_failing:
                logger.info("key index has caught up")
            self._is_failing = False

    def stop(self) -> None:
        """Index nothing by itself, until something is noticed again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
