"""Queues that a broker refuses now: set aside and retried together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from eruca.core.messages.message_queue import MessageQueue

LOOK_SECONDS: Final = 3.0  # until refused queues are retried


class QueuesAside:
    """The queues that are set aside, all until the same retry.

    Args:
        look_again: Called when the queues should be retried.
    """

    def __init__(self, look_again: Callable[[], None]) -> None:
        self.queues: set[MessageQueue] = set()
        self._look_again = look_again
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def add(self, queues: Iterable[MessageQueue]) -> None:
        """Set *queues* aside as well."""
        self.queues |= set(queues)
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Cancel the next retry."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        self.queues.clear()
        self._look_again()
