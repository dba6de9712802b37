"""All connections of one server: how many there are, what they have not read, and for how long.

One sweep per second looks at every connection, which costs a request nothing. What it may find::

    the head of a request    refused (408) after head_seconds
    the body of a request    refused (408) after request_seconds in all, or if less than
                             bytes_per_second_min has come over BODY_WINDOW_SECONDS
    an unread answer         cut if too little of it was read over unread_seconds: less than
                             bytes_per_second_min of a hot route's, nothing of any other
    nothing asked for        closed after the keep-alive time

A slow client holds a connection and a place in a budget, which others need. One that is slower than
any line is ended. Transports that say they are full are added up at once; beyond
``unread_size_max`` the one that has been full longest is cut, so that a stuck reader harms only
itself.

A connection takes a file descriptor, which the service needs for its own files. So there are no
more connections than ``connections_max``, nor than leave it as many as it says it needs: a new
connection whose descriptor lies above that is one too many. The kernel gives out the lowest number
that is free, so the number tells how many are in use, whoever uses them. Beyond the limit the
connection that has been idle longest makes room; while none is, the new one is refused.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import Final, Protocol

import structlog

from eruca.contract.errors import ErucaError, RequestTimeoutError

_log = structlog.get_logger()

REFUSED_CONNECTIONS_MAX: Final = 1_000  # beyond connections_max that still get a reason …
REFUSED_FILES_MAX: Final = 64  # … and beyond the limit of open files; they are over in a second
IDLE_SPARED_SECONDS: Final = 1.0  # a connection that was idle for less is not closed to make room
BODY_WINDOW_SECONDS: Final = 5.0  # over which a body must keep its rate: a pause is no fault


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may cost; the meaning of each is the setting's of the same name."""

    connections_max: int
    head_seconds: float
    request_seconds: float
    bytes_per_second_min: int
    unread_seconds: float
    unread_size_max: int
    files_max: int | None = None  # that the process may have open; None: any number


class Admission(Enum):
    """Decision about a new connection."""

    TAKEN = "taken"
    REFUSED = "refused"  # it is told so
    DROPPED = "dropped"  # without a word: there are too many to be told


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a client has yet to do: to read an answer, or else to send the rest of its request."""

    unread_size: int  # bytes; 0: it is the request that is not there yet
    request: object  # its latest; held here, so that no later one can be taken for it
    moved_size: int = 0  # bytes of that body which came, or of that answer which were taken away
    is_counted: bool = True  # whether moved_size is; else any change of unread_size is enough
    is_head: bool = False  # whether it is the head that is not there yet

    @property
    def is_unread(self) -> bool:
        """True while an answer is to be read."""
        return self.unread_size > 0

    def is_of(self, other: Unfinished) -> bool:
        """Tell whether the client has the same left to do: to read, or to send this request."""
        return self.request is other.request and self.is_unread == other.is_unread


@dataclass(frozen=True, slots=True)
class _Since:
    """Times since a client has had something to do, and since it has been slow at it."""

    state: Unfinished  # as it was when the window began
    begun: float
    window_begun: float


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

    def idle_since(self) -> float | None:
        """Return since when nothing is asked on it; None: something is, or it is being closed."""
        ...

    def make_room(self) -> None:
        """Close the connection, which is idle."""
        ...

    def cut(self, why: str) -> None:
        """Drop the connection with whatever the client has not read."""
        ...

    def refuse(self, error: ErucaError) -> None:
        """Answer with a problem and close; or cut where an answer has begun."""
        ...


class ConnectionWatch:
    """The connections of one server."""

    def __init__(
        self, limits: ConnectionLimits, files_needed: Callable[[], int] = lambda: 0
    ) -> None:
        self.limits = limits
        self._files_needed = files_needed
        self._idlest: deque[tuple[float, WatchedConnection]] = deque()  # idle longest first
        self._looked_at = -math.inf  # for those, by the monotonic clock
        self.connections: set[WatchedConnection] = set()
        self.unread_size = 0  # bytes in transports that said they are full
        self.is_stopping = False  # whether each connection ends with its next answer
        self.is_away = False  # whether each is cut as it is made, having been accepted just before
        self._unread: dict[WatchedConnection, int] = {}  # longest full first
        self._unfinished: dict[WatchedConnection, _Since] = {}
        self._has_lost = asyncio.Event()  # a connection, since somebody looked

    def admission(self, descriptor: int, now: float) -> Admission:
        """Return what becomes of a new connection; where it is one too many, an idle one closes.

        Args:
            descriptor: The number of its file descriptor.
            now: By the monotonic clock.
        """
        if self.is_away:
            return Admission.DROPPED
        too_many = len(self.connections) - self.limits.connections_max
        above = descriptor - self._descriptors_max()
        if (too_many < 0 and above < 0) or self._makes_room(now):
            return Admission.TAKEN
        if too_many < REFUSED_CONNECTIONS_MAX and above < REFUSED_FILES_MAX:
            return Admission.REFUSED
        return Admission.DROPPED

    def _descriptors_max(self) -> float:
        limit = self.limits.files_max
        if limit is None:
            return math.inf
        # Of a very low limit the service gets the greater part, and others a few connections.
        return max(limit - self._files_needed() - REFUSED_FILES_MAX, limit // 4)

    def _makes_room(self, now: float) -> bool:
        """Close the connection that has been idle longest, if any is; tell whether one was."""
        if not self._idlest and now - self._looked_at >= IDLE_SPARED_SECONDS:
            self._looked_at = now  # all are looked at, so not for each that comes
            idle = [
                (since, connection)
                for connection in self.connections
                if (since := connection.idle_since()) is not None
                and now - since >= IDLE_SPARED_SECONDS
            ]
            self._idlest.extend(sorted(idle, key=itemgetter(0)))
            if not idle:
                _log.warning(
                    "connections refused",
                    connections=len(self.connections),
                    connections_max=self.limits.connections_max,
                    open_files_max=self.limits.files_max,
                    files_needed=self._files_needed(),
                )
        while self._idlest:
            since, connection = self._idlest.popleft()
            if connection in self.connections and connection.idle_since() == since:
                connection.make_room()
                return True
        return False

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
        """End each connection whose client has been too slow."""
        before, self._unfinished = self._unfinished, {}
        for connection in list(self.connections):
            state = connection.unfinished_state()
            if state is None:
                connection.close_idle(now)
                continue
            since = before.get(connection)
            if since is None or not since.state.is_of(state):
                since = _Since(state, now, now)
            elif self._begins_window(since, state, now):
                since = _Since(state, since.begun, now)
            self._unfinished[connection] = since
            if state.is_unread:
                if now - since.window_begun > self.limits.unread_seconds:
                    connection.cut("it has read too little of its answer for unread_seconds")
            elif fault := self._fault(since, state, now):
                connection.refuse(RequestTimeoutError(fault))

    def _begins_window(self, since: _Since, state: Unfinished, now: float) -> bool:
        """Tell whether enough has moved since the window began for another one to begin."""
        if since.state.is_head:
            return not state.is_head
        if not state.is_counted:
            return state.unread_size != since.state.unread_size
        window = self.limits.unread_seconds if state.is_unread else BODY_WINDOW_SECONDS
        passed = now - since.window_begun
        moved = state.moved_size - since.state.moved_size
        # Not before half of it is over: what came in one piece is to pay for a pause behind it.
        return passed >= window / 2 and moved >= self.limits.bytes_per_second_min * passed

    def _fault(self, since: _Since, state: Unfinished, now: float) -> str | None:
        """Return why a request that is not there yet is waited for no longer; None: it is."""
        limits = self.limits
        if state.is_head and now - since.begun > limits.head_seconds:
            return (
                f"the request's head did not arrive within head_seconds, {limits.head_seconds:g} s"
            )
        if now - since.begun > limits.request_seconds:
            return (
                "the request did not arrive whole within request_seconds, "
                f"{limits.request_seconds:g} s"
            )
        if not state.is_head and now - since.window_begun > BODY_WINDOW_SECONDS:
            return (
                "the request's body arrived more slowly than bytes_per_second_min, "
                f"{limits.bytes_per_second_min}, over {BODY_WINDOW_SECONDS:g} s"
            )
        return None
