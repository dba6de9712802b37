"""An exchange: one hot request and its answer, without a task, a future or a coroutine.

A hot route (:mod:`.hot`) consists of two plain functions of an exchange. *admit* sees the head, and
raises to refuse it or declares the expected body. *handle* is called once the body is complete. It
answers at once, or later from a callback. The carrier of the exchange is a connection
(:mod:`.connections`) or an ASGI call (:mod:`.asgi_exchange`). It moves the exchange through its
states::

    receiving ──complete────► working ──answer()──► answered ──last byte handed over──► ended
        │                        │                     ▲ │                                ▲
        └───── refused: the rest of the body is dropped ┘ └──────── client lost ──────────┤
        └───────────── client lost: nothing is left to do ────────────────────────────────┤
                                 └── client lost: ``on_lost`` cancels the waiting ────────┘

If the client is lost while an exchange works and it has no ``on_lost``, it runs to its end, as an
append must. Its answer is counted and sent to nobody.

A handler that waits in more than one place uses a coroutine (:meth:`Exchange.go_on`), in a task of
the exchange's own, and awaits :meth:`Exchange.leaving` where it may wait for long.

Any exception of a handler's function becomes its answer: an ``ErucaError`` as its problem document,
any other as a 500 whose details are only in the log. So callbacks go through
:meth:`Exchange.resume`. A step that cannot go on yet, and has changed nothing, raises
:class:`PostponedError`: it is run again once it can.

An exchange gives back its share of a budget when it has ended. A body takes a small reservation
when it is declared, and more as it arrives: a body that is only announced costs nothing. An answer
takes its size before it is built.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from eruca.contract.errors import ErucaError, InternalError
from eruca_chassis.admission.budget import (
    RESERVE_SIZE,
    Limited,
    client_of,
    give_shared,
    take_shared,
)
from eruca_chassis.admission.certificates import ClientCertificate
from eruca_chassis.admission.gate import (
    OPEN,
    Access,
    Admission,
    Asked,
    Connection,
    Gate,
    Quota,
    address_of,
    admit,
)
from eruca_chassis.admission.needs import Needs
from eruca_chassis.asgi import (
    BODILESS,
    REQUEST_ID_HEADER,
    TRACEPARENT_HEADER,
    ClientGoneError,
    Header,
    Message,
    body_too_large,
    names_in_log,
    new_request_id,
    problem_body,
    problem_headers,
    request_id_header,
    sane_request_id,
    size_said,
)
from eruca_chassis.connections.body_receiver import new_buffer
from eruca_chassis.connections.pieces import Piece
from eruca_chassis.door import Door
from eruca_chassis.metrics import RouteMetrics

_SMALL_PIECE_SIZE: Final = 16 * 1024  # bytes below which arriving pieces are joined
_GATHERED_SIZE_MAX: Final = 64 * 1024  # bytes of a joined piece
_FIRST_BUFFER_SIZE: Final = 64 * 1024  # bytes of the first buffer for a large body
_BUFFER_GROWTH: Final = 8  # size of the next one, times the bytes received: 4 MiB move twice
_ROUNDING_MAX: Final = 2  # the last buffer may be larger, by this factor
UNREAD: Final = object()  # the meaning of a head that no endpoint has read
_DROPPED: Final = bytearray(64 * 1024)  # destination of bytes that are dropped

_log = structlog.get_logger()
_tasks: Final[set[asyncio.Task[None]]] = set()  # strong references: the loop holds only weak ones


class BodyLimit(NamedTuple):
    """The maximum size of a body, and the budget that its bytes take."""

    budget: Limited
    size_max: int  # bytes
    name: str  # of size_max, for error texts


class AnswerHead:
    """Status and headers of an answer, encoded except for its length; reused by handlers."""

    __slots__ = ("_form", "_prefix", "form_of_whole", "has_body", "headers", "status")

    def __init__(self, status: int, *headers: Header) -> None:
        self.status = status
        self.headers = headers
        self.has_body = status not in BODILESS
        lines = [STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in headers)]
        self._prefix = b"".join(lines)
        self._form = self._prefix.replace(b"%", b"%%") + b"content-length: %d\r\n%b: %b\r\n\r\n"
        # Of a whole answer: the size of its body, the number of its request id, its body.
        length, name = b"content-length: %d\r\n", REQUEST_ID_HEADER
        self.form_of_whole = b"".join(
            (self._prefix.replace(b"%", b"%%"), length, name, b": %016x\r\n\r\n%b")
        )

    def encoded(
        self, size: int, request_id: str, *, closes: bool, more: Sequence[Header] = ()
    ) -> bytes:
        """Return the encoded head for a body of *size* bytes, a request id and *more* headers."""
        if not (more or closes) and self.has_body:
            return self._form % (size, *request_id_header(request_id))
        length = b"content-length: %d\r\n" % size if self.has_body else b""
        end = b"connection: close\r\n\r\n" if closes else b"\r\n"
        if more:
            end = b"".join((*(b"%b: %b\r\n" % header for header in more), end))
        return b"%b%b%b: %b\r\n%b" % (self._prefix, length, *request_id_header(request_id), end)


class PostponedError(Exception):
    """A step of a handler needs something first, and runs again then.

    Args:
        start: Called with two functions: one that runs the step again, and one that fails the
            request. Returns a function that stops the waiting, if the client is lost.
    """

    def __init__(
        self,
        start: Callable[
            [Callable[[], None], Callable[[BaseException], None]], Callable[[], object]
        ],
    ) -> None:
        super().__init__()
        self.start = start


Answer: TypeAlias = tuple[AnswerHead, *tuple[Piece, ...]]
"""A head, and the pieces of its body."""


class Route(Protocol):
    """The two functions of a hot route, and the count of its answers."""

    @property
    def template(self) -> str:
        """The path, with names in place of its named segments."""
        ...

    @property
    def operation(self) -> str:
        """Its id in the OpenAPI document."""
        ...

    @property
    def needs(self) -> Needs:
        """The rights that its caller needs."""
        ...

    @property
    def is_gated(self) -> bool:
        """True if its requests are refused until the service is ready."""
        ...

    @property
    def metrics(self) -> RouteMetrics:
        """The counts of its answers."""
        ...

    @property
    def admit(self) -> Callable[[Exchange], None]:
        """Called with the head."""
        ...

    @property
    def handle(self) -> Callable[[Exchange], None]:
        """Called with the complete body; answers."""
        ...


class Found(NamedTuple):
    """A request's route, and the named segments of its path."""

    route: Route
    parameters: Mapping[str, str]


class RequestHead:
    """A request's parsed head; one object for all requests that begin with the same bytes.

    Attributes:
        route: The route that answers.
        parameters: The path's named segments, decoded.
        method: GET, POST ….
        target: Path and query, as sent.
        query: As sent, without the question mark.
        headers: Names in lower case; several with one name joined by commas.
        body_size: Announced bytes of the body; None if not announced.
        request_id: The client's id for the request; None without a valid one.
        media_type: Of the body; None until it is checked, and without a body.
        meaning: The endpoint's reading of the head: a function of the head alone, so it holds for
            every request that shares the head.
        admission: The gate's decision about the head, for the next request that begins with it;
            None: it must be asked.
        gathers: How the endpoint gathers requests with this head (:class:`.gathered.Gathers`);
            None: it does not.
    """

    __slots__ = (
        "admission", "body_size", "gathers", "headers", "meaning", "media_type", "method",
        "parameters", "query", "request_id", "route", "target",
    )  # fmt: skip

    def __init__(
        self, found: Found, method: str, target: bytes, headers: Mapping[bytes, bytes]
    ) -> None:
        self.route, self.parameters = found
        self.method = method
        self.target = target
        self.query = target.partition(b"?")[2]
        self.headers = headers
        self.body_size = size_said(headers.get(b"content-length"))
        self.request_id = sane_request_id(headers.get(REQUEST_ID_HEADER))
        self.media_type: str | None = None
        self.meaning: Any = UNREAD
        self.admission: Admission | None = None
        self.gathers: Any = None


class Carrier(Protocol):
    """Delivers the body to an exchange, and sends its answer."""

    @property
    def connection(self) -> Connection | None:
        """The client's connection; None: unknown."""
        ...

    def answered(self, exchange: Exchange) -> None:
        """Send the answer that is now available, in its turn, and end the exchange."""
        ...


class Exchange:
    """One hot request. Handlers read ``request`` and call the methods up to ``drive``."""

    # Most requests change few of these, and are made faster without setting the others.
    certificate: ClientCertificate | None = None  # the client's, verified
    closes = False  # whether the connection closes after this answer
    door: Door | None = None  # has headers for the answer
    _access: Access | None = None  # made when it is needed
    _admission: Admission | None = None  # its own: a head is shared by requests
    _quota: Quota | None = None
    is_counted = False  # whether the quota counts the request here
    _limit: BodyLimit | None = None  # None: the body is ignored
    _budget: Limited | None = None
    _payer = ""  # the client, as the budget knows it
    _taken = 0
    _paid = 0  # bytes of the body taken from the budget
    _size = 0  # bytes of the body that have arrived
    _buffer: bytearray | None = None  # of a large body that bypasses the parser
    is_whole = False
    is_lost = False
    on_lost: Callable[[], object] | None = None
    _is_driven = False  # whether it runs step by step, without waiting for an event
    _is_left = False  # whether its carrier has ended it because the client was lost
    status = 0  # 0: not answered yet
    head: AnswerHead | None = None
    pieces: Sequence[Piece] = ()
    size = 0  # bytes of all pieces
    unsent: Iterator[Piece] | None = None  # the carrier's, while a large answer is sent

    def __init__(
        self, carrier: Carrier, request: RequestHead, client: tuple[str, int] | None
    ) -> None:
        self._carrier = carrier
        self.request = request
        self.client = client
        self.started = monotonic()
        self._request_id = request.request_id
        self.chunks: list[bytes | bytearray] = []

    # --- For handlers -----------------------------------------------------------------------------

    @property
    def access(self) -> Access:
        """The caller, and its rights."""
        if self._access is None:
            admission = self._admission
            is_open = admission is None
            address = address_of(self.client)
            self._access = OPEN if is_open else Access(admission, address, self._asked)
        return self._access

    @property
    def body(self) -> bytes | bytearray:
        """The complete body."""
        return self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)

    @property
    def buffer(self) -> bytearray:
        """The complete body, in memory that the handler may change."""
        first = self.chunks[0] if len(self.chunks) == 1 else None
        return first if isinstance(first, bytearray) else bytearray().join(self.chunks)

    def expect_body(self, limit: BodyLimit) -> None:
        """Declare the expected body; a reservation is taken now, the rest as it arrives.

        Raises:
            TooLargeError: The announced size exceeds the limit.
            OverloadedError: The budget has no room for another request.
        """
        self._limit = limit
        size = self.request.body_size
        if size is not None and size > limit.size_max:
            raise body_too_large(limit.size_max, limit.name)
        reserve = min(RESERVE_SIZE, limit.size_max)
        self.take(limit.budget, reserve)
        self._paid = reserve

    def take(self, budget: Limited, amount: int) -> None:
        """Take *amount* from *budget* until the exchange has ended; one budget per exchange.

        Raises:
            OverloadedError: The amount does not fit, or exceeds the caller's share.
        """
        assert self._budget is None or self._budget is budget
        if self._budget is None:
            self._budget = budget
            self._payer = client_of(self.client)
        if self._quota is None:
            budget.take(amount, self._payer)
        else:
            take_shared(budget, amount, self._payer, self._quota)
        self._taken += amount

    def give_back(self) -> None:
        """Give back the share of the budget; the carrier calls this at the latest."""
        if self._taken:
            assert self._budget is not None
            if self._quota is None:
                self._budget.give(self._taken, self._payer)
            else:
                give_shared(self._budget, self._taken, self._payer, self._quota)
            self._taken = 0

    def answer(self, head: AnswerHead, *pieces: Piece) -> None:
        """Answer with a body made of *pieces*."""
        assert not self.status
        self.on_lost = None
        self.head = head
        self.status = head.status
        if self._access is not None and self._access.acts:
            self._access.answered(head.status)
        self.pieces = pieces
        self.size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        if self.is_counted:
            assert self._quota is not None, "a quota counts the request"
            self._quota.sent(monotonic(), self.size)
        self._carrier.answered(self)

    def fail(self, error: BaseException) -> None:
        """Answer with *error*, as a problem document or as a 500."""
        shown = self.shown(error)
        if not self.status:
            self.chunks.clear()
            self._buffer = None
            head = AnswerHead(shown.status, *problem_headers(shown, self.request.target))
            self.answer(head, problem_body(shown, self.request_id))

    def shown(self, error: BaseException) -> ErucaError:
        """Return the error that the client gets for *error*; log an unexpected one."""
        request = self.request
        if not isinstance(error, ErucaError):
            _log.error(
                "request failed",
                exc_info=error,
                **names_in_log(self.request_id, request.headers.get(TRACEPARENT_HEADER)),
                method=request.method,
                route=request.route.template,
                parameters=dict(request.parameters),
            )
            return defect()
        return error if self.door is None else self.door.failure(request.route.operation, error)

    def resume(self, step: Callable[..., object], *arguments: object) -> None:
        """Continue with *step*; if it raises, the exception is the answer.

        A step that raises PostponedError runs again later.
        """
        try:
            step(*arguments)
        except PostponedError as postponed:
            self._postpone(postponed, step, *arguments)
        except Exception as error:  # the outermost frame of a request
            self.fail(error)

    def drive(self, steps: Iterator[None]) -> None:
        """Run *steps*, one per turn of the event loop; the last one answers."""
        self._is_driven = True
        for _ in steps:
            turn = asyncio.get_running_loop().call_soon(self.resume, self.drive, steps)
            self.on_lost = turn.cancel
            return

    def go_on(self, steps: Coroutine[Any, Any, Answer]) -> None:
        """Run the coroutine *steps* in a task; answer with its result or its exception."""
        task = asyncio.get_running_loop().create_task(self._answer_by(steps))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def leaving(self) -> Message:
        """Return once the client has disconnected, like an ASGI application's ``receive``.

        After the first call the exchange ends at a disconnect, and a later answer is sent to
        nobody.
        """
        if not self.is_lost:
            gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def left() -> None:
                if not gone.done():
                    gone.set_result(None)

            self.on_lost = left
            await gone
        return {"type": "http.disconnect"}

    # --- For carriers -----------------------------------------------------------------------------

    @property
    def request_id(self) -> str:
        """The request's id: the client's or a new one; every answer carries it."""
        if self._request_id is None:
            self._request_id = new_request_id()
        return self._request_id

    @property
    def role_headers(self) -> Sequence[Header]:
        """The headers that the door adds to the answer now."""
        return () if self.door is None else self.door.headers(self.request.route.operation)

    def admit(self, gate: Gate) -> bool:
        """Ask the gate about the head, unless its last decision holds; return whether it may go on.

        A refusal is the answer.
        """
        request = self.request
        admission = request.admission
        if admission is not None and admission.holds(self.started):
            self._admission = admission
            return admission.quota is None or self._begin_counted(admission.quota)
        try:
            self._admission = request.admission = admit(gate, self._asked())
        except Exception as error:  # the outermost frame of a request
            request.admission = None
            self.fail(error)
            return False
        quota = None if request.admission is None else request.admission.quota
        return quota is None or self._begin_counted(quota)

    def _begin_counted(self, quota: Quota) -> bool:
        """Count the request; return whether the caller's quota lets it go on."""
        carrier = self._carrier
        try:
            quota.begin(self.started, self.request.body_size or 0, carrier.connection)
        except ErucaError as error:
            self.fail(error)
            return False
        self._quota, self.is_counted = quota, True
        return True

    def end_counted(self) -> None:
        """Tell the caller's quota that the request, which it counts, has ended."""
        assert self._quota is not None, "a quota counts the request"
        self.is_counted = False
        if self.request.body_size is None and self._size:
            self._quota.received(monotonic(), self._size)
        self._quota.end()

    def take_access(self, access: Access) -> None:
        """Take the access of a request about which the application has asked the gate."""
        self._access = access
        self._admission = access.admission
        self._quota = access.quota  # which the application counts

    def recheck(self, now: float) -> None:
        """Decide again about a request that waits, if its admission no longer holds."""
        if not self.is_waiting:
            return
        try:
            self.access.recheck(self._asked(), now)
        except ErucaError as error:
            stop, self.on_lost = self.on_lost, None
            assert stop is not None
            self._is_left = True
            stop()
            self.fail(error)

    def begin(self) -> None:
        """Let the handler see the head."""
        try:
            self.request.route.admit(self)
        except Exception as error:  # the outermost frame of a request
            self.fail(error)

    def arrived(self, body: bytes) -> None:
        """Record the whole body, for which another one has paid."""
        self._size = len(body)
        self.chunks.append(body)
        self.is_whole = True

    def add(self, piece: bytes | bytearray) -> None:
        """Store a piece of the body; drop it if the body is ignored or already answered."""
        if self._limit is None or self.status:
            return
        self._size += len(piece)
        if self._size > self._paid:
            self.resume(self._pay, self._limit)
            if self.status:
                return
        if not self.chunks or len(piece) >= _SMALL_PIECE_SIZE:
            self.chunks.append(piece)
            return
        # One object for each byte of a trickle would cost many times the bytes charged.
        last = self.chunks[-1]
        if not isinstance(last, bytearray) or len(last) >= _GATHERED_SIZE_MAX:
            last = bytearray()
            self.chunks.append(last)
        last += piece

    def begin_large(self, piece: memoryview) -> None:
        """Store the first piece of a large body in the buffer that the handler gets."""
        self._size = len(piece)
        if self._limit is None or self.status:
            return  # it is dropped
        if self._size > self._paid:
            self.resume(self._pay, self._limit)
        if not self.status:
            assert not self.chunks, "the body has begun before"
            self._use_buffer(self._next_buffer_size(), piece)

    @property
    def received_size(self) -> int:
        """Bytes of the body that have arrived."""
        return self._size

    @property
    def missing_size(self) -> int:
        """Bytes of the body that are announced and needed but missing."""
        announced = self.request.body_size
        return 0 if self.status or self._limit is None else max((announced or 0) - self._size, 0)

    def room(self) -> memoryview:
        """Return memory for the next bytes of a large body, in the buffer that the handler gets.

        The buffer grows with the bytes received, so that a mere announcement takes no memory. If
        the request has been refused meanwhile, or ignores its body, the bytes are dropped.
        """
        announced = self.request.body_size
        assert announced is not None
        if self.status or self._limit is None:
            return memoryview(_DROPPED)[: announced - self._size]
        buffer = self._buffer
        if buffer is None or len(buffer) == self._size:
            # Not resized in place: the transport may still hold a view of the old one.
            come = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
            buffer = self._use_buffer(self._next_buffer_size(), memoryview(come)[: self._size])
        return memoryview(buffer)[self._size :]

    def _next_buffer_size(self) -> int:
        announced = self.request.body_size
        assert announced is not None
        size = max(self._size * _BUFFER_GROWTH, _FIRST_BUFFER_SIZE)
        # A buffer that would be filled almost at once would move most of the body for little.
        return size if announced > size * _ROUNDING_MAX else announced

    def _use_buffer(self, size: int, come: memoryview) -> bytearray:
        """Let the body continue in a buffer of *size* bytes, which begins with those of *come*."""
        self._buffer = buffer = new_buffer(size)
        memoryview(buffer)[: len(come)] = come
        self.chunks = [buffer]
        return buffer

    def filled(self, size: int) -> bool:
        """Record *size* bytes received into :meth:`room`; return whether the body is complete."""
        self._size += size
        if self._size > self._paid and self._limit is not None and not self.status:
            self.resume(self._pay, self._limit)
        return self._size == self.request.body_size

    def complete(self) -> None:
        """Let the handler answer: the body is complete."""
        self.is_whole = True
        if self.status:
            return
        admission = self._admission
        try:
            # A body may arrive long after its head.
            if admission is not None and admission.version != admission.gate.version:
                self.access.recheck(self._asked(), monotonic())
            self.request.route.handle(self)
        except PostponedError as postponed:
            self._postpone(postponed, self.request.route.handle, self)
        except Exception as error:  # the outermost frame of a request
            self.fail(error)

    @property
    def is_waiting(self) -> bool:
        """True if it waits for an event, and ends when its client disconnects."""
        return self.on_lost is not None and not self._is_driven

    def lose(self) -> bool:
        """Record that the client is gone; return whether the exchange is over."""
        self.is_lost = True
        if self.on_lost is not None:
            stop, self.on_lost = self.on_lost, None
            self._is_left = True
            stop()
            return True
        return bool(self.status) or not self.is_whole

    def _postpone(
        self, postponed: PostponedError, step: Callable[..., object], *arguments: object
    ) -> None:
        def again() -> None:
            self.on_lost = None
            self.resume(step, *arguments)

        self._is_driven = False
        self.on_lost = postponed.start(again, self.fail)

    async def _answer_by(self, steps: Coroutine[Any, Any, Answer]) -> None:
        try:
            head, *pieces = await steps
        except ClientGoneError:
            if not self._is_left:
                self._carrier.answered(self)  # without an answer: it only ends
        except Exception as error:  # the outermost frame of a request
            if not self._is_left:
                self.fail(error)
        else:
            if not self._is_left:
                self.answer(head, *pieces)

    def _asked(self) -> Asked:
        request = self.request
        return Asked(
            request.route.needs,
            request.parameters,
            request.query,
            request.headers,
            address_of(self.client),
            request.route.operation,
            self.request_id,
            self.certificate,
        )

    def _pay(self, limit: BodyLimit) -> None:
        if self._size > limit.size_max:
            raise body_too_large(limit.size_max, limit.name)
        self.take(limit.budget, self._size - self._paid)
        self._paid = self._size


def defect() -> InternalError:
    """Return the error that a client gets for an unexpected exception."""
    return InternalError(
        "the service met an unexpected error",
        fix="report it with the request_id; the service's log has the details under it",
    )


JSON_CREATED: Final = AnswerHead(201, (b"content-type", b"application/json"))
JSON_OK: Final = AnswerHead(200, (b"content-type", b"application/json"))
NO_CONTENT: Final = AnswerHead(HTTPStatus.NO_CONTENT)
