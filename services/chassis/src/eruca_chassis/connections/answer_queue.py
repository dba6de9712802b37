"""The exchanges of a connection in the order of their requests, and the sending of their answers.

In HTTP/1.1 only the order tells which answer belongs to which request. So an answer that is ready
early waits for those before it. A small answer is written in one piece. A large one is written
piece by piece; the next pieces follow when the transport has drained.

Invariants:

- only the first exchange's answer is being sent; it leaves the queue when it is completely written;
- an exchange that has left the queue is ended once: its budget is given back, and it is counted;
- an exchange whose client is lost while it works has left the queue; it is ended when it answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from uvicorn.protocols.http.flow_control import FlowControl

from eruca_chassis.connections.exchange import Exchange
from eruca_chassis.connections.pieces import JOIN_SIZE_MAX, Piece, joined
from eruca_chassis.metrics import CLIENT_GONE_STATUS


class AnswerQueue:
    """The exchanges of a connection that have not ended.

    Args:
        transport: Takes the answers.
        flow: Knows whether the transport has room.
        closes_behind: Called when the last exchange's answer begins; returns whether the connection
            closes after it.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        flow: FlowControl,
        closes_behind: Callable[[], bool],
    ) -> None:
        self.exchanges: deque[Exchange] = deque()
        self.ended_at: float | None = None  # when the latest exchange ended; monotonic
        self.written_size = 0  # bytes of all answers given to the transport
        self._transport = transport
        self._flow = flow
        self._closes_behind = closes_behind

    @property
    def has_begun_answer(self) -> bool:
        """True if a part of the first answer has been written."""
        return bool(self.exchanges) and self.exchanges[0].unsent is not None

    def send(self) -> bool:
        """Send the answers that are next, as far as the transport has room.

        Returns whether all exchanges have ended.
        """
        exchanges, flow = self.exchanges, self._flow
        while exchanges and not flow.write_paused:
            exchange = exchanges[0]
            if not exchange.status:
                return False
            if self._transport.is_closing():
                return False  # connection_lost will follow
            if exchange.unsent is None:
                self._begin_answer(exchange)
            if exchange.unsent is not None:
                for piece in exchange.unsent:
                    self._write(piece)
                    if flow.write_paused:
                        # The rest is sent, and the exchange ended, once the transport has drained.
                        return False
            exchanges.popleft()
            self.end(exchange)
        return not exchanges

    def end(self, exchange: Exchange) -> None:
        """End an exchange that has left the queue: give back its budget and count it."""
        exchange.give_back()
        if exchange.is_counted:
            exchange.end_counted()
        now = monotonic()
        metrics = exchange.request.route.metrics
        metrics.add(exchange.status or CLIENT_GONE_STATUS, now - exchange.started)
        self.ended_at = now

    def drop(self, exchange: Exchange) -> None:
        """Remove the last exchange, whose request will not arrive completely."""
        if self.exchanges and self.exchanges[-1] is exchange:
            self.exchanges.pop()
            if exchange.lose():
                self.end(exchange)

    def lose_from_first_waiting(self) -> None:
        """Lose the first exchange that waits, and all after it, whose turn never comes then."""
        exchanges = self.exchanges
        kept: deque[Exchange] = deque()
        while exchanges and not exchanges[0].is_waiting:
            kept.append(exchanges.popleft())
        lost, self.exchanges = exchanges, kept
        for exchange in lost:
            if exchange.lose():
                self.end(exchange)

    def lose(self) -> None:
        """Mark the client of all exchanges as lost."""
        exchanges, self.exchanges = self.exchanges, deque()
        for exchange in exchanges:
            if exchange.lose():
                self.end(exchange)

    def _begin_answer(self, exchange: Exchange) -> None:
        """Send the head of an answer, together with the body unless that is large."""
        if len(self.exchanges) == 1 and self._closes_behind():
            exchange.closes = True
        assert exchange.head is not None
        more = () if exchange.door is None else exchange.role_headers
        head = exchange.head.encoded(
            exchange.size, exchange.request_id, closes=exchange.closes, more=more
        )
        if exchange.request.method == "HEAD":
            self._write(head)
        elif exchange.size <= JOIN_SIZE_MAX:
            pieces = exchange.pieces
            self._write(head + pieces[0] if len(pieces) == 1 else b"".join((head, *pieces)))
        else:
            exchange.unsent = joined(exchange.pieces)
            self._write(head)

    def _write(self, piece: Piece) -> None:
        self.written_size += len(piece)
        self._transport.write(piece)
