"""The turns of an ordered lane's batches, and the connection on which they are sent ahead.

:mod:`eruca.core.producing.send_ahead` decides. This module waits, and keeps the connection: it is
opened when the first batch is sent ahead, and closed after a failure, and after
:data:`IDLE_SECONDS` without a batch. A later epoch keeps it only if it still leads to the broker.
Answers come in the order of requests there, so no batch is acknowledged before an earlier one.

The connection can be of no use though the pooled ones work: it is one too many, or a proxy answers
only the first of several requests. For :data:`AVOIDED_SECONDS` the lane sends nothing ahead then,
if

- the connection cannot be opened,
- the broker or a quota refuses the first batches on it, as too many, or
- two connections, one after the other, are lost before they had an answer to a batch that was sent
  while another was under way.

Concurrency rule: belongs to the producer's event loop.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final, NamedTuple

from eruca.aio.http.transport import (
    ConnectTimeoutError,
    HttpTransport,
    NotConnectedError,
    PipeLostError,
    leads_to,
    pipe_of,
)
from eruca.contract.errors import (
    OverloadedError,
    QuotaExceededError,
    TimeoutExpiredError,
    TransportError,
)
from eruca.contract.wire import LanePosition
from eruca.core.producing.send_ahead import Seat, SendAhead

IDLE_SECONDS: Final = 5.0  # after which a lane's own connection is closed
AVOIDED_SECONDS: Final = 60.0  # then a lane tries a connection of its own again
_USELESS_MAX: Final = 2  # connections in succession
_NAME_SIZE: Final = 8  # bytes


class Sending(NamedTuple):
    """The way in which a batch is sent now."""

    transport: HttpTransport
    position: LanePosition | None  # None: as a batch of no lane
    is_ahead: bool
    is_overlapping: bool = False  # ahead, while another batch is under way


class LaneTurns:
    """The turns of one lane.

    Args:
        transport: Carries the hot routes.
        in_flight_max: Maximum number of batches under way.
    """

    def __init__(self, transport: HttpTransport, in_flight_max: int) -> None:
        self._transport = transport
        self._pipe: HttpTransport | None = None  # the connection for batches that are sent ahead
        self._has_stored = False  # of the connection: it has carried a batch
        self._is_proven = False  # … and one that was sent while another was under way
        self._is_useless = False  # … or was lost before that
        self._useless_count = 0  # connections, in succession
        self._avoided_until = 0.0  # by the loop's clock
        self._in_flight_max = in_flight_max
        self._ahead = SendAhead(os.urandom(_NAME_SIZE))
        self._changed: asyncio.Event | None = None  # waited for
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def room(self) -> int:
        """Maximum number of batches under way now."""
        return self._in_flight_max if self._ahead.is_ahead else 1

    def enter(self, size: int) -> Seat:
        """Return the seat of the lane's next batch, of *size* bytes."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        return self._ahead.enter(size)

    def leave(self, seat: Seat) -> None:
        """Record that a batch is finished."""
        self._ahead.leave(seat)
        self._drop_pipe_if_ended()
        self._wake()

    def want(self) -> None:
        """Record that a batch has waited for an earlier one longer than batches linger."""
        if self._in_flight_max > 1:
            self._ahead.is_wanted = True

    def rest(self) -> None:
        """Record that the lane has nothing to send."""
        self._ahead.rest()
        if self._pipe is not None and self._idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(IDLE_SECONDS, self._close_pipe)

    async def close(self) -> None:
        """Close the lane's connection."""
        self._close_pipe()
        if self._closing is not None:
            await self._closing

    def is_next(self, seat: Seat) -> bool:
        """Tell whether a batch is the next one to send."""
        return self._ahead.is_next(seat)

    async def until_next(self, seat: Seat) -> None:
        """Wait until a batch is the next one to send."""
        while not self._ahead.is_next(seat):
            await self._change()

    async def turn(
        self, seat: Seat, url: str, *, may_have_position: bool, deadline: float
    ) -> Sending:
        """Wait for a batch's turn and return how to send it, which must happen without a pause.

        Raises:
            TimeoutExpiredError: Its turn did not come before *deadline*, by the loop's clock.
        """
        ahead = self._ahead
        while True:
            has_pipe = may_have_position and self._may_open()
            turn = ahead.turn(
                seat, url, may_have_position=may_have_position, has_connection=has_pipe
            )
            if turn is not None:
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await self._change()
            except TimeoutError:
                raise TimeoutExpiredError(
                    "the deadline passed while an earlier batch of the queue was under way"
                ) from None
        self._wake()  # the next batch may be sent, too
        if not turn.is_ahead:
            pipe = self._pipe
            begins_epoch = turn.position is not None
            if begins_epoch and pipe is not None and not leads_to(pipe, url):
                self._close_pipe()  # it was lost while it was idle, or leads to another broker
            return Sending(self._transport, turn.position, is_ahead=False)
        assert self._pipe is not None, "opened with the epoch"
        is_overlapping = ahead.under_way_count > 1
        return Sending(self._pipe, turn.position, is_ahead=True, is_overlapping=is_overlapping)

    def stored(self, seat: Seat, sending: Sending) -> None:
        """Record that a batch is stored, which was sent as *sending* says."""
        self._ahead.stored(seat)
        self._has_stored = self._has_stored or sending.is_ahead
        if sending.is_overlapping:
            self._is_proven = True
            self._useless_count = 0
        self._wake()

    def failed(self, seat: Seat, sending: Sending, error: BaseException) -> None:
        """Record that an attempt, made as *sending* says, has failed with *error*."""
        if sending.is_ahead:
            self._judge_pipe(error)
        self._ahead.failed(seat)
        self._drop_pipe_if_ended()
        self._wake()

    def _may_open(self) -> bool:
        """Return whether the lane has a connection of its own, or may have one."""
        if asyncio.get_running_loop().time() < self._avoided_until:
            return False
        if self._pipe is None and self._ahead.wants_position:
            self._pipe = pipe_of(self._transport)
            self._has_stored = self._is_proven = self._is_useless = False
        return self._pipe is not None

    def _judge_pipe(self, error: BaseException) -> None:
        """Decide whether to do without a connection of its own, after a failure on it."""
        if isinstance(error, PipeLostError):
            return  # something else failed before
        is_refused = isinstance(error, (OverloadedError, QuotaExceededError))
        is_unopened = isinstance(error, (NotConnectedError, ConnectTimeoutError))
        is_silent = isinstance(error, (TransportError, TimeoutExpiredError))
        if is_silent and not self._is_proven and not self._is_useless:
            self._is_useless = True
            self._useless_count += 1
        if (
            is_unopened
            or (is_refused and not self._has_stored)  # it may be one too many
            or self._useless_count >= _USELESS_MAX
        ):
            self._useless_count = 0
            self._avoided_until = asyncio.get_running_loop().time() + AVOIDED_SECONDS

    def _drop_pipe_if_ended(self) -> None:
        """Close the connection of an epoch that has failed, once nothing is under way on it.

        The next epoch has another one: its batches must not follow those of this one.
        """
        if self._ahead.is_unsettled and not self._ahead.under_way_count:
            self._close_pipe()

    async def _change(self) -> None:
        """Wait for the next change."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    def _close_pipe(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._closing = asyncio.get_running_loop().create_task(pipe.close())
