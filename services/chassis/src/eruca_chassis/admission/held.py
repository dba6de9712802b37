"""Held requests: requests kept open until there is news (long polling), with a limit.

A service takes a place, registers it at the source of the news, and waits::

    with places.place() as place:
        watchers.add(place)
        while not (answer := look()):
            if await place.wait(remaining_seconds, receive) is not Release.NEWS:
                break

Each place costs memory, so their number is limited: the next request gets 429. A place is released
by news, a time-out, its client's disconnect, or shutdown. The code that wakes it need not know
which came first.

Thousands may wait for the same news, and answering all of them takes seconds. So they are woken a
few at a time (:class:`Waking`), and other requests are answered in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from types import TracebackType
from typing import Final, Self

from eruca.contract.errors import OverloadedError
from eruca_chassis.asgi import Receive

WAKE_COUNT_MAX: Final = 16  # places woken per turn of the event loop; their answers take some ms


class Release(Enum):
    """The reason why a held request continues."""

    NEWS = "news"
    EXPIRED = "expired"
    CLIENT_GONE = "client gone"
    STOPPING = "stopping"


class HeldPlace:
    """One held request; created by :meth:`HeldPlaces.place`, and left with its ``with`` block."""

    __slots__ = ("_owner", "_released", "_waiter", "_watch")

    def __init__(self, owner: HeldPlaces) -> None:
        self._owner = owner
        self._released: Release | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Announce news; if no ``wait`` is in progress, the next one returns at once."""
        self._release(Release.NEWS)

    async def wait(self, seconds: float, receive: Receive | None = None) -> Release:
        """Wait for news for up to *seconds*; return at once if there was some since the last wait.

        With *receive*, whose body must have been read, a disconnect of the client ends the wait.
        """
        if self._released is None and self._owner.is_stopping:
            self._released = Release.STOPPING
        if self._released is None and seconds > 0:
            if receive is not None and self._watch is None:
                self._watch = asyncio.create_task(self._notice_leaving(receive))
            await self._hold(seconds)
        released = self._released or Release.EXPIRED
        if released is Release.NEWS:
            self._released = None
        return released

    async def _hold(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self._end_wait)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    async def _notice_leaving(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._release(Release.CLIENT_GONE)

    def _release(self, why: Release) -> None:
        if self._released in (None, Release.NEWS):
            self._released = why
        self._end_wait()

    def _end_wait(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._owner.leave(self)


class HeldPlaces:
    """All held requests of one service."""

    def __init__(self, *, maximum: int, limit_name: str = "held_requests_max") -> None:
        self.maximum = maximum
        self.is_stopping = False
        self._limit_name = limit_name
        self._places: set[HeldPlace] = set()

    def __len__(self) -> int:
        """Return the number of held requests."""
        return len(self._places)

    def place(self) -> HeldPlace:
        """Take a place.

        Raises:
            OverloadedError: All places are taken.
        """
        if len(self._places) >= self.maximum:
            raise OverloadedError(
                f"{self._limit_name}, {self.maximum}, is reached: no more requests are held",
                retry_after_seconds=1,
            )
        place = HeldPlace(self)
        self._places.add(place)
        return place

    def leave(self, place: HeldPlace) -> None:
        """Give back a place."""
        self._places.discard(place)

    def release_all(self) -> None:
        """Release every held request and hold no more, for shutdown."""
        self.is_stopping = True
        for place in self._places:
            place._release(Release.STOPPING)  # private: only the owner may use this reason


class Waking:
    """Wakes places in the order given, a few per turn of the event loop."""

    def __init__(self) -> None:
        self._places: dict[HeldPlace, None] = {}  # an ordered set; places already left are harmless

    def wake(self, places: Iterable[HeldPlace]) -> None:
        """Wake *places*; the first ones at once, if none is queued."""
        is_idle = not self._places
        self._places.update(dict.fromkeys(places))
        if is_idle:
            self._wake_some()

    def _wake_some(self) -> None:
        for place in list(islice(self._places, WAKE_COUNT_MAX)):
            del self._places[place]
            place.wake()
        if self._places:
            asyncio.get_running_loop().call_soon(self._wake_some)
