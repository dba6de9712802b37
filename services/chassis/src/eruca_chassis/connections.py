"""The service's side of each connection: what uvicorn leaves open, closed.

uvicorn parses, keeps connections alive, stops reading while 64 KiB of a body wait for the handler,
and stops a handler from sending more while the last piece waits for the client. It does not bound:
how long a request's head or body may take, how large a head is, how many requests are pipelined,
how long an answer may stay unread, nor how many bytes of unread answers there are in all. And its
own refusals are plain text. :class:`ServiceProtocol` mends these:

- *sizes* are counted as data arrives: bytes that complete neither a head nor a piece of body;
- *upgrades* offered with a body are ignored without losing the body, which uvicorn does (Java's
  client offers h2c with its first request);
- *unread answers* are added up when a transport says that it is full; beyond ``unread_size_max``
  the connection that has been full longest is cut, so that a stuck reader harms only itself;
- *times* are watched by one sweep per second over all connections, which costs a request nothing:
  a connection found in the same unfinished state for longer than it may be is cut.

Source: uvicorn 0.54, ``HttpToolsProtocol`` (whose attributes are relied upon: the tests over real
sockets notice when they change).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from eruca.contract.errors import ErucaError, OverloadedError, RequestError, TooLargeError
from eruca_chassis.asgi import (
    Receive,
    Scope,
    Send,
    problem_body,
    problem_headers,
    request_id,
    send_problem,
)

HEAD_SIZE_MAX: Final = 64 * 1024  # bytes of a request line with its headers, or of trailers
PIPELINE_MAX: Final = 256  # requests sent ahead on one connection; each costs about 2 KB
REFUSED_CONNECTIONS_MAX: Final = 1_000  # beyond connections_max that still get a reason
LINGER_SECONDS: Final = 1.0  # for a refused client to read why
SWEEP_SECONDS: Final = 1.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may cost; the meaning of each is the setting's of the same name."""

    connections_max: int
    request_seconds: float
    unread_seconds: float
    unread_size_max: int


class ConnectionWatch:
    """All connections of one server: their number, what they have not read, and for how long."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.connections: set[ServiceProtocol] = set()
        self.unread_size = 0  # bytes in transports that said they are full
        self._unread: dict[ServiceProtocol, int] = {}  # longest full first
        self._unfinished: dict[ServiceProtocol, tuple[Unfinished, float]] = {}  # and since when

    def filled(self, connection: ServiceProtocol) -> None:
        """Note that a transport is full, and cut the longest full ones if all are too much."""
        size = connection.transport.get_write_buffer_size()
        self._unread[connection] = size
        self.unread_size += size
        while self.unread_size > self.limits.unread_size_max:
            slowest = next(iter(self._unread))
            self.drained(slowest)
            slowest.cut("unread_size_max is reached, and it has been stuck longest")

    def drained(self, connection: ServiceProtocol) -> None:
        """Note that a transport is no longer full, or no longer there."""
        self.unread_size -= self._unread.pop(connection, 0)

    def lost(self, connection: ServiceProtocol) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        self.drained(connection)

    def sweep(self, now: float) -> None:
        """Cut each connection that has been in one unfinished state for too long."""
        before, self._unfinished = self._unfinished, {}
        for connection in list(self.connections):
            state = connection.unfinished_state()
            if state is None:
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


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a client has yet to do: to read an answer, or else to send the rest of its request."""

    unread_size: int  # bytes; 0: it is the request that is not there yet
    request: object  # its latest; held here, so that no later one can be taken for it

    def is_still(self, later: Unfinished) -> bool:
        """Tell whether the client has done nothing until *later*."""
        return self.request is later.request and self.unread_size == later.unread_size


class ServiceProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with limits, and refusals that are problem documents."""

    watch: ConnectionWatch  # set on the subclass that :func:`protocol_class` makes

    _loose_size = 0  # bytes since a piece of body or the end of a message
    _is_refused = False

    def connection_made(  # type: ignore[override]  # as uvicorn's own
        self, transport: asyncio.Transport
    ) -> None:
        """Take the connection; or, beyond the limit, only to say so."""
        super().connection_made(transport)
        count = len(self.watch.connections)
        maximum = self.watch.limits.connections_max
        if count >= maximum + REFUSED_CONNECTIONS_MAX:
            transport.abort()
        elif count >= maximum:
            self.app = _refuse_connection
        self.watch.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self.watch.lost(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and refuse what grows without coming to an end."""
        self._unset_keepalive_if_required()
        self._loose_size += len(data)
        while data and len(self.pipeline) <= PIPELINE_MAX:
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_upgrade(data[upgrade.args[0] :])
            except httptools.HttpParserError:
                self.refuse(RequestError("what arrived is not HTTP/1.1"))
                return
        if self._loose_size > HEAD_SIZE_MAX:
            self.refuse(TooLargeError(f"the request's head is larger than {HEAD_SIZE_MAX} bytes"))
        elif len(self.pipeline) > PIPELINE_MAX:
            self.cut("it sent more than PIPELINE_MAX requests ahead")

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._loose_size = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self._loose_size = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Hold the handler back: the transport is full."""
        super().pause_writing()
        self.watch.filled(self)

    def resume_writing(self) -> None:
        """Let the handler go on."""
        super().resume_writing()
        self.watch.drained(self)

    def unfinished_state(self) -> Unfinished | None:
        """Return what is being waited for from the client, or None for nothing."""
        unread_size = self.transport.get_write_buffer_size()
        if unread_size:
            return Unfinished(unread_size, self.scope)
        if self._is_refused:
            return None  # it has a timer of its own
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and (not self.cycle.more_body or self.flow.read_paused):
            return None  # it is the handler's turn
        if self.timeout_keep_alive_task is not None:
            return None  # idle between requests, which uvicorn has a timer for
        return Unfinished(0, self.scope)

    def cut(self, why: str) -> None:
        """Drop the connection with whatever it has not read."""
        _log.warning("connection cut", client=self.client, why=why)
        self.transport.abort()

    def refuse(self, error: ErucaError) -> None:
        """Answer with a problem and close; or cut where an answer has begun."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if self.transport.is_closing() or (answering and self.cycle.response_started):
            self.cut(error.detail)
            return
        body = problem_body(error, None)
        headers = [
            *problem_headers(error, None),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = [STATUS_LINE[error.status], *(b"%s: %s\r\n" % header for header in headers)]
        self.transport.write(b"".join([*lines, b"\r\n", body]))
        self.transport.write_eof()
        self._is_refused = True
        self.transport.set_protocol(_Lingering(self))
        if answering:  # what came first, and is answered by this too: its handler has no client
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _without_upgrade(self, rest: bytes) -> bytes:
        """Ignore the upgrade that the request offers, and return what to parse next.

        The parser has taken the request to end with its head, whatever its headers say of a body
        in *rest*. So the body is parsed by a new one, under a head that offers no upgrade.
        """
        framing = [h for h in self.headers if h[0] in (b"content-length", b"transfer-encoding")]
        if not framing:
            return rest
        self.cycle.more_body = True
        self.cycle.message_event.clear()
        self.parser = httptools.HttpRequestParser(_AfterUpgrade(self))
        lines = [b"POST / HTTP/1.1", *(b"%s: %s" % header for header in framing)]
        return b"\r\n".join([*lines, b"", rest])


class _AfterUpgrade:
    """Parser callbacks of a connection, but for a first head, which is made up."""

    def __init__(self, connection: ServiceProtocol) -> None:
        self._connection = connection
        self._head_is_ours = True
        self.on_body = connection.on_body
        self.on_message_complete = connection.on_message_complete

    def on_message_begin(self) -> None:
        if not self._head_is_ours:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._head_is_ours:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_is_ours:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._head_is_ours:
            self._connection.on_headers_complete()
        self._head_is_ours = False


class _Lingering(asyncio.Protocol):
    """The end of a refused connection: what still arrives is dropped.

    Closing at once would reset the connection under a client that is still sending, which would
    then never read why.
    """

    def __init__(self, refused: ServiceProtocol) -> None:
        self._refused = refused
        loop = asyncio.get_running_loop()
        self._end = loop.call_later(LINGER_SECONDS, refused.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        self._refused.connection_lost(exc)


def protocol_class(watch: ConnectionWatch) -> type[ServiceProtocol]:
    """Return the protocol class whose connections *watch* looks after."""
    return type("WatchedProtocol", (ServiceProtocol,), {"watch": watch})


def _too_slow(seconds: float) -> RequestError:
    return RequestError(f"the request did not arrive whole within request_seconds, {seconds:g} s")


async def _refuse_connection(scope: Scope, _receive: Receive, send: Send) -> None:
    error = OverloadedError("connections_max connections are open already", retry_after_seconds=1)
    await send_problem(send, error, request_id(scope), [(b"connection", b"close")])
