"""A small HTTP/1.1 client, with kept-alive connections and nothing else.

It does a fifth of httpx's work at a hundredth of its cost: no redirects, cookies, proxies, content
codings or HTTP/2. Requests to a cluster's services use none of these.

Concurrency rule: everything runs on the event loop that first used the client. All requests under
way share one timer for their deadlines. The timer is set for the earliest deadline and rescheduled
when it fires.

A request is retried, once, only in one case: it is a GET on a connection that had been idle, and
the connection ended without a byte of an answer. Then the server had closed the idle connection.
For other requests a connection that was idle for long is first asked whether it has ended: a
program that blocks the event loop keeps it from noticing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from time import monotonic
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from eruca.aio.http.credentials import ANONYMOUS, Credentials
from eruca.aio.http.http1_connection import ConnectionLostError, Http1Connection
from eruca.aio.http.known_answers import KnownAnswers
from eruca.aio.http.ownership import Ownership
from eruca.aio.http.pipeline import Pipeline, PipelinedConnection
from eruca.aio.http.transport import (
    ConnectTimeoutError,
    HttpResponse,
    NotConnectedError,
    connection_fault,
    keep_alive_options,
    late_connection,
)
from eruca.contract.errors import ClosedError, TimeoutExpiredError, TransportError
from eruca.contract.records import Buffer

CONNECTIONS_MAX: Final = 64  # to one server
RESPONSE_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes; several times the largest pull
IDLE_SECONDS: Final = 1.0  # after which a connection is asked whether its server has closed it
_SAFE_METHODS: Final = frozenset(("GET", "HEAD"))

_C = TypeVar("_C", bound=asyncio.BaseProtocol)


class Http1Transport:
    """The transport interface on asyncio and httptools; opens connections when needed."""

    def __init__(
        self,
        *,
        credentials: Credentials = ANONYMOUS,
        connections_max: int = CONNECTIONS_MAX,
        response_size_max: int = RESPONSE_SIZE_MAX,
    ) -> None:
        self._credentials = credentials
        self._connections_max = connections_max
        self._response_size_max = response_size_max
        self._hosts: dict[str, _HostPool] = {}
        self._busy: set[Http1Connection] = set()
        self._pipes: set[Pipeline] = set()
        self._known = KnownAnswers()
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0  # uvloop's handle of an immediate callback has no due time
        self._ownership = Ownership()
        self._is_closed = False

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> HttpResponse:
        """Return the answer, within *timeout* seconds."""
        deadline = self._ownership.check().time() + timeout
        if self._is_closed:
            raise ClosedError("the client is closed")
        pool = self._hosts.get(url)
        if pool is None:
            # Brokers may return at other addresses, so hosts without a connection are dropped.
            self._hosts = {u: known for u, known in self._hosts.items() if known.is_in_use}
            pool = self._hosts[url] = _HostPool(url, self)
        size = 0
        for part in body:
            size += len(part) if part.__class__ is bytes else memoryview(part).nbytes
        head = _request_head(method, target, pool.host_header, headers, size)
        may_repeat = method in _SAFE_METHODS
        if not may_repeat:
            pool.drop_ended(monotonic() - IDLE_SECONDS)
        connection = pool.take_idle() or await pool.take(deadline)
        while True:
            is_new = connection.used_count == 0
            connection.deadline = deadline
            self._busy.add(connection)
            if self._timer is None or deadline < self._timer_due:
                self._set_timer(deadline)
            try:
                return await connection.exchange(head, body, size)
            except ConnectionLostError as error:
                if is_new or not error.nothing_received or not may_repeat:
                    raise
                may_repeat = False
            finally:
                self._busy.discard(connection)
                pool.give_back(connection)
            connection = await pool.take(deadline, fresh=True)

    async def close(self) -> None:
        """Close every connection; requests under way fail."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ownership.is_ours:
            return  # these sockets belong to the parent process
        for connection in tuple(self._busy):
            connection.expire(ClosedError("the client was closed during the request"))
        for pool in self._hosts.values():
            pool.close()
        for pipe in tuple(self._pipes):
            await pipe.close()
        await asyncio.sleep(0)  # lets the transports close their sockets

    @property
    def open_connections(self) -> int:
        """Number of connections, busy or idle."""
        return sum(pool.open_count for pool in self._hosts.values())

    async def connect(self, server: _Server) -> Http1Connection:
        """Return a new connection; the caller limits the time."""
        return await self._connected(
            server,
            lambda: Http1Connection(server.url, self._response_size_max, self._known),
        )

    def pipe(self) -> Pipeline | None:
        """Return a transport over one connection; None: there are too many of them."""
        if self._is_closed or len(self._pipes) >= self._connections_max:
            return None
        pipe = Pipeline(self._open_pipe, _pipe_head, self._pipes.discard)
        self._pipes.add(pipe)
        return pipe

    async def _open_pipe(self, url: str, deadline: float) -> PipelinedConnection:
        self._ownership.check()
        server = _server_at(url)
        connecting = self._connected(server, lambda: PipelinedConnection(url))
        return await _opened_before(deadline, url, connecting)

    async def _connected(self, server: _Server, make: Callable[[], _C]) -> _C:
        loop = asyncio.get_running_loop()
        context = await self._credentials.ssl_context() if server.tls else None
        transport, connection = await loop.create_connection(
            make, server.host, server.port, ssl=context
        )
        opened = transport.get_extra_info("socket")
        for option in keep_alive_options():
            opened.setsockopt(*option)
        return connection

    @property
    def connections_max(self) -> int:
        """Maximum number of connections to one server."""
        return self._connections_max

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._expire)
        self._timer_due = when

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in [c for c in self._busy if c.deadline <= now]:
            connection.expire(
                TimeoutExpiredError(f"{connection.place}: no complete answer before the deadline")
            )
        later = [c.deadline for c in self._busy if c.deadline > now]
        if later:
            self._set_timer(min(later))


class _Server(NamedTuple):
    """A server, by its URL."""

    url: str
    tls: bool
    host: str
    port: int
    host_header: str


@lru_cache(maxsize=256)
def _server_at(url: str) -> _Server:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:  # a broker's URL comes from a route
        raise TransportError(f"expected a URL, found {url!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise TransportError(f"expected the http:// or https:// URL of a server, found {url!r}")
    tls = parts.scheme == "https"
    host_header = parts.netloc.rpartition("@")[2]
    return _Server(url, tls, parts.hostname, port or (443 if tls else 80), host_header)


async def _opened_before(deadline: float, place: str, connecting: Awaitable[_C]) -> _C:
    """Return a new connection; raise the error that says that nothing has been sent."""
    try:
        async with asyncio.timeout_at(deadline):
            return await connecting
    except TimeoutError:
        raise ConnectTimeoutError(
            f"{place}: no connection before the deadline{late_connection(place)}"
        ) from None
    # TLS errors; a host name that cannot be encoded
    except (OSError, UnicodeError) as error:
        raise NotConnectedError(f"{place}: {connection_fault(error, place)}") from error


class _HostPool:
    """The connections to one server; the last used one is used first, so that others can expire."""

    def __init__(self, url: str, transport: Http1Transport) -> None:
        self._server = _server_at(url)
        self._place = url
        self._transport = transport
        self._idle: list[Http1Connection] = []
        self._waiters: deque[asyncio.Future[Http1Connection | None]] = deque()
        self._is_closed = False
        self.open_count = 0
        self.host_header = self._server.host_header

    @property
    def is_in_use(self) -> bool:
        """True if a connection is busy or reusable."""
        return self.open_count > sum(not connection.is_usable for connection in self._idle)

    def take_idle(self) -> Http1Connection | None:
        """Return an idle connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            self.open_count -= 1
        return None

    def drop_ended(self, since: float) -> None:
        """Drop connections that were idle *since* a monotonic time and whose server closed them."""
        while self._idle and self._idle[-1].idle_since < since and self._idle[-1].has_ended():
            self._idle.pop().abort()
            self.open_count -= 1

    async def take(self, deadline: float, *, fresh: bool = False) -> Http1Connection:
        """Return an idle connection (unless *fresh*), a new one, or the next free one."""
        while True:
            if fresh:
                self._drop_idle()
            elif (idle := self.take_idle()) is not None:
                return idle
            if self.open_count < self._transport.connections_max:
                return await self._open(deadline)
            given = await self._wait(deadline)
            if given is not None and given.is_usable:
                return given
            if given is not None:
                self.open_count -= 1

    def give_back(self, connection: Http1Connection) -> None:
        """Take back a connection after its request, successful or not."""
        usable = connection.is_usable
        if not usable:
            connection.abort()
            self.open_count -= 1
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection if usable else None)
                return
        if usable:
            connection.idle_since = monotonic()  # a blocked uvloop's own time stands still
            self._idle.append(connection)

    def close(self) -> None:
        """Close idle connections; fail waiting requests and pending connection attempts."""
        self._is_closed = True
        self._drop_idle()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(ClosedError("the client was closed"))

    def _drop_idle(self) -> None:
        for connection in self._idle:
            connection.abort()
        self.open_count -= len(self._idle)
        self._idle.clear()

    async def _open(self, deadline: float) -> Http1Connection:
        self.open_count += 1
        try:
            connection = await _opened_before(
                deadline, self._place, self._transport.connect(self._server)
            )
            if self._is_closed:
                connection.abort()
                raise ClosedError("the client was closed during the request")
            return connection
        except BaseException:
            self.open_count -= 1
            self._wake_one()
            raise

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _wait(self, deadline: float) -> Http1Connection | None:
        waiter: asyncio.Future[Http1Connection | None]
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except TimeoutError:
            self._pass_on(waiter)
            raise ConnectTimeoutError(
                f"{self._place}: all {self._transport.connections_max} connections were busy"
                " until the deadline"
            ) from None
        except asyncio.CancelledError:
            self._pass_on(waiter)
            raise

    def _pass_on(self, waiter: asyncio.Future[Http1Connection | None]) -> None:
        if not waiter.done() or waiter.cancelled() or waiter.exception() is not None:
            return
        connection = waiter.result()  # assigned in the same moment as the cancellation
        if connection is not None:
            self.give_back(connection)
        else:
            self._wake_one()


def _request_head(
    method: str, target: str, host: str, headers: Sequence[tuple[str, str]], size: int
) -> bytes:
    if method in _SAFE_METHODS:
        begin = _head_begin(method, target, host, tuple(headers))  # rarely equal to an earlier one
        if not size:
            return begin + b"\r\n"
    else:
        begin = _known_head_begin(method, target, host, tuple(headers))
    return b"%bcontent-length: %d\r\n\r\n" % (begin, size)


def _pipe_head(
    method: str, url: str, target: str, headers: Sequence[tuple[str, str]], size: int
) -> bytes:
    return _request_head(method, target, _server_at(url).host_header, headers, size)


def _head_begin(method: str, target: str, host: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n"]
    for name, value in headers:
        lines.append(f"{name}: {value}\r\n")
    begin = "".join(lines)
    # Otherwise a value could smuggle in a header or a second request.
    assert begin.count("\n") == len(lines) + 1, "a line break in the target or a header"
    return begin.encode("latin-1")


_known_head_begin: Final = lru_cache(maxsize=256)(_head_begin)
