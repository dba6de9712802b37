"""Accept connections and let them enter: what comes before their first request.

asyncio's servers hand a connection over as soon as it is accepted, or after a handshake with a
context that never changes. A door does more before it: a TLS handshake with the present
certificate (:mod:`.tls_door`), or the head of a proxy that says who the client is
(:mod:`.unix_door`).

A connection *enters* until then. Its peer may be slow, dead, or no client at all. So it has a time
limit, and at most ``ENTERING_MAX`` enter at once: one more cuts the one that has been entering
longest. Neither costs the service a protocol of its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

import structlog

ENTERING_MAX: Final = 1_024  # connections that have not entered yet
ACCEPTED_AT_ONCE: Final = 64  # connections, before the event loop does other work
PAUSE_SECONDS: Final = 0.5  # after accepting failed, for instance for lack of descriptors

_log = structlog.get_logger()


class Door:
    """The server of listening sockets; has the methods of :class:`asyncio.Server`.

    Args:
        listeners: The sockets; closed with the door.
        entering_seconds: Limit of entering, the time before the first byte included.
    """

    def __init__(self, listeners: Sequence[socket.socket], *, entering_seconds: float) -> None:
        self.sockets = tuple(listeners)
        self._seconds = entering_seconds
        self._loop = asyncio.get_running_loop()
        self._entering: dict[asyncio.Task[None], None] = {}  # the longest first
        self._pauses: set[asyncio.TimerHandle] = set()
        self._is_closed = False
        for listener in self.sockets:
            listener.settimeout(0)
            self._listen(listener)

    @property
    def entering_count(self) -> int:
        """Number of connections whose handshake is not over."""
        return len(self._entering)

    def close(self) -> None:
        """Stop accepting; those that are entering end."""
        if self._is_closed:
            return
        self._is_closed = True
        for pause in self._pauses:
            pause.cancel()
        for listener in self.sockets:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener.fileno())
                listener.close()
        for task in self._entering:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until no connection is entering."""
        if self._entering:
            await asyncio.wait(tuple(self._entering))

    def _listen(self, listener: socket.socket) -> None:
        self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # It would be reported again at once, and for ever.
                _log.error("no connection accepted", why=error.strerror)
                self._loop.remove_reader(listener.fileno())
                self._pause(listener)
                return
            accepted.settimeout(0)
            if len(self._entering) >= ENTERING_MAX:
                next(iter(self._entering)).cancel()
            task = self._loop.create_task(self._enter(accepted), name="eruca connection enters")
            self._entering[task] = None
            task.add_done_callback(self._entered)

    def _pause(self, listener: socket.socket) -> None:
        def go_on() -> None:
            self._pauses.discard(pause)
            self._listen(listener)

        pause = self._loop.call_later(PAUSE_SECONDS, go_on)
        self._pauses.add(pause)

    def _entered(self, task: asyncio.Task[None]) -> None:
        del self._entering[task]
        if not task.cancelled():
            task.result()

    async def _enter(self, accepted: socket.socket) -> None:
        """Make a connection of the service of an accepted socket, or close it."""
        raise NotImplementedError

    async def _first_byte(self, accepted: socket.socket) -> int | None:
        """Return the first byte, which stays in the socket; None: the client has left."""
        arrived: asyncio.Future[None] = self._loop.create_future()
        descriptor = accepted.fileno()
        self._loop.add_reader(descriptor, _set, arrived)
        try:
            await arrived
        finally:
            self._loop.remove_reader(descriptor)
        data = accepted.recv(1, socket.MSG_PEEK)
        return data[0] if data else None


def _set(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
