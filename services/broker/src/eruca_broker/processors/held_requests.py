"""Holding requests: the table of held pulls, and one timer for all of them.

A held request costs its place under ``held_requests_max`` and a few objects that remember the
request, never its own timer. A request that is a coroutine also costs a future, and a task that
detects that its client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from eruca.contract.errors import OverloadedError
from eruca_broker.core.consuming.held_pulls import (
    Examine,
    HeldPull,
    HeldPulls,
    Position,
    Queue,
    examine_once,
)
from eruca_chassis.clock import Clock

RETRY_AFTER_SECONDS: Final = 1.0
LOG_FEED: Final[Queue] = ("", 0)  # no topic has an empty name: stands for the log itself


class HeldRequests:
    """Held requests, and their conditions. All methods are called on the loop's thread."""

    def __init__(self, size_max: int, clock: Clock, examine: Examine) -> None:
        self._table = HeldPulls(size_max)
        self._clock = clock
        self._examine = examine
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._table)

    @property
    def size_max(self) -> int:
        """Return the maximum number of held requests."""
        return self._table.size_max

    @property
    def is_closed(self) -> bool:
        """Return True if requests are no longer held."""
        return self._closed

    def hold(
        self, positions: list[Position], wait_seconds: float, wake: Callable[[], None]
    ) -> HeldPull:
        """Call *wake* once something happens at one of *positions*, or after *wait_seconds*.

        The positions are moved beyond arrivals that their filters exclude. *wake* is called at most
        once, and not after :meth:`release`; it must not raise.

        Raises:
            OverloadedError: The maximum of held requests is reached.
        """
        assert not self._closed
        if self._table.is_full:
            raise OverloadedError(
                f"held_requests_max: {self._table.size_max} requests are held",
                fix="wait a moment; or pull many queues in one request, POST /v1/pull",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        pull = HeldPull(positions, self._clock.monotonic() + wait_seconds, wake)
        self._table.hold(pull)
        self._set_timer(pull.deadline)
        return pull

    def release(self, pull: HeldPull) -> None:
        """Stop holding *pull*; harmless if it has been woken."""
        self._table.release(pull)

    async def wait(
        self,
        positions: list[Position],
        wait_seconds: float,
        gone: Callable[[], Awaitable[object]],
    ) -> bool:
        """Wait as :meth:`hold` does, for a request that is a coroutine.

        Args:
            positions: The places to wait at; each queue once.
            wait_seconds: The maximum time.
            gone: Returns when the client has disconnected.

        Returns:
            Whether the client is still connected.

        Raises:
            OverloadedError: The maximum of held requests is reached.
        """
        if self._closed:
            return True
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()
        pull = self.hold(positions, wait_seconds, lambda: _resolve(woken, is_there=True))
        watch = loop.create_task(_watch(gone, woken))
        try:
            return await woken
        finally:
            self.release(pull)
            watch.cancel()

    def arrived(self, queues: Iterable[Queue]) -> None:
        """Wake the requests that wait for *queues*, which have new messages, or for the log."""
        if len(self._table):
            self._table.arrived(queues, examine_once(self._examine))
            self._table.arrived((LOG_FEED,), self._examine)

    def topic_gone(self, topic: str) -> None:
        """Wake all requests that wait for a queue of *topic*, which has been deleted."""
        self._table.gone(self._table.queues_of(topic))

    def close(self) -> None:
        """Wake all requests, and hold no more: the broker is stopping."""
        self._closed = True
        self._table.wake_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        delay = max(deadline - self._clock.monotonic(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)
        self._timer_at = deadline

    def _expire(self) -> None:
        self._timer = None
        self._table.expire(self._clock.monotonic())
        deadline = self._table.next_deadline()
        if deadline is not None:
            self._set_timer(deadline)


async def _watch(gone: Callable[[], Awaitable[object]], woken: asyncio.Future[bool]) -> None:
    await gone()
    _resolve(woken, is_there=False)


def _resolve(woken: asyncio.Future[bool], *, is_there: bool) -> None:
    if not woken.done():
        woken.set_result(is_there)
