"""The service's side of each connection: uvicorn's, with a direct way and with limits.

*The direct way.* uvicorn makes a task, an event and two or three more objects for every request.
A request of a hot route is an exchange (:mod:`.exchange`) instead: begun when its head is there,
completed when its body is, and answered in its turn (:mod:`.answer_queue`). A request whose head is
known from before (:mod:`.known_heads`), and that is there whole, does not even pass the parser; nor
does the body of a large upload (:mod:`.body_receiver`). What is rare is left to uvicorn, and comes
back as an ASGI call (:mod:`.asgi_exchange`): HTTP/1.0, Expect, an offered upgrade, a path in an
unusual form, a page's request with its Origin, what the guard refuses (:mod:`eruca_chassis.guard`),
and all that follows on a connection that is to be closed.

*Whose turn it is.* The states of a connection, and what moves it on::

    state      has                          a hot request  another     moved on by
    idle       nothing to do                exchanges      uvicorn's   a request
    exchanges  exchanges that are not ended exchanges      waiting     the last one's end: idle
    waiting    … and requests in pipeline   waiting        waiting     the last one's end: uvicorn's
    uvicorn's  one that uvicorn is at work  uvicorn's      uvicorn's   its end: the next in
               on, others in pipeline                                  pipeline, or idle

- exchanges that are not ended and a request that uvicorn is at work on are never there at once;
- a request is an exchange only where uvicorn has nothing to do, and none waits for it;
- what waits in ``pipeline`` came behind the exchanges, and is begun when they all have ended;
- at most ``AHEAD_MAX`` requests are begun or wait. Those behind them are held back as mere bytes,
  and nothing more is read, until an answer has been sent;
- a client that sends no more (a half-closed connection) is answered what is at work. What waits for
  something ends, and so does all behind it: a client that has left looks the same;
- in every state the connection may be *ending* (closed behind an answer that is decided on: what
  comes then is no exchange), *refused* (a last answer is written, what arrives is dropped,
  and :class:`.refusing.Lingering` has the transport) or lost.

*The limits.* uvicorn parses, keeps connections alive, stops reading while 64 KiB of a body wait for
the handler, and stops a handler from sending more while the last piece waits for the client. It
also stops reading as soon as a request comes behind another. A service that does not read does not
notice that its client leaves, so reading goes on here until what waits is much. uvicorn does not
bound: how long a request's head or body may take, how large a head is, how many requests are
pipelined, how long an answer may stay unread, nor how many bytes of unread answers there are in
all. And its own refusals are plain text. :class:`ServiceProtocol` mends these:

- *sizes* are counted as data arrives, to the byte (:mod:`.framing`);
- *refusals* are problems, told behind the answers to what came before. The client is given the time
  to read them (:mod:`.refusing`);
- *upgrades* offered with a body are ignored without losing the body, which uvicorn does (Java's
  client offers h2c with its first request; :mod:`.upgrades`);
- *unread answers*, *times* and *rates* are watched over all connections
  (:mod:`.connection_watch`).

Source: uvicorn 0.54, ``HttpToolsProtocol`` (whose attributes are relied upon: the tests over real
sockets notice when they change).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any, Final, cast

import httptools
import structlog
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from eruca.contract.errors import ErucaError, HeadTooLargeError, TargetTooLongError
from eruca_chassis.asgi import (
    Message,
    Receive,
    Scope,
    Send,
    joined_headers,
    new_request_id,
    request_id,
    size_said,
)
from eruca_chassis.connections.answer_queue import AnswerQueue
from eruca_chassis.connections.body_receiver import LARGE_BODY_SIZE_MIN, BodyReceiver, let_read
from eruca_chassis.connections.connection_watch import Admission, ConnectionWatch, Unfinished
from eruca_chassis.connections.exchange import Exchange, RequestHead
from eruca_chassis.connections.framing import HEAD_SIZE_MAX, Framing, check_framing
from eruca_chassis.connections.hot import HotRoutes
from eruca_chassis.connections.known_heads import HEAD_END, KnownHeads
from eruca_chassis.connections.lending import lending_by, lent_socket, unread_size
from eruca_chassis.connections.parsing import new_parser, unreadable
from eruca_chassis.connections.reading_flow import ReadingFlow
from eruca_chassis.connections.refusing import Lingering, last_answer, refuse_connection
from eruca_chassis.connections.upgrades import AfterUpgrade, head_for_body
from eruca_chassis.guard import Guard
from eruca_chassis.readiness import Readiness
from eruca_chassis.requests.targets import host_of_target

AHEAD_MAX: Final = 64  # requests of one connection under way; a client further ahead waits
SWEEP_SECONDS: Final = 1.0

_BUFFERED_SIZE_MIN: Final = 16 * 1024  # bytes of a body that it matters to copy once less

_log = structlog.get_logger()


class ServiceProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with exchanges, limits, and refusals that are problems."""

    # Set on the subclass that :func:`protocol_class` makes.
    watch: ConnectionWatch
    hot: HotRoutes
    heads: KnownHeads
    readiness: Readiness
    guard: Guard

    _idle_since = 0.0  # when it was made, or uvicorn's latest request ended; monotonic
    url = b""  # of the request whose head arrives
    _held_back = b""  # what has been read of requests that are not to begin yet
    _is_resuming = False  # whether it is about to be looked at again
    _is_half_closed = False  # whether the client sends no more
    _refusal: ErucaError | None = None  # of what came last; told behind the answers before it
    _refused_id: str | None = None  # of the request that is refused
    _arriving: RequestResponseCycle | None = None  # uvicorn's, whose body is arriving
    _is_refused = False
    _is_ending = False  # whether the connection is closed behind an answer that is decided on
    _has_room = True  # whether it is one of connections_max
    _is_amid = True  # a request; its first, to begin with
    _new_head = b""  # of the request that begins what the parser is fed, if it is there whole
    _latest: object = None  # what stands for the latest request
    _begun: RequestResponseCycle | None = None  # uvicorn's latest; ``cycle`` may only be waiting
    _receiving: Exchange | None = None  # whose body is arriving
    _body_size = 0  # bytes of uvicorn's latest request's body that have come
    _lent: socket.socket | None = None  # the connection, while another process writes to it

    def connection_made(  # type: ignore[override]  # as uvicorn's own
        self, transport: asyncio.Transport
    ) -> None:
        """Take the connection; or, beyond the limit, only to say so."""
        super().connection_made(transport)
        self.flow: ReadingFlow = ReadingFlow(transport)
        self._framing = Framing()
        self._answers = AnswerQueue(transport, self.flow, self._closes_behind_answer)
        self._idle_since = monotonic()
        descriptor = transport.get_extra_info("socket").fileno()
        admission = self.watch.admission(descriptor, self._idle_since)
        if admission is Admission.DROPPED:
            transport.abort()
        elif admission is Admission.REFUSED:
            self._has_room = False
            self.app = refuse_connection
        self.watch.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._lose_requests()
        self.watch.lost(self)

    # --- What arrives -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Begin the requests that arrive, as far as the client may be ahead of its answers."""
        if self._refusal is not None:
            return  # nothing behind what is refused is a request
        if self._held_back:
            self._held_back += data
        else:
            self._take(data)

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """Answer what is at work, although the client sends no more; return whether there is any.

        A client that has left altogether looks the same. So a request that waits for something
        ends here, and so does one that has not arrived whole.
        """
        self._is_half_closed = True
        if self._receiving is not None:
            self._drop_receiving()
        self._answers.lose_from_first_waiting()
        asgi = self._asgi_request()
        if asgi is not None:
            asgi.message_event.set()  # see _run_app
        return self._owes_answers()

    def _take(self, data: bytes) -> None:
        """Feed the parser piece by piece, and refuse what grows without coming to an end."""
        start, size = 0, len(data)
        while start < size:
            if not self._is_amid:
                if self._is_far_ahead():
                    self._hold_back(data[start:])
                    return
                start = self._take_known(data, start)
                if start == size:
                    return
            is_first = not self._framing.has_begun
            end = self._framing.next_end(data, start)
            if end == start:
                self.refuse(self._head_too_large())
                return
            if not self._feed(data if end - start == size else data[start:end], is_first=is_first):
                return
            start = end
        receiving = self._receiving
        if receiving is not None and receiving.missing_size >= LARGE_BODY_SIZE_MIN:
            let_read(self.transport, BodyReceiver(self, receiving, self._received))

    def _feed(self, piece: bytes, *, is_first: bool) -> bool:
        """Let the parser have a piece, maybe a head's first; return whether there may be more."""
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._ignore_upgrade()  # the piece ends where the head does
        except httptools.HttpParserError as error:
            self.refuse(unreadable(error, piece, is_first=is_first))
        return not self._is_refused and self._refusal is None

    def _received(self) -> None:
        """Go on behind a body that did not pass the parser."""
        let_read(self.transport, self)
        self.parser = new_parser(self)
        self.on_message_complete()

    def _take_known(self, data: bytes, start: int) -> int:
        """Take requests from *start* on whose heads are known and bodies whole.

        Returns where what is left for the parser begins, which has no part in them.
        """
        while self._takes_exchanges():
            head_end = data.find(HEAD_END, start)
            if head_end < 0:
                break
            end = head_end + len(HEAD_END)
            head = data[start:end]
            request = self.heads.find(head)
            if request is None:
                self._new_head = head
                break
            body_end = end + (request.body_size or 0)
            if body_end > len(data):
                break
            exchange = Exchange(self, request, self.client)
            self._latest = exchange
            if self.timeout_keep_alive_task is not None:
                self._unset_keepalive_if_required()
            self._begin(exchange)
            exchange.add(_own_copy(data, end, body_end))
            self._complete(exchange)
            start = body_end
            if start == len(data):
                break
        return start

    def _is_far_ahead(self) -> bool:
        """Tell whether the next request has to wait, unread, for an answer to one before it."""
        ahead = len(self._answers.exchanges) + len(self.pipeline)
        return ahead >= AHEAD_MAX

    def _hold_back(self, data: bytes) -> None:
        """Keep what has been read, and read no more: the client waits in its own buffers."""
        if not self.transport.is_closing():
            self._held_back = data
            self.flow.hold()

    def _go_on_reading(self) -> None:
        """Take what was held back, as far as there is room again."""
        self._is_resuming = False
        data, self._held_back = self._held_back, b""
        if not data or self._is_refused or self._is_ending or self.transport.is_closing():
            return
        self._take(data)
        if not self._held_back and not self.transport.is_closing():
            self.flow.release()

    def _has_answered(self) -> None:
        """See to what waits for an answer to be sent: requests that are held back, or the end."""
        if self._held_back:
            # Not at once: this may be called in the middle of what answers other requests, too.
            if not self._is_resuming:
                self._is_resuming = True
                self.loop.call_soon(self._go_on_reading)
        elif (self._refusal is not None or self._is_half_closed) and not self._owes_answers():
            if self._refusal is not None:
                self._refuse_now(self._refusal)
            else:
                self.loop.call_soon(self.transport.close)

    def _owes_answers(self) -> bool:
        has_waiting = bool(self._answers.exchanges or self.pipeline or self._held_back)
        return has_waiting or self._asgi_request() is not None

    def on_message_begin(self) -> None:
        """Take the first byte of a request; uvicorn's part waits until it is uvicorn's."""
        self._is_amid = True
        self._unset_keepalive_if_required()
        self._arriving = None
        self.url = b""
        self.headers = self._latest = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take the end of a head: the request goes one way or the other."""
        headers = joined_headers(self.headers)
        check_framing(self.parser.get_http_version(), headers)
        self._framing.head_ended(size_said(headers.get(b"content-length")) or 0)
        if not self.url.startswith(b"/") or b"#" in self.url:
            self._take_host_of_target()
        exchange = self._new_exchange(headers)
        self._new_head = b""
        self._receiving = exchange
        if exchange is None:
            self._leave_to_uvicorn()
        else:
            self._begin(exchange)

    def on_chunk_header(self) -> None:
        """Take the line in front of a chunk."""
        self._framing.chunk_came()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._framing.body_came(len(body))
        if self._receiving is not None:
            self._receiving.add(body)
        else:
            self._body_size += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self._framing.request_ended()
        self._is_amid = False
        exchange, self._receiving = self._receiving, None
        if exchange is None:
            self._arriving = None
            super().on_message_complete()
        else:
            self._complete(exchange)

    def _take_host_of_target(self) -> None:
        """Let the host in the request's target stand for the one in its Host, as RFC 9112 has it.

        Without a Host, or with several, the request is refused for that.
        """
        host = host_of_target(self.parser.get_method().decode(), self.url)
        names = [name for name, _ in self.headers]
        if host is not None and names.count(b"host") == 1:
            self.headers[names.index(b"host")] = (b"host", host)

    def _head_too_large(self) -> ErucaError:
        if self._receiving is not None or self._arriving is not None:
            detail = f"trailers or chunk extensions exceed head_size_max, {HEAD_SIZE_MAX} bytes"
            return HeadTooLargeError(detail)
        is_target = self._is_amid and 2 * len(self.url) > HEAD_SIZE_MAX
        kind = TargetTooLongError if is_target else HeadTooLargeError
        return kind(f"the request's head is larger than head_size_max, {HEAD_SIZE_MAX} bytes")

    # --- Exchanges --------------------------------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        """Send an answer, in its turn."""
        if exchange.is_lost:
            self._answers.end(exchange)
        elif self._answers.exchanges[0] is exchange:
            self._send_answers()

    def _takes_exchanges(self) -> bool:
        """Tell whether a request may be an exchange now: uvicorn has nothing to do."""
        begun = self._begun
        return not (
            (begun is not None and not begun.response_complete)
            or self.pipeline
            or self._is_ending
            or not self._has_room
            or len(self._answers.exchanges) >= AHEAD_MAX
        )

    def _new_exchange(self, headers: dict[bytes, bytes]) -> Exchange | None:
        """Return the exchange that the request is, or None where it is left to uvicorn."""
        if not self._takes_exchanges():
            return None
        parser = self.parser
        method = parser.get_method()
        path, _, query = self.url.partition(b"?")
        found = self.hot.find_raw(method, path)
        if found is None:
            return None
        is_usual = parser.get_http_version() == "1.1" and not parser.should_upgrade()
        if not is_usual or b"expect" in headers or b"origin" in headers:
            return None  # … what comes from a page, the application looks at more closely
        request = RequestHead(found, method.decode(), query, headers)
        try:
            self.guard.check(request.method, path, query, "1.1", headers)
        except ErucaError:
            return None  # … and what the guard refuses: the application asks it, too, and says why
        exchange = Exchange(self, request, self.client)
        if not parser.should_keep_alive():
            exchange.closes = self._is_ending = True
        elif self._new_head:
            self.heads.learn(self._new_head, request)
        return exchange

    def _begin(self, exchange: Exchange) -> None:
        self._answers.exchanges.append(exchange)
        if self.readiness.reason is not None and exchange.request.route.is_gated:
            exchange.fail(self.readiness.error())
        else:
            exchange.begin()

    def _complete(self, exchange: Exchange) -> None:
        exchange.complete()
        if self._is_ending and not self._answers.exchanges:
            self.transport.close()  # it was refused before its body was there, or is answered now

    def _send_answers(self) -> None:
        if self._answers.send():
            self._go_on()
        self._has_answered()

    def _closes_behind_answer(self) -> bool:
        """Tell whether the answer that begins, of the last exchange, is the connection's last."""
        if not self.watch.is_stopping or self.pipeline:
            return False
        self._is_ending = True
        return True

    def _go_on(self) -> None:
        """Close, let uvicorn begin, or wait for the next request: all exchanges have ended."""
        if self.watch.is_stopping and not self.pipeline:
            self._is_ending = True  # now at the latest: its answer may have begun before that
        if self._is_ending:
            if self._receiving is None:  # or closing would reset it under a client that still sends
                # Not within resume_writing, after which asyncio's transports would close once more.
                self.loop.call_soon(self.transport.close)
        elif self.pipeline:
            self.flow.resume_reading()
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    def _drop_receiving(self) -> None:
        """Forget the exchange whose body does not arrive: it is the last one."""
        exchange, self._receiving = self._receiving, None
        assert exchange is not None
        self._answers.drop(exchange)

    def _lose_requests(self) -> None:
        asgi = self._asgi_request()
        if asgi is not None:
            asgi.disconnected = True
            asgi.message_event.set()
        self._receiving = None
        self._answers.lose()

    # --- uvicorn's requests -----------------------------------------------------------------------

    def _leave_to_uvicorn(self) -> None:
        url, headers = self.url, self.headers
        self._body_size = 0
        super().on_message_begin()
        self.url = url
        self.headers = headers
        self.scope["headers"] = list(headers)  # without the trailers that may follow a body
        has_body = self.parser.get_method() != b"HEAD"
        self.scope["extensions"] = lending_by(self) if has_body else {}
        is_old = self.parser.get_http_version() == "1.0"  # … knows no 100 (Continue)
        self.expect_100_continue = not is_old and any(name == b"expect" for name, _ in headers)
        was_paused = self.flow.read_paused  # for a body that waits
        super().on_headers_complete()
        self._arriving = self.cycle
        if self.pipeline and not was_paused:
            self._read_on_behind_waiting()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        if self._answers.exchanges:  # which come first
            self.pipeline.appendleft((cycle, app))
        elif not self.transport.is_closing():
            self._begun = cycle
            self._answers.ended_at = None  # uvicorn has a timer for an idle connection
            if self.watch.is_stopping and not self.pipeline:
                cycle.keep_alive = False
            super()._start_asgi_task(cycle, partial(self._run_app, app, cycle))

    async def _run_app(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        cycle: RequestResponseCycle,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Run the application for one request; tell it that the client has left once it waits."""
        is_whole = False  # the request

        async def receive_or_end() -> Message:
            nonlocal is_whole
            if self._is_half_closed and (is_whole or cycle.more_body):
                return {"type": "http.disconnect"}
            message = await receive()
            if self._is_half_closed and (is_whole or message.get("more_body", False)):
                return {"type": "http.disconnect"}
            is_whole = not message.get("more_body", False)
            return message

        is_last = False  # of this connection

        async def send_or_end(message: Message) -> None:
            nonlocal is_last
            if cycle.waiting_for_100_continue and cycle.more_body:
                # The client may leave its body out now: nothing tells where the next request is.
                is_last = True
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
                await send(message)
                cycle.keep_alive = True  # or uvicorn would close under a client that does send it
            else:
                await send(message)

        try:
            await app(scope, receive_or_end, send_or_end)
            if is_last and cycle.response_complete and not self.transport.is_closing():
                self._linger()
        finally:
            if self._is_half_closed and not cycle.response_complete:
                cycle.disconnected = True  # or uvicorn would answer in the application's place
                self.pipeline.clear()
                self.transport.close()

    def on_response_complete(self) -> None:
        """Go on with what waits, or wait for the next request."""
        super().on_response_complete()
        self._idle_since = monotonic()
        if self._is_amid and not self.cycle.more_body:
            self._unset_keepalive_if_required()  # the next has begun, and has its own time
        self._has_answered()

    def _asgi_request(self) -> RequestResponseCycle | None:
        """Return the request that a handler of uvicorn's is at work on."""
        begun = self._begun
        return None if begun is None or begun.response_complete else begun

    def _read_on_behind_waiting(self) -> None:
        """Read on unless the bodies of the requests that wait are large."""
        waiting_size = sum(len(cycle.body) for cycle, _ in self.pipeline)
        if waiting_size <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[socket.socket]:
        """Lend the connection once everything that was written to it is on its way."""
        async with lent_socket(self.transport, self.flow.drain) as lent:
            self._lent = lent
            try:
                yield lent
            finally:
                self._lent = None

    # --- What the server and its watch ask --------------------------------------------------------

    def shutdown(self) -> None:
        """Close the connection, at once or behind the last answer that is under way."""
        if not self._answers.exchanges:
            super().shutdown()

    def pause_writing(self) -> None:
        """Hold the handler back: the transport is full."""
        super().pause_writing()
        self.watch.filled(self)

    def resume_writing(self) -> None:
        """Let the handler go on."""
        super().resume_writing()
        self.watch.drained(self)
        if self._answers.exchanges:
            self._send_answers()

    def unread_size(self) -> int:
        """Return how many bytes are still to be read by the client."""
        if self._lent is not None:
            return unread_size(self._lent)
        return self.transport.get_write_buffer_size()

    def unfinished_state(self) -> Unfinished | None:
        """Return what is being waited for from the client, or None for nothing."""
        unread_size = self.unread_size()
        asgi = self._asgi_request()
        if unread_size:
            read_size = self._answers.written_size - unread_size
            return Unfinished(unread_size, self._latest, read_size, is_counted=asgi is None)
        if self._is_refused or self._refusal is not None:
            return None  # it has a timer of its own, or waits for its turn
        if self._receiving is not None:
            return Unfinished(0, self._latest, self._receiving.received_size)
        has_enough = asgi is not None and (not asgi.more_body or self.flow.read_paused)
        if self._answers.exchanges or self.pipeline or has_enough:
            return None  # it is the handler's turn
        is_idle = self._answers.ended_at is not None and not self._is_amid
        if is_idle or self.timeout_keep_alive_task is not None:
            return None
        return Unfinished(0, self._latest, self._body_size, is_head=asgi is None)

    def close_idle(self, now: float) -> None:
        """Close the connection if nothing has been asked on it for the keep-alive time.

        Behind an ordinary request uvicorn's own timer does it.
        """
        since = self._answers.ended_at
        is_idle = since is not None and not self._answers.exchanges
        if since is not None and is_idle and now - since > self.timeout_keep_alive:
            self.transport.close()

    def idle_since(self) -> float | None:
        """Return since when nothing is asked on it; None: something is, or it is being closed."""
        is_busy = self._answers.exchanges or self.pipeline or self._asgi_request() is not None
        if is_busy or self._is_refused or self.transport.is_closing() or self.unread_size():
            return None
        if self._is_amid and (self._latest is not None or self._framing.has_begun):
            return None  # a request has begun to come
        return max(self._answers.ended_at or 0, self._idle_since)

    def make_room(self) -> None:
        """Close the connection, which is idle."""
        self.transport.close()

    def cut(self, why: str) -> None:
        """Drop the connection with whatever it has not read."""
        _log.warning("connection cut", client=self.client, why=why)
        self.transport.abort()

    def refuse(self, error: ErucaError) -> None:
        """Answer with a problem and close, in its turn; or cut where its answer has begun.

        What came whole before is answered first.
        """
        receiving = self._receiving
        if receiving is not None and not receiving.status:
            self._refused_id = receiving.request_id
            self._drop_receiving()
        elif receiving is None and self._arriving is not None:
            cycle = self._arriving
            waiting = [(waiting, app) for waiting, app in self.pipeline if waiting is not cycle]
            if len(waiting) < len(self.pipeline):
                self._refused_id = request_id(cast("Scope", cycle.scope))
                self.pipeline = deque(waiting)
                self._arriving = None
        comes_first = self._answers.exchanges or self._asgi_request() not in (None, self._arriving)
        if comes_first and self._receiving is None:
            self._refusal = error
        else:
            self._refuse_now(error)

    def _refuse_now(self, error: ErucaError) -> None:
        if self.transport.is_closing() or self._has_begun_answer():
            self.cut(error.detail)
            return
        self._refusal = None
        self.transport.write(last_answer(error, self._id_of_refused()))
        self._linger()

    def _linger(self) -> None:
        """End the connection behind what is written; drop what still arrives."""
        self.transport.write_eof()
        self._is_refused = True
        let_read(self.transport, Lingering(self, self.transport))
        self._lose_requests()

    def _id_of_refused(self) -> str:
        """Return the id of the request under way; a new one where its head was not understood."""
        if self._refused_id is not None:
            return self._refused_id
        if self._receiving is not None:
            return self._receiving.request_id
        asgi = self._asgi_request()
        return new_request_id() if asgi is None else request_id(cast("Scope", asgi.scope))

    def _has_begun_answer(self) -> bool:
        """Tell whether a part of an answer, or one to a request that still arrives, is written."""
        if self._answers.has_begun_answer:
            return True
        if self._receiving is not None:
            return bool(self._receiving.status)  # it was refused without its whole body
        asgi = self._asgi_request()
        return asgi is not None and asgi.response_started

    def _ignore_upgrade(self) -> None:
        """Go on behind the head of a request that offers an upgrade, as if it offered none."""
        head = head_for_body(self.headers)
        if not head:
            return
        size = size_said(dict(self.headers).get(b"content-length")) or 0
        self._framing.head_ended(size)
        self._is_amid = True
        self._arriving = self.cycle
        self.cycle.more_body = True
        self.cycle.message_event.clear()
        self.parser = new_parser(AfterUpgrade(self))
        self.parser.feed_data(head)


def protocol_class(
    watch: ConnectionWatch, hot: HotRoutes, readiness: Readiness, guard: Guard
) -> type[ServiceProtocol]:
    """Return the protocol class of a service's connections, which *watch* looks after."""
    parts = {
        "watch": watch,
        "hot": hot,
        "heads": KnownHeads(),
        "readiness": readiness,
        "guard": guard,
    }
    return type("ServedProtocol", (ServiceProtocol,), parts)


def _own_copy(data: bytes, start: int, end: int) -> bytes | bytearray:
    """Return a body that is part of *data*; a larger one as the buffer that it is wanted in."""
    if end - start < _BUFFERED_SIZE_MIN:
        return data[start:end]
    return bytearray(memoryview(data)[start:end])
