"""An exchange: one hot request and its answer, without a task, a future or a coroutine.

A hot route (:mod:`.hot`) is two plain functions of an exchange. *admit* sees the head and refuses
by raising, or says what body it expects; *handle* is called once the body is whole, and answers: at
once, or later from a callback of whatever it waits for. Whoever carries the exchange, a connection
(:mod:`.connections`) or an ASGI call (:mod:`.asgi_exchange`), moves it through its states::

    receiving ──body whole──► working ──answer()──► answered ──last byte handed over──► ended
        │                        │                     ▲ │                                ▲
        └───── refused: the rest of the body is dropped ┘ └──────── client lost ──────────┤
        └───────────── client lost: nothing is left to be done ───────────────────────────┤
                                 └── client lost: ``on_lost`` stops what is waited for ───┘

An exchange whose client is lost while it works and that has no ``on_lost`` is let finish, as an
append must be; what it then answers is counted and sent to nobody.

A handler that waits in more than one place has a coroutine do it (:meth:`Exchange.go_on`), in a
task of the exchange's own, and asks :meth:`Exchange.leaving` where it may wait for long.

Any exception of a handler's function is its answer: an ``ErucaError`` as its problem document, any
other as a 500 whose details are in the log only. So callbacks go through :meth:`Exchange.resume`.

What a body and an answer take of a budget is given back when the exchange has ended. A body takes a
small reservation when it is expected, and the rest as it comes: what is only announced costs
nothing. An answer takes its size before it is made.
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
from eruca_chassis.budget import RESERVE_SIZE, client_of
from eruca_chassis.connections.body_receiver import new_buffer
from eruca_chassis.connections.pieces import Piece
from eruca_chassis.metrics import RouteMetrics

_SMALL_PIECE_SIZE: Final = 16 * 1024  # bytes below which pieces of a body are joined as they come
_GATHERED_SIZE_MAX: Final = 64 * 1024  # bytes that are joined into one
_FIRST_BUFFER_SIZE: Final = 64 * 1024  # bytes of room for a large body of which little has come …
_BUFFER_GROWTH: Final = 8  # … and then so many times what has: a 4 MiB body moves twice
_DROPPED: Final = bytearray(64 * 1024)  # where bytes go that nobody wants

_log = structlog.get_logger()
_tasks: Final[set[asyncio.Task[None]]] = set()  # under way: the loop itself holds none of them


class Budget(Protocol):
    """Something of which only so much may be in use at a time."""

    def take(self, amount: int, client: str) -> None:
        """Take *amount* for *client*; raises OverloadedError where it does not fit."""
        ...

    def give(self, amount: int, client: str) -> None:
        """Give *amount* back that was taken for *client*."""
        ...


class BodyLimit(NamedTuple):
    """How large a body may be, and what its bytes are counted among."""

    budget: Budget
    size_max: int  # bytes
    name: str  # of size_max, for the refused


class AnswerHead:
    """Status and headers of an answer, encoded but for its length; handlers make theirs once."""

    __slots__ = ("_prefix", "has_body", "headers", "status")

    def __init__(self, status: int, *headers: Header) -> None:
        self.status = status
        self.headers = headers
        self.has_body = status not in BODILESS
        lines = [STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in headers)]
        self._prefix = b"".join(lines)

    def encoded(self, size: int, request_id: str, *, closes: bool) -> bytes:
        """Return the head of the answer, with *size* bytes of body, to the request of that id."""
        length = b"content-length: %d\r\n" % size if self.has_body else b""
        end = b"connection: close\r\n\r\n" if closes else b"\r\n"
        return b"%b%b%b: %b\r\n%b" % (self._prefix, length, *request_id_header(request_id), end)


Answer: TypeAlias = tuple[AnswerHead, *tuple[Piece, ...]]
"""A head, and the pieces of its body."""


class Route(Protocol):
    """Who answers: the two functions, and how often they have."""

    @property
    def template(self) -> str:
        """The path, with its named segments' names."""
        ...

    @property
    def is_gated(self) -> bool:
        """Whether it is refused until the service is ready."""
        ...

    @property
    def metrics(self) -> RouteMetrics:
        """What its answers are counted in."""
        ...

    @property
    def admit(self) -> Callable[[Exchange], None]:
        """Sees the head."""
        ...

    @property
    def handle(self) -> Callable[[Exchange], None]:
        """Answers, once the body is whole."""
        ...


class Found(NamedTuple):
    """The route of a request, and its path's named segments."""

    route: Route
    parameters: Mapping[str, str]


class RequestHead:
    """A request's head, parsed; one object for all requests that begin with the same bytes.

    Attributes:
        route: Who answers.
        parameters: The path's named segments, decoded.
        method: GET, POST ….
        query: As it came, without the question mark.
        headers: Names in lower case; several of one name joined by commas.
        body_size: Bytes that are announced; None where that is not said.
        request_id: What the client calls the request; None where it says nothing sane.
        meaning: What the route's handler has made of it, if it keeps that: a function of the head
            alone, so it holds for every request that shares the head.
    """

    __slots__ = (
        "body_size", "headers", "meaning", "method", "parameters", "query", "request_id", "route",
    )  # fmt: skip

    def __init__(
        self, found: Found, method: str, query: bytes, headers: Mapping[bytes, bytes]
    ) -> None:
        self.route, self.parameters = found
        self.method = method
        self.query = query
        self.headers = headers
        self.body_size = size_said(headers.get(b"content-length"))
        self.request_id = sane_request_id(headers.get(REQUEST_ID_HEADER))
        self.meaning: Any = None


class Carrier(Protocol):
    """What brings an exchange its body and takes its answer away."""

    def answered(self, exchange: Exchange) -> None:
        """Send the answer that is there now, in its turn, and end the exchange."""
        ...


class Exchange:
    """One hot request. Handlers read ``request`` and call the methods up to ``drive``."""

    __slots__ = (
        "_budget", "_buffer", "_carrier", "_is_driven", "_is_left", "_limit", "_paid",
        "_request_id", "_size", "_taken", "chunks", "client", "closes", "head", "is_lost",
        "is_whole", "on_lost", "pieces", "request", "size", "started", "status", "unsent",
    )  # fmt: skip

    def __init__(
        self, carrier: Carrier, request: RequestHead, client: tuple[str, int] | None
    ) -> None:
        self._carrier = carrier
        self.request = request
        self.client = client
        self.started = monotonic()
        self.closes = False  # whether the connection ends with this answer
        self._request_id = request.request_id
        self._limit: BodyLimit | None = None  # None: no body is wanted
        self._budget: Budget | None = None
        self._taken = 0
        self._paid = 0  # bytes of the body that have been taken from the budget
        self._size = 0  # … that have come
        self._buffer: bytearray | None = None  # of a large body, once it is received into one
        self.chunks: list[bytes | bytearray] = []
        self.is_whole = False
        self.is_lost = False
        self.on_lost: Callable[[], object] | None = None
        self._is_driven = False  # step by step: nothing is waited for
        self._is_left = False  # whether its carrier has ended it, the client having been lost
        self.status = 0  # 0: not answered yet
        self.head: AnswerHead | None = None
        self.pieces: Sequence[Piece] = ()
        self.size = 0  # bytes of all pieces
        self.unsent: Iterator[Piece] | None = None  # the carrier's, once a large answer has begun

    # --- For handlers -----------------------------------------------------------------------------

    @property
    def body(self) -> bytes | bytearray:
        """The whole body."""
        return self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)

    @property
    def buffer(self) -> bytearray:
        """The whole body, as memory of the handler's own."""
        first = self.chunks[0] if len(self.chunks) == 1 else None
        return first if isinstance(first, bytearray) else bytearray().join(self.chunks)

    def expect_body(self, limit: BodyLimit) -> None:
        """Gather the body; its first bytes are taken from the budget now, the others as they come.

        Raises:
            TooLargeError: More than the limit is announced.
            OverloadedError: The budget has no room for another request.
        """
        self._limit = limit
        size = self.request.body_size
        if size is not None and size > limit.size_max:
            raise body_too_large(limit.size_max, limit.name)
        reserve = min(RESERVE_SIZE, limit.size_max)
        self.take(limit.budget, reserve)
        self._paid = reserve

    def take(self, budget: Budget, amount: int) -> None:
        """Take *amount* from *budget* until the exchange has ended; one budget per exchange.

        Raises:
            OverloadedError: It does not fit.
        """
        assert self._budget is None or self._budget is budget
        budget.take(amount, client_of(self.client))
        self._budget = budget
        self._taken += amount

    def give_back(self) -> None:
        """Give back what was taken; the carrier sees to it at the latest."""
        if self._taken:
            assert self._budget is not None
            self._budget.give(self._taken, client_of(self.client))
            self._taken = 0

    def answer(self, head: AnswerHead, *pieces: Piece) -> None:
        """Answer with a body made of *pieces*."""
        assert not self.status
        self.on_lost = None
        self.head = head
        self.status = head.status
        self.pieces = pieces
        self.size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        self._carrier.answered(self)

    def fail(self, error: BaseException) -> None:
        """Answer with *error*, whatever it is."""
        request, identity = self.request, self.request_id
        if not isinstance(error, ErucaError):
            _log.error(
                "request failed",
                exc_info=error,
                **names_in_log(identity, request.headers.get(TRACEPARENT_HEADER)),
                method=request.method,
                route=request.route.template,
                parameters=dict(request.parameters),
            )
            error = defect()
        if not self.status:
            self.chunks.clear()
            self._buffer = None
            head = AnswerHead(error.status, *problem_headers(error))
            self.answer(head, problem_body(error, identity))

    def resume(self, step: Callable[..., object], *arguments: object) -> None:
        """Go on with *step*; what it raises is the answer."""
        try:
            step(*arguments)
        except Exception as error:  # the outermost frame of a request
            self.fail(error)

    def drive(self, steps: Iterator[None]) -> None:
        """Take *steps*, of which the last answers, one per turn of the event loop."""
        self._is_driven = True
        for _ in steps:
            turn = asyncio.get_running_loop().call_soon(self.resume, self.drive, steps)
            self.on_lost = turn.cancel
            return

    def go_on(self, steps: Coroutine[Any, Any, Answer]) -> None:
        """Answer with what *steps* return or raise; they run in a task."""
        task = asyncio.get_running_loop().create_task(self._answer_by(steps))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def leaving(self) -> Message:
        """Return, as an ASGI application's ``receive``, once the client has left.

        From the first call on the exchange ends when that happens, and what is answered after it
        is told to nobody.
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
        """The request's id: the client's, or one made here; every answer has it."""
        if self._request_id is None:
            self._request_id = new_request_id()
        return self._request_id

    def begin(self) -> None:
        """Let the handler see the head."""
        try:
            self.request.route.admit(self)
        except Exception as error:
            self.fail(error)

    def add(self, piece: bytes | bytearray) -> None:
        """Take a piece of the body; dropped where it is not wanted, or not any more."""
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
        # An object for each byte of a trickle would cost many times what is paid for.
        last = self.chunks[-1]
        if not isinstance(last, bytearray) or len(last) >= _GATHERED_SIZE_MAX:
            last = bytearray()
            self.chunks.append(last)
        last += piece

    @property
    def received_size(self) -> int:
        """Bytes of the body that have come."""
        return self._size

    @property
    def missing_size(self) -> int:
        """Bytes of the body that are announced, wanted and not there yet."""
        announced = self.request.body_size
        return 0 if self.status or self._limit is None else max((announced or 0) - self._size, 0)

    def room(self) -> memoryview:
        """Return where the next bytes of a large body go: into the buffer that the handler gets.

        The buffer grows with what has come, so that announcing much takes no memory. Where the
        request has been refused meanwhile, the bytes are dropped.
        """
        announced = self.request.body_size
        assert announced is not None
        if self.status:
            return memoryview(_DROPPED)[: announced - self._size]
        buffer = self._buffer
        if buffer is None or len(buffer) == self._size:
            wanted = max(self._size * _BUFFER_GROWTH, _FIRST_BUFFER_SIZE)
            buffer = new_buffer(min(wanted, announced))
            # Not resized: whoever reads into the old one may still hold it.
            come = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
            memoryview(buffer)[: self._size] = memoryview(come)[: self._size]
            self._buffer = buffer
            self.chunks = [buffer]
        return memoryview(buffer)[self._size :]

    def filled(self, size: int) -> bool:
        """Note that so many bytes have come where :meth:`room` said; tell whether all have."""
        self._size += size
        if self._size > self._paid and self._limit is not None and not self.status:
            self.resume(self._pay, self._limit)
        return self._size == self.request.body_size

    def complete(self) -> None:
        """Let the handler answer: the body is whole."""
        self.is_whole = True
        if self.status:
            return
        try:
            self.request.route.handle(self)
        except Exception as error:
            self.fail(error)

    @property
    def is_waiting(self) -> bool:
        """True while it waits for something that its client's leaving ends."""
        return self.on_lost is not None and not self._is_driven

    def lose(self) -> bool:
        """Note that the client is gone; tell whether nothing more will come of the exchange."""
        self.is_lost = True
        if self.on_lost is not None:
            stop, self.on_lost = self.on_lost, None
            self._is_left = True
            stop()
            return True
        return bool(self.status) or not self.is_whole

    async def _answer_by(self, steps: Coroutine[Any, Any, Answer]) -> None:
        try:
            head, *pieces = await steps
        except ClientGoneError:
            if not self._is_left:
                self._carrier.answered(self)  # by nothing: it only ends
        except Exception as error:  # the outermost frame of a request
            if not self._is_left:
                self.fail(error)
        else:
            if not self._is_left:
                self.answer(head, *pieces)

    def _pay(self, limit: BodyLimit) -> None:
        if self._size > limit.size_max:
            raise body_too_large(limit.size_max, limit.name)
        self.take(limit.budget, self._size - self._paid)
        self._paid = self._size


def defect() -> InternalError:
    """Return what a client is told of an exception that nobody expected."""
    return InternalError(
        "the service met an error it did not expect",
        fix="report it with the request_id, under which the service's log has the details",
    )


JSON_CREATED: Final = AnswerHead(201, (b"content-type", b"application/json"))
JSON_OK: Final = AnswerHead(200, (b"content-type", b"application/json"))
NO_CONTENT: Final = AnswerHead(HTTPStatus.NO_CONTENT)
