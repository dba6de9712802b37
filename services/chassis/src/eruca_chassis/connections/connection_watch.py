"""All connections of one server: their number, their unread bytes, and their slowness.

A sweep each second looks at every connection, which costs a request nothing. It may find::

    the head of a request    refused (408) after head_seconds
    the body of a request    refused (408) after request_seconds in all, or if less than
                             bytes_per_second_min has arrived over BODY_WINDOW_SECONDS
    an unread answer         cut if too little of it was read over unread_seconds: less than
                             bytes_per_second_min of a hot route's, nothing of any other
    no request               closed after the keep-alive time

A slow client holds a connection and part of a budget, which others need. So one that is slower than
any real network is disconnected. The unread bytes of full transports are summed up at once. Beyond
``unread_bytes_max`` the transport that has been full longest is cut, so that a stuck reader harms
only itself.

A connection takes a file descriptor, and the service needs descriptors for its own files. So the
number of connections is limited by ``connections_max``, and by the descriptors that the service
needs: a new connection with a higher descriptor is one too many. The kernel assigns the lowest
free number, so the number shows how many are in use, no matter by whom. Beyond the limit the
connection that has been idle longest is closed. If none is idle, the new one is refused.
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

REFUSED_CONNECTIONS_MAX: Final = 1_000  # beyond connections_max that still get a reason
REFUSED_FILES_MAX: Final = 64  # the same beyond the limit of open files; each lasts one second
IDLE_SPARED_SECONDS: Final = 1.0  # a connection idle for less is not closed to make room
BODY_WINDOW_SECONDS: Final = 5.0  # period of a body's minimum rate: short pauses are tolerated


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections; each field has the meaning of the setting with its name."""

    connections_max: int
    head_seconds: float
    request_seconds: float
    bytes_per_second_min: int
    unread_seconds: float
    unread_bytes_max: int
    files_max: int | None = None  # files that the process may open; None: unlimited


class Admission(Enum):
    """The decision about a new connection."""

    TAKEN = "taken"
    REFUSED = "refused"  # with an answer that says why
    DROPPED = "dropped"  # without an answer: there are too many


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The client's pending work: to read an answer, or to send the rest of its request."""

    unread_size: int  # bytes; 0: the request is incomplete
    request: object  # the latest; referenced here, so that its identity is not reused
    moved_size: int = 0  # bytes of the body that arrived, or of the answer that were read
    is_counted: bool = True  # whether moved_size is counted; else any change of unread_size counts
    is_head: bool = False  # whether the head is incomplete

    @property
    def is_unread(self) -> bool:
        """True if there is an answer to read."""
        return self.unread_size > 0

    def is_of(self, other: Unfinished) -> bool:
        """Return whether the client's pending work is the same: this answer, or this request."""
        return self.request is other.request and self.is_unread == other.is_unread


@dataclass(frozen=True, slots=True)
class _Since:
    """The times at which a client's pending work, and its current window, began."""

    state: Unfinished  # at the beginning of the window
    begun: float
    window_begun: float


class WatchedConnection(Protocol):
    """A connection, as seen by the watch."""

    def unread_size(self) -> int:
        """Return how many bytes the client has not read yet."""
        ...

    def unfinished_state(self) -> Unfinished | None:
        """Return the client's pending work, or None if there is none."""
        ...

    def close_idle(self, now: float) -> None:
        """Close the connection if it has been idle for the keep-alive time."""
        ...

    def idle_since(self) -> float | None:
        """Return since when the connection is idle; None if it is busy or closing."""
        ...

    def recheck(self, now: float) -> None:
        """End requests that wait and are no longer allowed, at a monotonic time."""
        ...

    def make_room(self) -> None:
        """Close the connection, which is idle."""
        ...

    def cut(self, why: str) -> None:
        """Drop the connection and all unread bytes."""
        ...

    def refuse(self, error: ErucaError) -> None:
        """Answer with a problem and close; or cut if an answer has begun."""
        ...


class ConnectionWatch:
    """The connections of one server."""

    def __init__(
        self, limits: ConnectionLimits, files_needed: Callable[[], int] = lambda: 0
    ) -> None:
        self.limits = limits
        self._files_needed = files_needed
        self._idlest: deque[tuple[float, WatchedConnection]] = deque()  # longest idle first
        self._looked_at = -math.inf  # when idle connections were last searched; monotonic
        self.connections: set[WatchedConnection] = set()
        self.unread_size = 0  # bytes in full transports
        self.is_stopping = False  # whether each connection closes after its next answer
        self.is_away = False  # whether connections just accepted are cut at once
        self._unread: dict[WatchedConnection, int] = {}  # longest full first
        self._unfinished: dict[WatchedConnection, _Since] = {}
        self._has_lost = asyncio.Event()  # set when a connection is lost

    def admission(self, descriptor: int, now: float) -> Admission:
        """Decide about a new connection; close an idle one to make room if needed.

        Args:
            descriptor: The number of its file descriptor.
            now: Monotonic time.
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
        # With a very low limit the service gets most, and connections a few.
        return max(limit - self._files_needed() - REFUSED_FILES_MAX, limit // 4)

    def _makes_room(self, now: float) -> bool:
        """Close the connection that has been idle longest; return whether there was one."""
        if not self._idlest and now - self._looked_at >= IDLE_SPARED_SECONDS:
            self._looked_at = now  # the search visits all connections, so limit its rate
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
        """Record a full transport; cut the longest full ones if the total exceeds the limit."""
        size = connection.unread_size()
        self._unread[connection] = size
        self.unread_size += size
        while self.unread_size > self.limits.unread_bytes_max:
            slowest = next(iter(self._unread))
            self.drained(slowest)
            slowest.cut("unread_bytes_max is exceeded, and this connection was stuck longest")

    def drained(self, connection: WatchedConnection) -> None:
        """Record that a transport is no longer full, or is gone."""
        self.unread_size -= self._unread.pop(connection, 0)

    def lost(self, connection: WatchedConnection) -> None:
        """Remove a connection."""
        self.connections.discard(connection)
        self.drained(connection)
        self._has_lost.set()

    async def all_lost(self) -> None:
        """Wait until no connection is left."""
        while self.connections:
            self._has_lost.clear()
            await self._has_lost.wait()

    def sweep(self, now: float) -> None:
        """Disconnect each client that has been too slow."""
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
                    connection.cut("too little of its answer was read within unread_seconds")
            elif fault := self._fault(since, state, now):
                connection.refuse(RequestTimeoutError(fault))

    def _begins_window(self, since: _Since, state: Unfinished, now: float) -> bool:
        """Return whether enough bytes have moved in the window to begin a new one."""
        if since.state.is_head:
            return not state.is_head
        if not state.is_counted:
            return state.unread_size != since.state.unread_size
        window = self.limits.unread_seconds if state.is_unread else BODY_WINDOW_SECONDS
        passed = now - since.window_begun
        moved = state.moved_size - since.state.moved_size
        # Not before half of it has passed: a large piece should pay for a pause after it.
        return passed >= window / 2 and moved >= self.limits.bytes_per_second_min * passed

    def _fault(self, since: _Since, state: Unfinished, now: float) -> str | None:
        """Return why an incomplete request has timed out; None if it has not."""
        limits = self.limits
        if state.is_head and now - since.begun > limits.head_seconds:
            return (
                f"the request's head did not arrive within head_seconds, {limits.head_seconds:g} s"
            )
        if now - since.begun > limits.request_seconds:
            return (
                "the request did not arrive completely within request_seconds, "
                f"{limits.request_seconds:g} s"
            )
        if not state.is_head and now - since.window_begun > BODY_WINDOW_SECONDS:
            return (
                "the request's body arrived more slowly than bytes_per_second_min, "
                f"{limits.bytes_per_second_min}, over {BODY_WINDOW_SECONDS:g} s"
            )
        return None
