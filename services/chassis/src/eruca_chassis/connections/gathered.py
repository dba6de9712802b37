"""Gathered requests: small ones with a known head, answered many at a time.

Beginning, admitting and ending an exchange costs more than storing a small message. So an endpoint
may *gather* complete requests with a known head, and answer all of them together. Until then
nothing is made for a request: its connection keeps the bytes (:class:`GatheredRequest`)::

    state      has                       left on
    none       no request here           arrival of one that may be gathered: gathered
    gathered   the bytes of one request  its answer: none
                                         any other event of the connection: drawn
                                         its endpoint cannot answer it with the others: drawn
    drawn      an exchange that works    its answer, as any exchange's; then none

Invariants:

- A connection with a gathered request has nothing else in progress. Whatever happens to it (further
  bytes, a half-close, a loss, a full transport, a shutdown) first draws the exchange, and then is
  handled as for any exchange.
- A request is gathered only if its exchange would have been admitted at once: the service accepts
  everything, the gate's last decision about the head holds, and no quota counts it.
- A gathered request has paid the reservation of its budget, which covers its body. It is given back
  when its endpoint settles it.
- The endpoint settles each request once: by :func:`answer_together`, :func:`fail_together`, or by
  :meth:`GatheredRequest.begun`, after which it is an ordinary exchange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from eruca_chassis.admission.budget import RESERVE_SIZE, Budget, client_of
from eruca_chassis.asgi import new_request_number
from eruca_chassis.connections.exchange import AnswerHead, Exchange, RequestHead

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.flow_control import FlowControl

    from eruca_chassis.connections.answer_queue import AnswerQueue

GATHERED_BODY_SIZE_MAX: Final = RESERVE_SIZE  # bytes; the reservation covers it
_NO_SIZE: Final = -1

Taker: TypeAlias = Callable[["GatheredRequest", bytes], None]
"""Gathers the request of a connection; its bytes are those of the head and the body."""


class Gathers(NamedTuple):
    """An endpoint's way to gather the requests that begin with one head.

    Attributes:
        body_begin: The first bytes of each body that it gathers.
        budget: Each request takes the reservation of it.
        taker: Returns the taker for the requests of one client, given the size of the head; None:
            they are not gathered.
    """

    body_begin: bytes
    budget: Budget
    taker: Callable[[tuple[str, int] | None, int], Taker | None]


class GatheringConnection(Protocol):
    """A connection whose requests may be gathered."""

    latest: object  # the identity of its latest request

    @property
    def is_stopping(self) -> bool:
        """True if each answer may be the connection's last."""
        ...

    @property
    def client(self) -> tuple[str, int] | None:
        """The peer's address and port."""
        ...

    def carry(self, request: RequestHead) -> Exchange:
        """Return an exchange that is now in the connection's queue, and has not been admitted."""
        ...

    def admit(self, exchange: Exchange) -> None:
        """Let an exchange begin that is in the connection's queue, or refuse it."""
        ...


class GatheredRequest:
    """The request of a connection that an endpoint has gathered, if there is one.

    Attributes:
        size: Bytes of the latest request that was gathered here, and probably of the next one.
        begin: The first bytes of it: the head, and the begin of the body that the endpoint expects.
        data: The bytes of the request that is gathered now; None: there is none, or it is drawn.
        request: The head of the latest one.
        arrived: The monotonic time at which the latest one came.
        payer: The client, as budgets know it.
    """

    __slots__ = (
        "_answers", "_connection", "_drawn", "_flow", "_taker", "_transport", "arrived", "begin",
        "body_at", "data", "payer", "request", "size",
    )  # fmt: skip

    request: RequestHead
    _taker: Taker

    def __init__(
        self,
        connection: GatheringConnection,
        transport: asyncio.Transport,
        flow: FlowControl,
        answers: AnswerQueue,
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._flow = flow
        self._answers = answers
        self._drawn: Exchange | None = None
        self.arrived = 0.0
        self.data: bytes | None = None
        self.begin = b""
        self.body_at = 0
        self.size = _NO_SIZE
        self.payer = client_of(connection.client)

    def expect(self, request: RequestHead, data: bytes, body_at: int) -> bool:
        """Expect requests like the one that is *data*; return whether they may be gathered."""
        assert self.data is None, "the head of a gathered request must not change"
        gathers: Gathers | None = request.gathers
        if gathers is None or not data.startswith(gathers.body_begin, body_at):
            return False
        taker = gathers.taker(self._connection.client, body_at)
        if taker is None:
            return False
        self._taker, self.request, self.body_at = taker, request, body_at
        self.begin = data[: body_at + len(gathers.body_begin)]
        self.size = len(data)
        return True

    def take(self, data: bytes) -> bool:
        """Gather the expected request; return whether the budget has room for it."""
        assert self.data is None, "a connection has one gathered request"
        gathers: Gathers = self.request.gathers
        if not gathers.budget.try_take(RESERVE_SIZE, self.payer):
            return False
        self.data, self.arrived = data, monotonic()
        self._taker(self, data)
        return True

    def draw(self) -> None:
        """Make the exchange of the gathered request, which goes on working."""
        data = self.data
        assert data is not None, "no request is gathered"
        self.data = None
        self._drawn = exchange = self._connection.carry(self.request)
        exchange.started = self.arrived
        exchange.arrived(data[self.body_at :])

    def drawn(self) -> Exchange:
        """Return the exchange of the request, which the endpoint settles now."""
        if self.data is not None:
            self.draw()
        exchange, self._drawn = self._drawn, None
        assert exchange is not None, "a request is settled once"
        return exchange

    def begun(self) -> Exchange | None:
        """Return the request's exchange once it has begun as any other does; None: it is refused.

        Its reservation must have been given back.
        """
        exchange = self.drawn()
        self._connection.admit(exchange)
        return None if exchange.status else exchange

    def answer(self, answer: bytes, now: float) -> bool:
        """Send a whole answer at a monotonic time; return False if the exchange must do it."""
        connection, answers = self._connection, self._answers
        if (
            self.data is None
            or self._flow.write_paused
            or connection.is_stopping
            or self._transport.is_closing()
        ):
            return False
        self.data = None
        connection.latest = answers.ended_at = now
        answers.written_size += len(answer)
        self._transport.write(answer)
        return True


Gathered: TypeAlias = GatheredRequest | Exchange
"""A request that is answered together with others."""


def answer_together(
    requests: Sequence[Gathered], head: AnswerHead, bodies: Sequence[bytes]
) -> None:
    """Answer requests of one route, each with its own body."""
    give_back_together(requests)
    now, last = monotonic(), None
    seconds: list[float] = []
    form = head.form_of_whole
    for request, body in zip(requests, bodies, strict=True):
        if isinstance(request, Exchange):
            request.resume(request.answer, head, body)
        elif request.answer(form % (len(body), new_request_number(), body), now):
            seconds.append(now - request.arrived)
            last = request
        else:
            exchange = request.drawn()
            exchange.resume(exchange.answer, head, body)
    if last is not None:
        last.request.route.metrics.add_all(head.status, seconds)


def fail_together(requests: Sequence[Gathered], error: Exception) -> None:
    """Answer requests with *error*, each with its own problem document."""
    give_back_together(requests)
    for request in requests:
        exchange = request.drawn() if isinstance(request, GatheredRequest) else request
        exchange.fail(error)


def give_back_together(requests: Sequence[Gathered]) -> None:
    """Give back the reservations of gathered requests of one route."""
    gathered = [request for request in requests if isinstance(request, GatheredRequest)]
    if gathered:
        gathers: Gathers = gathered[0].request.gathers
        for payer, count in Counter([request.payer for request in gathered]).items():
            gathers.budget.give(RESERVE_SIZE * count, payer)
