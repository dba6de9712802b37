"""Several requests under way on one HTTP/1.1 connection: their answers come in their order.

:class:`Pipeline` is a transport. Its requests share one connection of their own, and each is sent
at once. It repeats no request. It serves senders whose batches have an order, and whose server
refuses a batch if it has not stored the one before it.

States of the connection: none → open → lost. The first request opens it. If that fails, or the
connection is lost, every request under way fails, and so does each later one: on another connection
it could overtake the failed ones. If a request is cancelled or exceeds its deadline, the connection
is lost: nothing can be taken out of it.

Concurrency rule: belongs to the event loop that first used it.

Source: RFC 9112, section 9.3.2.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

import httptools

from eruca.aio.http.http1_connection import HEADERS_SIZE_MAX, ConnectionLostError
from eruca.aio.http.transport import HttpResponse, PipeLostError
from eruca.contract.errors import ClosedError, TimeoutExpiredError, TransportError
from eruca.contract.records import Buffer

ANSWER_SIZE_MAX: Final = 1024 * 1024  # bytes of a body: answers to sends are short
_BODILESS: Final = frozenset({204, 304})

Opening = Callable[[str, float], Awaitable["PipelinedConnection"]]
"""Opens a connection to the server at a URL before a deadline, by the loop's clock."""
MakingHead = Callable[[str, str, str, Sequence[tuple[str, str]], int], bytes]
"""Returns the head of a request: method, URL, target, headers, size of the body."""


class Pipeline:
    """The transport interface over one connection.

    Args:
        opening: Opens it.
        head_of: Encodes heads.
        on_closed: Called once, when it is closed.
    """

    def __init__(
        self, opening: Opening, head_of: MakingHead, on_closed: Callable[[Pipeline], None]
    ) -> None:
        self._opening = opening
        self._head_of = head_of
        self._on_closed = on_closed
        self._url = ""
        self._connection: PipelinedConnection | None = None
        self._turns = asyncio.Lock()  # of requests while the connection is being opened
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
        deadline = asyncio.get_running_loop().time() + timeout
        size = sum(memoryview(part).nbytes for part in body)
        head = self._head_of(method, url, target, headers, size)
        # Always through the lock, which is fair: no request overtakes those that wait there for
        # the opening. If nobody waits, this does not suspend.
        connection = await self._opened(url, deadline)
        if url != self._url or not connection.is_usable:
            raise PipeLostError(f"{url}: the connection to {self._url} was lost before")
        return await connection.exchange((head, *body), deadline)

    async def close(self) -> None:
        """Close the connection; requests under way fail."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._connection is not None:
            self._connection.fail(ClosedError("the client was closed during the request"))
        self._on_closed(self)

    def leads_to(self, url: str) -> bool:
        """Tell whether a request to *url* can be sent on the connection, or would open it."""
        if self._is_closed:
            return False
        connection = self._connection
        if connection is None:
            return not self._url
        return url == self._url and connection.is_usable

    async def _opened(self, url: str, deadline: float) -> PipelinedConnection:
        async with self._turns:
            if self._is_closed:
                raise ClosedError("the client is closed")
            if self._connection is None:
                if self._url:
                    raise PipeLostError(f"{url}: the connection to {self._url} could not be opened")
                self._url = url
                self._connection = await self._opening(url, deadline)
                if self._is_closed:
                    self._connection.fail(ClosedError("the client is closed"))
            return self._connection


class PipelinedConnection(asyncio.Protocol):
    """A connection to one server, at *place*."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answers: deque[asyncio.Future[HttpResponse]] = deque()  # awaited, in their order
        self._is_closed = False
        # State of the answer that is arriving.
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0  # bytes of its headers and its body
        self._is_amid = False

    @property
    def is_usable(self) -> bool:
        """True if the connection can send another request."""
        transport = self._transport
        return not self._is_closed and transport is not None and not transport.is_closing()

    async def exchange(self, parts: Sequence[Buffer], deadline: float) -> HttpResponse:
        """Send a request and return its answer, before *deadline* by the loop's clock."""
        transport = self._transport
        assert transport is not None
        assert self.is_usable, "nothing is sent on a lost connection"
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[HttpResponse] = loop.create_future()
        self._answers.append(answer)
        transport.writelines(parts)
        timer = loop.call_at(deadline, self._expire)
        try:
            return await answer
        except asyncio.CancelledError:
            self.fail(self._lost(": a request was cancelled"))
            raise
        finally:
            timer.cancel()

    def fail(self, error: Exception) -> None:
        """Fail every request under way, and close the connection at once."""
        self._is_closed = True
        answers, self._answers = self._answers, deque()
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)
        if self._transport is not None:
            self._transport.abort()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse; close the connection if the data is not HTTP."""
        if self._is_closed:
            return
        if not self._is_amid:
            self._size = 0
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__ or error
            self.fail(TransportError(f"{self.place}: the answer is not HTTP: {cause}"))
        except httptools.HttpParserUpgrade:
            self.fail(TransportError(f"{self.place}: the server switched to another protocol"))
        else:
            if self._is_amid and self._size > ANSWER_SIZE_MAX + HEADERS_SIZE_MAX:
                self.fail(TransportError(f"{self.place}: the answer is too large"))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the requests under way."""
        self.fail(self._lost(" by the server" if error is None else f": {error}"))

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Refuse an unrequested answer."""
        if not self._answers:
            raise ValueError("the server sent more answers than there were requests")
        self._headers = {}
        self._body = []
        self._is_amid = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; join repeated ones, as RFC 9110 requires."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        """Refuse an answer whose end only the connection's end would show."""
        status = self._parser.get_status_code()
        has_end = "content-length" in self._headers or "transfer-encoding" in self._headers
        if status >= 200 and status not in _BODILESS and not has_end:
            raise ValueError("it has no length")

    def on_body(self, data: bytes) -> None:
        """Collect the body."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Deliver the answer to the first request; after an interim answer, wait for the final."""
        self._is_amid = False
        self._size = 0
        status = self._parser.get_status_code()
        if status < 200 or self._is_closed:
            return
        keeps_alive = self._parser.should_keep_alive()
        answer = self._answers.popleft()
        if not answer.done():
            answer.set_result(HttpResponse(status, self._headers, b"".join(self._body)))
        if not keeps_alive:
            self.fail(self._lost(" by the server"))

    def _expire(self) -> None:
        self.fail(TimeoutExpiredError(f"{self.place}: no complete answer before the deadline"))

    def _lost(self, why: str) -> ConnectionLostError:
        return ConnectionLostError(
            f"{self.place}: the connection was closed{why} before the answer was complete",
            nothing_received=False,
        )
