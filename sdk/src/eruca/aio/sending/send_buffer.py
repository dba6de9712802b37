"""The room a producer has for messages that are not acknowledged yet.

Who finds none waits, first come, first served: nobody is let in before those who wait, though there
be room for what is small, or a large message would wait for ever and a sharding key lose its order.
Who is let in takes the room at that moment, and newcomers go on waiting until that task has run: it
goes into its lane first. A message larger than all the room is let in alone.

Concurrency rule: belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from eruca.contract.errors import ClosedError


class SendBuffer:
    """Counts bytes; made with how many there may be.

    Attributes:
        size: Bytes that are taken.
        limit: Up to what size they may be taken at once; below 0 while nobody may.
    """

    __slots__ = ("_is_closed", "_let_in", "_size_max", "_waiters", "limit", "size")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._waiters: OrderedDict[asyncio.Future[None], int] = OrderedDict()  # and their sizes
        self._let_in: set[asyncio.Future[None]] = set()  # they have room, and have not run yet
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
        if self.take_now(size):
            return
        if self._is_closed:
            raise ClosedError("the producer is closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = size
        self._let_in_next()
        is_taken = False
        try:
            if waiter not in self._let_in:
                await waiter
            is_taken = not self._is_closed
        finally:
            self._waiters.pop(waiter, None)
            if waiter in self._let_in:
                self._let_in.remove(waiter)
                self.size -= 0 if is_taken else size
            self._let_in_next()
        if not is_taken:
            raise ClosedError("the producer is closed")

    def give_back(self, size: int) -> None:
        """Give back room."""
        self.size -= size
        self._let_in_next()

    def close(self) -> None:
        """Refuse those who wait and those who come."""
        self._is_closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._let_in_next()

    def _let_in_next(self) -> None:
        """Let in those who wait, in their order, as long as there is room."""
        while self._waiters and not self._is_closed:
            waiter, size = next(iter(self._waiters.items()))
            if not waiter.done():  # else it was cancelled, and its task has not run yet
                if self.size and self.size + size > self._size_max:
                    break
                self.size += size
                self._let_in.add(waiter)
                waiter.set_result(None)
            del self._waiters[waiter]
        is_somebody_first = self._is_closed or self._waiters or self._let_in
        self.limit = -1 if is_somebody_first else self._size_max
