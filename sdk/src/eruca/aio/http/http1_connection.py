"""One HTTP/1.1 connection: one request at a time, its answer parsed by httptools.

States: idle → writing → waiting → idle or closed. An answer may come before the request has been
written completely, if a broker refuses a body without reading it. Then the rest is not written, the
answer counts, and the connection is closed. The server would take the rest for the next request.

The parser reads heads, and bodies whose size the head does not contain. The rest of any other body
bypasses the parser, which would only copy it. If much of a body is missing, the kernel copies the
rest from the socket straight into the body's memory. A short answer with a known head
(:mod:`.known_answers`) does not reach the parser at all.

A retry is safe only if nothing was received. So the error contains this fact:
:attr:`ConnectionLostError.nothing_received`.

Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import io
import select
from collections.abc import Sequence
from typing import Final, cast

import httptools

from eruca.aio.http.known_answers import KnownAnswers
from eruca.aio.http.transport import TLS_EXPECTED, HttpResponse, is_tls_alert, perhaps_tls
from eruca.contract.errors import TransportError
from eruca.contract.records import Buffer

HEADERS_SIZE_MAX: Final = 64 * 1024  # bytes of an answer's status line and headers
WRITE_SIZE: Final = 256 * 1024  # bytes handed to the socket before it may pause writing
IN_PLACE_SIZE_MIN: Final = 64 * 1024  # missing bytes from which to receive them in place
JOIN_SIZE: Final = 64 * 1024  # bytes below which head and body are sent together
_CONTINUE_MAX: Final = 16  # interim answers to one request


class ConnectionLostError(TransportError):
    """The connection ended before the answer was complete."""

    code = TransportError.code

    def __init__(self, detail: str, *, nothing_received: bool) -> None:
        super().__init__(detail)
        self.nothing_received = nothing_received


class Http1Connection(asyncio.Protocol):
    """A connection to one server; made by the pool, used by one request at a time."""

    def __init__(self, place: str, response_size_max: int, known: KnownAnswers) -> None:
        self._loop = asyncio.get_running_loop()
        self.deadline = 0.0  # of the request under way, by the loop's clock
        self.idle_since = 0.0  # monotonic; valid while no request is under way
        self.used_count = 0
        self.place = place  # for error texts
        self._response_size_max = response_size_max
        self._known = known
        # Chunks of a few bytes each may double an answer's size. A larger answer is invalid.
        self._received_size_max = 2 * response_size_max + HEADERS_SIZE_MAX
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._resumed: asyncio.Future[None] | None = None
        self._is_written = True
        self._is_closed = False
        # State of the answer under way.
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_size = 0
        self._received_size = 0
        self._interim_count = 0
        self._in_body = False
        self._has_length = False
        self._missing_size = 0  # bytes of a body that bypass the parser

    @property
    def is_usable(self) -> bool:
        """True if the connection can send another request."""
        transport = self._transport
        return not self._is_closed and transport is not None and not transport.is_closing()

    def has_ended(self) -> bool:
        """Ask the system whether the server has closed the idle connection.

        The event loop says so only in its next turn. Bytes that nobody has requested count as well.
        """
        transport = self._transport
        if transport is None or not self.is_usable:
            return True
        if not hasattr(select, "poll"):  # as on Windows
            return False
        watch = select.poll()
        watch.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(watch.poll(0))

    async def exchange(self, head: bytes, body: Sequence[Buffer], body_size: int) -> HttpResponse:
        """Send a request and return its answer; the caller limits the time."""
        transport = self._transport
        assert transport is not None
        assert self._answer is None, "a connection carries one request at a time"
        answer: asyncio.Future[HttpResponse] = self._loop.create_future()
        self._answer = answer
        self.used_count += 1
        try:
            if body_size <= JOIN_SIZE:
                transport.write(b"".join((head, *body)) if body else head)
            else:
                await self._write_large(head, body, answer)
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                answer.exception()  # nobody waits for it
            self.abort()
            raise
        finally:
            self._answer = None

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def expire(self, error: Exception) -> None:
        """Fail the request under way with *error*, and close the connection."""
        self._fail(error)

    async def _write_large(
        self, head: bytes, body: Sequence[Buffer], answer: asyncio.Future[HttpResponse]
    ) -> None:
        transport = self._transport
        assert transport is not None
        self._is_written = False
        transport.write(head)
        for buffer in body:
            view = memoryview(buffer).cast("B")
            for start in range(0, len(view), WRITE_SIZE):
                if answer.done():
                    return  # answered or failed before the request was written completely
                transport.write(view[start : start + WRITE_SIZE])
                if self._resumed is not None:
                    await asyncio.wait((self._resumed, answer), return_when="FIRST_COMPLETED")
        self._is_written = True

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse; close the connection if the data is not HTTP."""
        answer = self._answer
        if answer is None or answer.done():
            # Bytes without a request: the connection's state is unknown now.
            self.abort()
            return
        begins = not self._received_size
        if begins and (response := self._known.read(data)) is not None:
            self._hand_over(response, keeps_alive=True)
            return
        self._received_size += len(data)
        if self._missing_size:
            self._take_body(data)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__ or error
            why = TLS_EXPECTED if is_tls_alert(data) else f"the answer is not HTTP: {cause}"
            self._fail(TransportError(f"{self.place}: {why}"))
        except httptools.HttpParserUpgrade:
            self._fail(TransportError(f"{self.place}: the server switched to another protocol"))
        else:
            if begins and answer.done() and not self._is_closed:
                self._known.learn(data, answer.result())
            elif not self._in_body and self._received_size > HEADERS_SIZE_MAX:
                self._fail(
                    TransportError(f"{self.place}: the headers exceed {HEADERS_SIZE_MAX} bytes")
                )
            elif self._received_size > self._received_size_max:
                self._fail(TransportError(f"{self.place}: the answer never ends"))
            elif self._in_body:
                self._expect_rest()

    def _expect_rest(self) -> None:
        """Let the rest of the body bypass the parser, if its size is known."""
        length = self._headers.get("content-length", "")
        if "transfer-encoding" in self._headers or not (length.isascii() and length.isdigit()):
            return
        if int(length) <= self._response_size_max:
            self._missing_size = int(length) - self._body_size
            if self._missing_size >= IN_PLACE_SIZE_MIN:
                self._let_read(_BodyReceiver(self, b"".join(self._body), int(length)))

    def filled(self, receiver: _BodyReceiver) -> None:
        """Deliver a body that was received in place.

        Not at once: the event loop still refers to its memory, which cannot become ``bytes`` then.
        """
        transport = self._transport
        assert transport is not None
        transport.pause_reading()
        self._loop.call_soon(self._deliver, receiver)

    def _deliver(self, receiver: _BodyReceiver) -> None:
        if self._is_closed:
            return
        self._let_read(self)
        self._body = [receiver.taken()]
        self.on_message_complete()
        self._parser = httptools.HttpResponseParser(self)  # the old one still expects the body
        # Unrequested bytes, received already or not, would be taken for the next answer.
        if receiver.has_more or self.has_ended():
            self.abort()

    def _let_read(self, protocol: asyncio.BaseProtocol) -> None:
        """Make *protocol* receive what arrives; uvloop checks its type when reading starts."""
        transport = self._transport
        assert transport is not None
        transport.pause_reading()
        transport.set_protocol(protocol)
        transport.resume_reading()

    def _take_body(self, data: bytes) -> None:
        missing_size = self._missing_size - len(data)
        self._body.append(data[:missing_size] if missing_size < 0 else data)
        if missing_size > 0:
            self._missing_size = missing_size
            return
        self.on_message_complete()
        self._parser = httptools.HttpResponseParser(self)  # the old one still expects the body
        if missing_size < 0:
            self.abort()  # unrequested bytes: they would be taken for the next answer

    def eof_received(self) -> bool:
        """Complete an answer that lasts until the end of the connection."""
        if self._in_body and not self._has_length and self._answer is not None:
            self.on_message_complete()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request under way."""
        self._is_closed = True
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        why = f": {error}" if error is not None else " by the server"
        nothing_received = self._received_size == 0
        hint = ""
        if self.used_count == 1 and nothing_received and error is None:
            hint = perhaps_tls(self.place)
        self._fail(
            ConnectionLostError(
                f"{self.place}: the connection was closed{why} before the answer was complete"
                f"{hint}",
                nothing_received=nothing_received,
            )
        )

    def pause_writing(self) -> None:
        """Pause writing: the socket's buffer is full."""
        self._resumed = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Resume writing."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not resumed.done():
            resumed.set_result(None)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Refuse an unrequested answer: it would be taken for the next request's."""
        if self._answer is None or self._answer.done():
            raise ValueError("the server sent more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; join repeated ones, as RFC 9110 requires. Trailers are ignored."""
        if self._in_body:
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        """Determine how the body ends."""
        headers = self._headers
        self._in_body = True
        self._has_length = "content-length" in headers or "transfer-encoding" in headers

    def on_body(self, data: bytes) -> None:
        """Collect the body."""
        self._body_size += len(data)
        if self._body_size > self._response_size_max:
            raise ValueError(f"its body exceeds {self._response_size_max} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Deliver the answer; after an interim answer, wait for the final one."""
        status = self._parser.get_status_code()
        if status < 200:
            interim_count = self._interim_count + 1
            received_size = self._received_size
            self._reset()
            self._received_size = received_size
            self._interim_count = interim_count
            if interim_count > _CONTINUE_MAX:
                raise ValueError("too many interim answers")
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        response = HttpResponse(status, self._headers, body)
        keeps_alive = self._parser.should_keep_alive() and self._has_length_or_none(status)
        self._reset()
        self._hand_over(response, keeps_alive=keeps_alive)

    def _hand_over(self, response: HttpResponse, *, keeps_alive: bool) -> None:
        answer = self._answer
        if answer is not None and not answer.done():
            answer.set_result(response)
        if not keeps_alive or not self._is_written:
            self.abort()

    def _has_length_or_none(self, status: int) -> bool:
        return self._has_length or status in (204, 304)

    def _reset(self) -> None:
        self._headers = {}
        self._body = []
        self._body_size = 0
        self._received_size = 0
        self._interim_count = 0
        self._in_body = False
        self._has_length = False
        self._missing_size = 0

    def _fail(self, error: Exception) -> None:
        answer = self._answer
        if answer is not None and not answer.done():
            answer.set_exception(error)
        if not self._is_closed:
            self.abort()


class _BodyReceiver(asyncio.BufferedProtocol):
    """Replaces a connection's own protocol while the rest of a large body arrives.

    Bytes behind the body would remain in the socket and be taken for the next answer. So the memory
    has room for one of them.

    Args:
        connection: Gets all other events.
        begin: What has arrived of the body.
        size: The bytes of the whole body.
    """

    def __init__(self, connection: Http1Connection, begin: bytes, size: int) -> None:
        self._connection = connection
        self._size = size
        # Memory that can be written in place, and is ``bytes`` in the end without a copy.
        self._body = io.BytesIO(bytes(size + 1))
        self._body.write(begin)
        self._room = self._body.getbuffer()[len(begin) :]
        self.has_more = False  # True: a byte behind the body has arrived

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the memory for the next bytes."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Count bytes that have arrived."""
        self._room = self._room[nbytes:]
        if len(self._room) <= 1:
            self.has_more = not self._room
            self._connection.filled(self)

    def taken(self) -> bytes:
        """Return the body, which is complete."""
        self._room.release()
        self._body.truncate(self._size)
        return self._body.getvalue()

    def eof_received(self) -> bool:
        """Pass on the end."""
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on the loss."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass on the pause."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass on the end of the pause."""
        self._connection.resume_writing()
