"""The loop that fires timers: it sleeps until the next is due, or an earlier one is set.

It never sleeps long, so it detects within a second that the clock was set forward. While the store
refuses writes it waits. Messages that become due meanwhile are delivered late, in order.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from eruca.contract.errors import UnavailableError
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop

SLEEP_SECONDS_MAX: Final = 1.0
SLEEP_SECONDS_MIN: Final = 0.001  # if a due message cannot be delivered now
REFUSED_SECONDS: Final = 0.5  # until the store is tried again

_log = structlog.get_logger()


class TimerLoop:
    """Fires the timers of one store."""

    def __init__(self, store: MessageStore, timers: Timers, clock: Clock) -> None:
        self._store = store
        self._timers = timers
        self._clock = clock
        self._woken = asyncio.Event()
        self._is_refused = False
        self._is_stopping = False
        self._loop = BackgroundLoop("timers", self._step, period_seconds=0)

    def start(self) -> None:
        """Start on the running event loop."""
        self._store.on_timers = self._woken.set
        self._loop.start()

    async def stop(self) -> None:
        """Stop, after the write in progress."""
        self._store.on_timers = lambda: None
        self._is_stopping = True
        self._woken.set()
        await self._loop.stop()

    async def _step(self) -> None:
        self._woken.clear()
        try:
            ended = await self._timers.fire()
        except UnavailableError as error:
            if not self._is_refused:
                _log.warning("delayed messages must wait", reason=error.detail)
            self._is_refused = True
            await self._sleep(REFUSED_SECONDS)
            return
        self._is_refused = False
        if not ended:
            await self._sleep(self._seconds_to_next())

    def _seconds_to_next(self) -> float:
        due_ms = self._store.timers.next_due_ms()
        if due_ms is None:
            return SLEEP_SECONDS_MAX
        seconds = (due_ms - self._clock.now_ms()) / 1000
        return min(max(seconds, SLEEP_SECONDS_MIN), SLEEP_SECONDS_MAX)

    async def _sleep(self, seconds: float) -> None:
        if self._is_stopping:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass  # no event woke it: something is due
