"""The room a producer has for messages that are not acknowledged yet.

Who finds none waits, first come, first served. A message larger than all the room is let in alone.

Concurrency rule: belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque

from eruca.contract.errors import ClosedError


class SendBuffer:
    """Counts bytes; made with how many there may be.

    Attributes:
        size: Bytes that are taken.
        limit: Up to what size they may be taken at once; below 0 while nobody may.
    """

    __slots__ = ("_is_closed", "_size_max", "_waiters", "limit", "size")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        self.size = 0
        self.limit = size_max

    def take_now(self, size: int) -> bool:
        """Take room for *size* bytes if it is there and nobody waits for some."""
        if self.size + size > self.limit:
            return False
        self.size += size
        return True

    async def take(self, size: int) -> None:
        """Take room for *size* bytes once it is there.

        Raises:
            ClosedError: The producer is closed.
        """
        while not self._is_closed and self.size and self.size + size > self._size_max:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._set_limit()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.cancelled():
                    self._waiters.remove(waiter)
                    self._set_limit()
                else:
                    self._wake_next()
                raise
        if self._is_closed:
            raise ClosedError("the producer is closed")
        self.size += size
        self._wake_next()  # there may be room for more than one

    def give_back(self, size: int) -> None:
        """Give back room."""
        self.size -= size
        self._wake_next()

    def close(self) -> None:
        """Refuse those who wait and those who come."""
        self._is_closed = True
        self._set_limit()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _wake_next(self) -> None:
        while self._waiters and self.size < self._size_max:
            waiter = self._waiters.popleft()
            self._set_limit()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_limit(self) -> None:
        self.limit = -1 if self._is_closed or self._waiters else self._size_max
