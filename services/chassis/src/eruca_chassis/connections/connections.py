"""The service's side of each connection: uvicorn's protocol, with a direct path and with limits.

*The direct path.* uvicorn creates a task, an event and two or three more objects for every request.
A request of a hot route is an exchange (:mod:`.exchange`) instead: it begins with its head, is
complete with its body, and is answered in its turn (:mod:`.answer_queue`). A complete request with
a known head (:mod:`.known_heads`) even bypasses the parser, and so does the body of a large upload
(:mod:`.body_receiver`). Rare cases are left to uvicorn and return as ASGI calls
(:mod:`.asgi_exchange`): HTTP/1.0, Expect, an offered upgrade, a path in an unusual form, a page's
request with its Origin, requests that the guard refuses (:mod:`eruca_chassis.guard`), and all that
follows on a connection about to close.

Small requests with a known head may be *gathered*: their endpoint answers many of them together,
and no exchange is made for them (:mod:`.gathered`).

*States.* The states of a connection, and the events between them::

    state      has                          a hot request  another     left on
    idle       nothing to do                exchanges      uvicorn's   a request
    exchanges  exchanges that have not      exchanges      waiting     the last one's end: idle
               ended
    waiting    … and requests in pipeline   waiting        waiting     the last one's end: uvicorn's
    uvicorn's  one that uvicorn works on,   uvicorn's      uvicorn's   its end: the next in
               others in pipeline                                      pipeline, or idle

- unfinished exchanges and a request in uvicorn's hands never exist at once;
- a request becomes an exchange only if uvicorn has nothing to do and no request waits for it;
- requests in ``pipeline`` came after the exchanges, and begin when all of these have ended;
- at most ``AHEAD_MAX`` requests are begun or wait. Later ones are held back as mere bytes, and
  nothing more is read until an answer has been sent;
- if the client half-closes, requests in progress are answered. A request that waits for an event
  ends, and so do all after it: a client that has left looks the same;
- in every state the connection may also be *ending* (it closes after an answer that is decided, and
  later requests are no exchanges), *refused* (a last answer is written, arriving bytes are dropped,
  and :class:`.refusing.Lingering` has the transport) or lost.

*The limits.* uvicorn parses, keeps connections alive, stops reading while 64 KiB of a body wait for
the handler, and stops a handler from sending while its last piece waits for the client. It also
stops reading as soon as one request follows another. A service that does not read does not notice
that its client leaves, so here reading continues until much waits. uvicorn does not limit: the time
of a request's head or body, the size of a head, the number of pipelined requests, the time an
answer stays unread, or the unread bytes of all answers. And its own refusals are plain text.
:class:`ServiceProtocol` adds these:

- *sizes* are counted as data arrives, to the byte (:mod:`.framing`);
- *refusals* are problem documents, sent after the answers to earlier requests. The client gets time
  to read them (:mod:`.refusing`);
- *upgrades* offered with a body are ignored without losing the body; uvicorn loses it (Java's
  client offers h2c with its first request; :mod:`.upgrades`);
- *unread answers*, *times* and *rates* are watched over all connections
  (:mod:`.connection_watch`).

Source: uvicorn 0.54, ``HttpToolsProtocol`` (this class relies on its attributes: the tests over
real sockets detect when they change).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
import structlog
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from eruca.contract.errors import ErucaError, HeadTooLargeError, TargetTooLongError
from eruca_chassis.admission.certificates import (
    HEADER,
    ClientCertificate,
    certificate_of,
    forwarded_certificate,
)
from eruca_chassis.admission.gate import CERTIFICATE_KEY, CONNECTION_KEY, Gate, Quota
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
from eruca_chassis.connections.gathered import GatheredRequest
from eruca_chassis.connections.hot import HotRoutes
from eruca_chassis.connections.known_heads import HEAD_END, KnownHeads, NoKnownHeads
from eruca_chassis.connections.lending import (
    lending_by,
    lent_socket,
    relayed_socket,
    unread_size,
)
from eruca_chassis.connections.parsing import new_parser, unreadable
from eruca_chassis.connections.peers import Peer, forwarded_peer
from eruca_chassis.connections.reading_flow import ReadingFlow
from eruca_chassis.connections.refusing import Lingering, last_answer, refuse_connection
from eruca_chassis.connections.traced import TracedAnswerQueue, traced_exchange
from eruca_chassis.connections.upgrades import AfterUpgrade, head_for_body
from eruca_chassis.guard import Guard
from eruca_chassis.readiness import Readiness
from eruca_chassis.requests.targets import host_of_target

if TYPE_CHECKING:
    from eruca_chassis.spans.otel import OtelTracing

AHEAD_MAX: Final = 64  # requests in progress per connection; later ones wait unread
SWEEP_SECONDS: Final = 1.0

_BUFFERED_SIZE_MIN: Final = 16 * 1024  # bytes of a body for which avoiding a copy matters

_log = structlog.get_logger()


class ServiceProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with exchanges, limits, and refusals that are problems."""

    # Set on the subclass that :func:`protocol_class` makes.
    watch: ConnectionWatch
    hot: HotRoutes
    heads: KnownHeads
    readiness: Readiness
    guard: Guard
    gate: Gate | None
    exchange_class: type[Exchange] = Exchange
    may_gather = True  # whether requests may be gathered
    queue_class: type[AnswerQueue] = AnswerQueue

    _idle_since = 0.0  # when it was created, or uvicorn's latest request ended; monotonic
    url = b""  # of the request whose head is arriving
    _held_back = b""  # bytes read of requests that must not begin yet
    _is_resuming = False  # whether _go_on_reading is scheduled
    _is_half_closed = False  # whether the client has closed its sending side
    _refusal: ErucaError | None = None  # of the last request; sent after the answers before it
    _refused_id: str | None = None  # request id for the refusal
    _arriving: RequestResponseCycle | None = None  # uvicorn's, whose body is arriving
    _is_refused = False
    _is_ending = False  # whether the connection closes after an answer that is decided
    _has_room = True  # whether it is within connections_max
    _is_amid = True  # whether a request has begun to arrive; at first the first one counts
    _new_head = b""  # of the request at the start of the parser's input, if complete
    latest: object = None  # identity of the latest request
    _begun: RequestResponseCycle | None = None  # uvicorn's latest; ``cycle`` may only be waiting
    _receiving: Exchange | None = None  # the exchange whose body is arriving
    _body_size = 0  # bytes received of the body of uvicorn's latest request
    _lent: socket.socket | None = None  # the connection, while another process writes to it
    certificate: ClientCertificate | None = None  # the client's, verified
    _admitted: bytes | None = None  # credentials that the gate has admitted on this connection
    _quotas: tuple[Quota, ...] = ()  # that count it
    _unnamed: tuple[int, bytes | None] | None = None  # rules and credentials without other names
    own_peer: Peer | None = None  # the client, by the word of a proxy on a Unix socket

    def connection_made(  # type: ignore[override]  # as uvicorn's own
        self, transport: asyncio.Transport
    ) -> None:
        """Accept the connection; beyond the limit, only in order to refuse its requests."""
        super().connection_made(transport)
        if self.own_peer is not None:
            self.client = self.own_peer
        tls = transport.get_extra_info("ssl_object")
        shown = None if tls is None else tls.getpeercert(binary_form=True)
        if shown is not None:
            self.certificate = certificate_of(shown)
        self.flow: ReadingFlow = ReadingFlow(transport)
        self._framing = Framing()
        self._answers = self.queue_class(transport, self.flow, self._closes_behind_answer)
        self._gathered = GatheredRequest(self, transport, self.flow, self._answers)
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
        """Remove the connection."""
        super().connection_lost(exc)
        self._lose_requests()
        for quota in self._quotas:
            quota.lost(self)
        self._quotas = ()
        self.watch.lost(self)

    # --- Arriving bytes ---------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Begin the requests that arrive, within the limit of unanswered ones."""
        gathered = self._gathered
        if gathered.data is not None:
            gathered.draw()
        elif (
            len(data) == gathered.size
            and data.startswith(gathered.begin)
            and self._may_be_gathered(gathered.request)
            and gathered.take(data)
        ):
            return
        if self._refusal is not None:
            return  # bytes after a refused request are not parsed
        if self._held_back:
            self._held_back += data
        else:
            self._take(data)

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """Answer requests in progress after a half-close; return whether there are any.

        A client that has left altogether looks the same. So a request that waits for an event ends
        here, and so does an incomplete one.
        """
        self._is_half_closed = True
        if self._gathered.data is not None:
            self._gathered.draw()
        if self._receiving is not None:
            self._drop_receiving()
        self._answers.lose_from_first_waiting()
        asgi = self._asgi_request()
        if asgi is not None:
            asgi.message_event.set()  # see _run_app
        return self._owes_answers()

    def _take(self, data: bytes) -> None:
        """Feed the parser piece by piece; refuse a head or a frame that exceeds its limit."""
        start, size = 0, len(data)
        while start < size:
            if not self._is_amid:
                if (self._answers.exchanges or self.pipeline) and self._is_far_ahead():
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
        """Feed the parser one piece, maybe the first of a head; return whether more may follow."""
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._ignore_upgrade()  # the piece ends exactly at the head's end
        except httptools.HttpParserError as error:
            self.refuse(unreadable(error, piece, is_first=is_first))
        return not self._is_refused and self._refusal is None

    def _received(self) -> None:
        """Resume parsing after a body that bypassed the parser."""
        let_read(self.transport, self)
        self.parser = new_parser(self)
        self.on_message_complete()

    def _take_known(self, data: bytes, start: int) -> int:
        """Begin complete requests from *start* on whose heads are known.

        Returns the index of the first byte for the parser, which has seen nothing of them.
        """
        while self._takes_exchanges():
            head_end = data.find(HEAD_END, start)
            if head_end < 0:
                break
            end = head_end + len(HEAD_END)
            head = data[start:end]
            request = self.heads.find(head)
            if request is None or not (self.gate is None or self._has_admitted(request)):
                self._new_head = head
                break
            body_end = end + (request.body_size or 0)
            if body_end == len(data) and not start and self._gathers(request, data, end):
                return body_end
            if body_end > len(data):
                if body_end - len(data) < LARGE_BODY_SIZE_MIN:
                    break
                self._begin_large(request, memoryview(data)[end:])
                return len(data)
            exchange = self._known_exchange(request)
            self._begin(exchange)
            exchange.add(_own_copy(data, end, body_end))
            self._complete(exchange)
            start = body_end
            if start == len(data):
                break
        return start

    def _gathers(self, request: RequestHead, data: bytes, body_at: int) -> bool:
        """Let a request with a known head, of all bytes in *data*, be gathered if it may be."""
        gathered = self._gathered
        return (
            request.gathers is not None
            and self._may_be_gathered(request)
            and gathered.expect(request, data, body_at)
            and gathered.take(data)
        )

    def _may_be_gathered(self, request: RequestHead) -> bool:
        """Return whether a request that begins now, with a known head, would be admitted at once.

        Whatever it answers must not be an answer after which the connection closes.
        """
        begun = self._begun
        if (
            self._is_amid
            or self._answers.exchanges
            or self.flow.write_paused
            or (begun is not None and not begun.response_complete)
            or self.pipeline
            or self._held_back
            or self._is_ending
            or self._refusal is not None
            or not self._has_room
            or not self.may_gather
            or not self.readiness.is_open
            or self.watch.is_stopping
        ):
            return False
        if self.gate is not None:
            admission = request.admission
            if (
                admission is None
                or admission.quota is not None
                or not self._has_admitted(request)
                or not admission.holds(monotonic())
            ):
                return False
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        return True

    @property
    def is_stopping(self) -> bool:
        """True if each answer may be the connection's last."""
        return self.watch.is_stopping

    def carry(self, request: RequestHead) -> Exchange:
        """Return the exchange of a request that was gathered; it works, without an admission."""
        exchange = self._known_exchange(request)
        self._answers.exchanges.append(exchange)
        return exchange

    def _known_exchange(self, request: RequestHead) -> Exchange:
        """Return the exchange, which has to begin, of a request whose head is known."""
        exchange = self.exchange_class(self, request, self.client)
        if self.certificate is not None:
            exchange.certificate = self.certificate
        self.latest = exchange
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        return exchange

    def _begin_large(self, request: RequestHead, come: memoryview) -> None:
        """Begin a request whose head is known and whose large body has only begun to arrive.

        The parser sees nothing of it. If it is refused already, its body is dropped as it arrives.
        """
        self._is_amid = True
        self._arriving = None
        # Before it begins: a refusal at once must not close on a client that still sends.
        self._receiving = exchange = self._known_exchange(request)
        self._begin(exchange)
        exchange.begin_large(come)
        let_read(self.transport, BodyReceiver(self, exchange, self._received))

    def _has_admitted(self, request: RequestHead) -> bool:
        """Return whether the gate knows that these credentials are used from this connection.

        It records uses from each address, so it must see the first one of a connection.
        """
        return request.headers.get(b"authorization") == self._admitted

    def _is_far_ahead(self) -> bool:
        """Return whether the next request must wait, unread, for an earlier answer."""
        ahead = len(self._answers.exchanges) + len(self.pipeline)
        return ahead >= AHEAD_MAX

    def _hold_back(self, data: bytes) -> None:
        """Keep bytes already read, and stop reading: the client's own buffers fill up."""
        if not self.transport.is_closing():
            self._held_back = data
            self.flow.hold()

    def _go_on_reading(self) -> None:
        """Parse the bytes held back, as far as there is room again."""
        self._is_resuming = False
        data, self._held_back = self._held_back, b""
        if not data or self._is_refused or self._is_ending or self.transport.is_closing():
            return
        self._take(data)
        if not self._held_back and not self.transport.is_closing():
            self.flow.release()

    def _has_answered(self) -> None:
        """Continue after an answer was sent: with held-back requests, a refusal, or closing."""
        if self._held_back:
            # Not at once: the caller may be in the middle of answering other requests.
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
        """Begin a request; uvicorn's own part runs only if the request is left to it."""
        self._is_amid = True
        self._unset_keepalive_if_required()
        self._arriving = None
        self.url = b""
        self.headers = self.latest = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Dispatch a request whose head is complete: to an exchange or to uvicorn."""
        headers = joined_headers(self.headers)
        check_framing(self.parser.get_http_version(), headers)
        self._framing.head_ended(size_said(headers.get(b"content-length")) or 0)
        if not self.url.startswith(b"/") or b"#" in self.url:
            self._take_host_of_target()
        exchange = self._new_exchange(headers)
        head, self._new_head = self._new_head, b""
        self._receiving = exchange
        if exchange is None:
            self._leave_to_uvicorn()
            return
        self._begin(exchange)
        if exchange.request.admission is not None:
            self._admitted = headers.get(b"authorization")
        if head and not exchange.closes and self._may_be_known(exchange.request):
            self.heads.learn(head, exchange.request)

    def _may_be_known(self, request: RequestHead) -> bool:
        """Return whether the decision about a head is the same on every connection."""
        if self.gate is None:
            return True
        # A connection's certificate is not in the head: another one's may be somebody else's.
        is_said = self.certificate is None or b"authorization" in request.headers
        # Heads that the gate refuses are not cached: anybody could displace the others with them.
        return is_said and request.admission is not None

    def on_chunk_header(self) -> None:
        """Count the size line of a chunk."""
        self._framing.chunk_came()

    def on_body(self, body: bytes) -> None:
        """Store a piece of the body."""
        self._framing.body_came(len(body))
        if self._receiving is not None:
            self._receiving.add(body)
        else:
            self._body_size += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Complete a request."""
        self._framing.request_ended()
        self._is_amid = False
        exchange, self._receiving = self._receiving, None
        if exchange is None:
            self._arriving = None
            super().on_message_complete()
        else:
            self._complete(exchange)

    def _take_host_of_target(self) -> None:
        """Use the host of the request's target instead of the Host header, as RFC 9112 requires.

        A request without a Host header, or with several, is refused later for that.
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

    # --- Quotas -----------------------------------------------------------------------------------

    @property
    def connection(self) -> ServiceProtocol:
        """The connection of the exchanges that it carries."""
        return self

    def counted_by(self, quota: Quota) -> None:
        """Tell *quota* once the connection is closed."""
        self._quotas = (*self._quotas, quota)

    # --- Exchanges --------------------------------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        """Send an answer when its turn comes."""
        if exchange.is_lost:
            self._answers.end(exchange)
        elif self._answers.exchanges[0] is exchange:
            self._send_answers()

    def _takes_exchanges(self) -> bool:
        """Return whether a request may become an exchange now: uvicorn has nothing to do."""
        begun = self._begun
        return not (
            (begun is not None and not begun.response_complete)
            or self.pipeline
            or self._is_ending
            or not self._has_room
            or len(self._answers.exchanges) >= AHEAD_MAX
        )

    def _new_exchange(self, headers: dict[bytes, bytes]) -> Exchange | None:
        """Return a new exchange for the request, or None if it is left to uvicorn."""
        if not self._takes_exchanges():
            return None
        parser = self.parser
        method = parser.get_method()
        path, _, query = self.url.partition(b"?")
        found = self.hot.find_raw(method, path)
        if found is None:
            return None
        if self.gate is not None and self.gate.has_namings and self._is_renamed(headers):
            return None  # the application changes its names
        is_usual = parser.get_http_version() == "1.1" and not parser.should_upgrade()
        if not is_usual or b"expect" in headers or b"origin" in headers:
            return None  # the application also checks the origin of a page
        request = RequestHead(found, method.decode(), self.url, headers)
        try:
            self.guard.check(request.method, path, query, "1.1", headers)
        except ErucaError:
            return None  # the application asks the guard again, and answers why
        exchange = self.exchange_class(self, request, self.client)
        exchange.certificate = self.certificate
        if not parser.should_keep_alive():
            exchange.closes = self._is_ending = True
        return exchange

    def _is_renamed(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether the caller has other names than the service."""
        gate = self.gate
        assert gate is not None, "callers are known by a gate"
        said = (gate.version, headers.get(b"authorization"))
        if self._unnamed == said:
            return False  # as the last request's caller on this connection
        if gate.naming_of(headers, self.certificate) is not None:
            return True
        if not isinstance(self, ForwardedProtocol):  # whose certificate changes
            self._unnamed = said
        return False

    def _begin(self, exchange: Exchange) -> None:
        self._answers.exchanges.append(exchange)
        self.admit(exchange)

    def admit(self, exchange: Exchange) -> None:
        """Let an exchange in the queue begin, or refuse it."""
        route = exchange.request.route
        if self.gate is not None and not exchange.admit(self.gate):
            return
        if not self.readiness.is_open:
            exchange.door = self.readiness.door
            refusal = self.readiness.refusal(route.operation) if route.is_gated else None
            if refusal is not None:
                exchange.fail(refusal)
                return
        exchange.begin()

    def _complete(self, exchange: Exchange) -> None:
        exchange.complete()
        if self._is_ending and not self._answers.exchanges:
            self.transport.close()  # it was answered before its body was complete, or just now

    def _send_answers(self) -> None:
        if self._answers.send():
            self._go_on()
        self._has_answered()

    def _closes_behind_answer(self) -> bool:
        """Return whether the answer that begins, of the last exchange, is the connection's last."""
        if not self.watch.is_stopping or self.pipeline:
            return False
        self._is_ending = True
        return True

    def _go_on(self) -> None:
        """Close, let uvicorn begin, or become idle, after the last exchange has ended."""
        if self.watch.is_stopping and not self.pipeline:
            self._is_ending = True  # its answer may have begun before the shutdown
        if self._is_ending:
            if self._receiving is None:  # otherwise closing would reset a client that still sends
                # Not inside resume_writing: asyncio's transports would close a second time.
                self.loop.call_soon(self.transport.close)
        elif self.pipeline:
            self.flow.resume_reading()
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    def _drop_receiving(self) -> None:
        """Drop the exchange whose body will not arrive completely; it is the last one."""
        exchange, self._receiving = self._receiving, None
        assert exchange is not None
        self._answers.drop(exchange)

    def _lose_requests(self) -> None:
        asgi = self._asgi_request()
        if asgi is not None:
            asgi.disconnected = True
            asgi.message_event.set()
        self._receiving = None
        if self._gathered.data is not None:
            self._gathered.draw()
        self._answers.lose()

    # --- uvicorn's requests -----------------------------------------------------------------------

    def _leave_to_uvicorn(self) -> None:
        url, headers = self.url, self.headers
        self._body_size = 0
        super().on_message_begin()
        self.url = url
        self.headers = headers
        self.scope[CONNECTION_KEY] = self  # type: ignore[typeddict-unknown-key]
        self.scope["headers"] = list(headers)  # a copy without the trailers that may follow
        has_body = self.parser.get_method() != b"HEAD"
        self.scope["extensions"] = lending_by(self) if has_body else {}
        self.scope[CERTIFICATE_KEY] = self.certificate  # type: ignore[typeddict-unknown-key]
        is_old = self.parser.get_http_version() == "1.0"  # which has no 100 (Continue)
        self.expect_100_continue = not is_old and any(name == b"expect" for name, _ in headers)
        was_paused = self.flow.read_paused  # because of a waiting body
        super().on_headers_complete()
        self._arriving = self.cycle
        if self.pipeline and not was_paused:
            self._read_on_behind_waiting()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        if self._answers.exchanges:  # they come first
            self.pipeline.appendleft((cycle, app))
        elif not self.transport.is_closing():
            self._begun = cycle
            self._answers.ended_at = None  # uvicorn's own timer closes an idle connection
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
        """Run the application for one request; report a half-close as soon as it waits."""
        is_whole = False  # whether the request is complete

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
                # The client may omit its body now, so the start of the next request is unknown.
                is_last = True
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
                await send(message)
                cycle.keep_alive = True  # otherwise uvicorn would close on a client that sends it
            else:
                await send(message)

        try:
            await app(scope, receive_or_end, send_or_end)
            if is_last and cycle.response_complete and not self.transport.is_closing():
                self._linger()
        finally:
            if self._is_half_closed and not cycle.response_complete:
                cycle.disconnected = True  # otherwise uvicorn would send an answer of its own
                self.pipeline.clear()
                self.transport.close()

    def on_response_complete(self) -> None:
        """Begin the next waiting request, or become idle."""
        super().on_response_complete()
        self._idle_since = monotonic()
        if self._is_amid and not self.cycle.more_body:
            self._unset_keepalive_if_required()  # the next request has begun, with its own limit
        self._has_answered()

    def _asgi_request(self) -> RequestResponseCycle | None:
        """Return the request on which uvicorn works, or None."""
        begun = self._begun
        return None if begun is None or begun.response_complete else begun

    def _read_on_behind_waiting(self) -> None:
        """Continue reading unless the bodies of waiting requests are large."""
        waiting_size = sum(len(cycle.body) for cycle, _ in self.pipeline)
        if waiting_size <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[socket.socket]:
        """Lend the connection, once all bytes written so far have left the transport."""
        # A process that writes to a TLS connection's own socket would bypass its encryption.
        is_encrypted = self.scheme == "https"
        lending = relayed_socket if is_encrypted else lent_socket
        async with lending(self.transport, self.flow.drain) as lent:
            self._lent = lent
            try:
                yield lent
            finally:
                self._lent = None

    # --- For the server and the watch -------------------------------------------------------------

    def shutdown(self) -> None:
        """Close the connection, at once or after the last answer in progress."""
        if self._gathered.data is not None:
            self._gathered.draw()
        if not self._answers.exchanges:
            super().shutdown()

    def pause_writing(self) -> None:
        """Pause the handler: the transport is full."""
        super().pause_writing()
        self.watch.filled(self)

    def resume_writing(self) -> None:
        """Resume the handler."""
        super().resume_writing()
        self.watch.drained(self)
        if self._answers.exchanges:
            self._send_answers()

    def unread_size(self) -> int:
        """Return how many bytes the client has not read yet."""
        size = self.transport.get_write_buffer_size()
        return size if self._lent is None else size + unread_size(self._lent)

    def unfinished_state(self) -> Unfinished | None:
        """Return the client's pending work, or None if there is none."""
        unread_size = self.unread_size()
        asgi = self._asgi_request()
        if unread_size:
            read_size = self._answers.written_size - unread_size
            return Unfinished(unread_size, self.latest, read_size, is_counted=asgi is None)
        if self._is_refused or self._refusal is not None:
            return None  # it has its own timer, or waits for its turn
        if self._receiving is not None:
            return Unfinished(0, self.latest, self._receiving.received_size)
        has_enough = asgi is not None and (not asgi.more_body or self.flow.read_paused)
        is_working = self._answers.exchanges or self._gathered.data is not None
        if is_working or self.pipeline or has_enough:
            return None  # it is the handler's turn
        is_idle = self._answers.ended_at is not None and not self._is_amid
        if is_idle or self.timeout_keep_alive_task is not None:
            return None
        return Unfinished(0, self.latest, self._body_size, is_head=asgi is None)

    def recheck(self, now: float) -> None:
        """End exchanges that wait, and whose admission no longer holds at a monotonic time."""
        for exchange in tuple(self._answers.exchanges):
            exchange.recheck(now)

    def close_idle(self, now: float) -> None:
        """Close the connection if it has been idle for the keep-alive time.

        After an ordinary request uvicorn's own timer does this.
        """
        since = self._answers.ended_at
        is_idle = not self._answers.exchanges and self._gathered.data is None
        if since is not None and is_idle and now - since > self.timeout_keep_alive:
            self.transport.close()

    def idle_since(self) -> float | None:
        """Return since when the connection is idle; None if it is busy or closing."""
        is_busy = self._answers.exchanges or self.pipeline or self._asgi_request() is not None
        is_busy = is_busy or self._gathered.data is not None
        if is_busy or self._is_refused or self.transport.is_closing() or self.unread_size():
            return None
        if self._is_amid and (self.latest is not None or self._framing.has_begun):
            return None  # a request has begun to arrive
        return max(self._answers.ended_at or 0, self._idle_since)

    def make_room(self) -> None:
        """Close the connection, which is idle."""
        self.transport.close()

    def cut(self, why: str) -> None:
        """Drop the connection and all unread bytes."""
        _log.warning("connection cut", client=self.client, why=why)
        self.transport.abort()

    def refuse(self, error: ErucaError) -> None:
        """Answer with a problem in its turn and close; or cut if its answer has begun.

        Complete requests before it are answered first.
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
        """End the connection after the bytes written; drop those that still arrive."""
        if self.transport.can_write_eof():  # not over TLS: the client sees the end of the answer
            self.transport.write_eof()
        self._is_refused = True
        let_read(self.transport, Lingering(self, self.transport))
        self._lose_requests()

    def _id_of_refused(self) -> str:
        """Return the id of the request in progress; a new id if its head could not be parsed."""
        if self._refused_id is not None:
            return self._refused_id
        if self._receiving is not None:
            return self._receiving.request_id
        asgi = self._asgi_request()
        return new_request_id() if asgi is None else request_id(cast("Scope", asgi.scope))

    def _has_begun_answer(self) -> bool:
        """Return whether a part of an answer was written, or all of it before its request's end."""
        if self._answers.has_begun_answer:
            return True
        if self._receiving is not None:
            return bool(self._receiving.status)  # it was answered before its body was complete
        asgi = self._asgi_request()
        return asgi is not None and asgi.response_started

    def _ignore_upgrade(self) -> None:
        """Continue after the head of a request that offers an upgrade, as if it offered none."""
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


class ForwardedProtocol(ServiceProtocol):
    """The protocol of a Unix socket whose proxy describes the client in each request's headers.

    Two clients may send equal heads but for these headers, so heads that are known are not looked
    up.
    """

    # Set on the subclass that :func:`protocol_class` makes.
    names_address: bool
    names_certificate: bool

    def on_headers_complete(self) -> None:
        """Take the request's client from its headers, then dispatch it."""
        if self.names_address:
            self.client = forwarded_peer(self._values(b"forwarded"))
        if self.names_certificate:
            self.certificate = forwarded_certificate(b",".join(self._values(HEADER)))
        super().on_headers_complete()

    def _values(self, name: bytes) -> list[bytes]:
        return [value for found, value in self.headers if found == name]


def protocol_class(
    watch: ConnectionWatch,
    hot: HotRoutes,
    readiness: Readiness,
    guard: Guard,
    gate: Gate | None = None,
    *,
    is_forwarded: bool = False,
    is_certified: bool = False,
    tracing: OtelTracing | None = None,
) -> type[ServiceProtocol]:
    """Return the protocol class for a service's connections.

    Args:
        watch: Supervises them.
        hot: The hot routes.
        readiness: Whether the service takes requests.
        guard: Decides about each head.
        gate: Decides who may do what; None: everybody may do everything.
        is_forwarded: Whether they come from a proxy on a Unix socket that sets *Forwarded*.
        is_certified: Whether they come from a proxy on a Unix socket that sets *Client-Cert*.
        tracing: Makes spans of requests; None: there are none.
    """
    is_described = is_forwarded or is_certified
    parts = {
        "watch": watch,
        "hot": hot,
        "heads": NoKnownHeads() if is_described else KnownHeads(),
        "readiness": readiness,
        "guard": guard,
        "gate": gate,
    }
    if is_described:
        parts |= {"names_address": is_forwarded, "names_certificate": is_certified}
    if tracing is not None:
        parts |= {"exchange_class": traced_exchange(tracing), "queue_class": TracedAnswerQueue}
        parts |= {"may_gather": False}  # each request has a span
    kind = ForwardedProtocol if is_described else ServiceProtocol
    return type("ServedProtocol", (kind,), parts)


def _own_copy(data: bytes, start: int, end: int) -> bytes | bytearray:
    """Return a body that is part of *data*; a large one as a bytearray, which handlers need."""
    if end - start < _BUFFERED_SIZE_MIN:
        return data[start:end]
    return bytearray(memoryview(data)[start:end])
