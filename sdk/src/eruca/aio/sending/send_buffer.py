"""The buffer limit of a producer: the number of unacknowledged bytes.

If the buffer is full, senders wait in order of arrival. A newcomer never overtakes a waiter, even
if its message is small enough. Otherwise a large message could wait for ever, and a sharding key
could lose its order. A waiter's bytes are counted at the moment when it is admitted. Newcomers wait
until the admitted task has run, because it must be first in its lane. A message larger than the
whole buffer is admitted alone.

Concurrency rule: belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from eruca.contract.errors import ClosedError


class SendBuffer:
    """Counts bytes, up to a limit.

    Attributes:
        size: Bytes in use.
        limit: Size up to which bytes can be taken at once; negative while no sender may.
    """

    __slots__ = ("_is_closed", "_let_in", "_size_max", "_waiters", "limit", "size")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._waiters: OrderedDict[asyncio.Future[None], int] = OrderedDict()  # and their sizes
        self._let_in: set[asyncio.Future[None]] = set()  # admitted, and have not run yet
        self._is_closed = False
        self.size = 0
        self.limit = size_max

    def take_now(self, size: int) -> bool:
        """Take *size* bytes if they are free and no sender waits."""
        if self.size + size > self.limit:
            return False
        self.size += size
        return True

    async def take(self, size: int) -> None:
        """Take *size* bytes as soon as they are free.

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
        """Return *size* bytes to the buffer."""
        self.size -= size
        self._let_in_next()

    def close(self) -> None:
        """Refuse waiting and future senders."""
        self._is_closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._let_in_next()

    def _let_in_next(self) -> None:
        """Admit waiting senders in order, as long as there is room."""
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
