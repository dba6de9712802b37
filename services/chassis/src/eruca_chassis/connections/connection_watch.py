"""All connections of one server: how many there are, what they have not read, and for how long.

One sweep per second looks at every connection, which costs a request nothing: a connection found in
the same unfinished state for longer than it may be is cut, and one that nothing has been asked on
for the keep-alive time is closed. Transports that say they are full are added up at once; beyond
``unread_size_max`` the one that has been full longest is cut, so that a stuck reader harms only
itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from eruca.contract.errors import ErucaError, RequestError


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may cost; the meaning of each is the setting's of the same name."""

    connections_max: int
    request_seconds: float
    unread_seconds: float
    unread_size_max: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a client has yet to do: to read an answer, or else to send the rest of its request."""

    unread_size: int  # bytes; 0: it is the request that is not there yet
    request: object  # its latest; held here, so that no later one can be taken for it

    def is_still(self, later: Unfinished) -> bool:
        """Tell whether the client has done nothing until *later*."""
        return self.request is later.request and self.unread_size == later.unread_size


class WatchedConnection(Protocol):
    """A connection, as far as it is watched."""

    def unread_size(self) -> int:
        """Return how many bytes are still to be read by the client."""
        ...

    def unfinished_state(self) -> Unfinished | None:
        """Return what is being waited for from the client, or None for nothing."""
        ...

    def close_idle(self, now: float) -> None:
        """Close the connection if nothing has been asked on it for the keep-alive time."""
        ...

    def cut(self, why: str) -> None:
        """Drop the connection with whatever the client has not read."""
        ...

    def refuse(self, error: ErucaError) -> None:
        """Answer with a problem and close; or cut where an answer has begun."""
        ...


class ConnectionWatch:
    """The connections of one server."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.connections: set[WatchedConnection] = set()
        self.unread_size = 0  # bytes in transports that said they are full
        self.is_stopping = False  # whether each connection ends with its next answer
        self.is_away = False  # whether each is cut as it is made, having been accepted just before
        self._unread: dict[WatchedConnection, int] = {}  # longest full first
        self._unfinished: dict[WatchedConnection, tuple[Unfinished, float]] = {}  # and since when
        self._has_lost = asyncio.Event()  # a connection, since somebody looked

    def filled(self, connection: WatchedConnection) -> None:
        """Note that a transport is full, and cut the longest full ones if all are too much."""
        size = connection.unread_size()
        self._unread[connection] = size
        self.unread_size += size
        while self.unread_size > self.limits.unread_size_max:
            slowest = next(iter(self._unread))
            self.drained(slowest)
            slowest.cut("unread_size_max is reached, and it has been stuck longest")

    def drained(self, connection: WatchedConnection) -> None:
        """Note that a transport is no longer full, or no longer there."""
        self.unread_size -= self._unread.pop(connection, 0)

    def lost(self, connection: WatchedConnection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        self.drained(connection)
        self._has_lost.set()

    async def all_lost(self) -> None:
        """Wait until no connection is left."""
        while self.connections:
            self._has_lost.clear()
            await self._has_lost.wait()

    def sweep(self, now: float) -> None:
        """Cut each connection that has been in one unfinished state for too long."""
        before, self._unfinished = self._unfinished, {}
        for connection in list(self.connections):
            state = connection.unfinished_state()
            if state is None:
                connection.close_idle(now)
                continue
            seen, since = before.get(connection, (state, now))
            if not seen.is_still(state):
                since = now
            self._unfinished[connection] = (state, since)
            if state.unread_size:
                if now - since > self.limits.unread_seconds:
                    connection.cut("it has read nothing of its answer for unread_seconds")
            elif now - since > self.limits.request_seconds:
                connection.refuse(_too_slow(self.limits.request_seconds))


def _too_slow(seconds: float) -> RequestError:
    return RequestError(f"the request did not arrive whole within request_seconds, {seconds:g} s")
