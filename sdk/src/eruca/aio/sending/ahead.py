"""The turns of an ordered lane's batches, and the connection on which they are sent ahead.

:mod:`eruca.core.producing.send_ahead` decides. This module waits, and keeps the connection: it is
opened when the first batch is sent ahead, and closed after a failure, and after
:data:`IDLE_SECONDS` without a batch.
Answers come in the order of requests there, so no batch is acknowledged before an earlier one.

Concurrency rule: belongs to the producer's event loop.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final, NamedTuple

from eruca.aio.http.transport import HttpTransport, pipe_of
from eruca.contract.errors import TimeoutExpiredError
from eruca.contract.wire import LanePosition
from eruca.core.producing.send_ahead import Seat, SendAhead

IDLE_SECONDS: Final = 5.0  # after which a lane's own connection is closed
_NAME_SIZE: Final = 8  # bytes


class Sending(NamedTuple):
    """The way in which a batch is sent now."""

    transport: HttpTransport
    position: LanePosition | None  # None: as a batch of no lane
    is_ahead: bool


class LaneTurns:
    """The turns of one lane.

    Args:
        transport: Carries the hot routes.
        in_flight_max: Maximum number of batches under way.
    """

    def __init__(self, transport: HttpTransport, in_flight_max: int) -> None:
        self._transport = transport
        self._pipe: HttpTransport | None = None  # the connection for batches that are sent ahead
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
            turn = ahead.turn(seat, url, may_have_position=has_pipe)
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
            return Sending(self._transport, turn.position, is_ahead=False)
        assert self._pipe is not None, "opened with the epoch"
        return Sending(self._pipe, turn.position, is_ahead=True)

    def stored(self, seat: Seat) -> None:
        """Record that a batch is stored."""
        self._ahead.stored(seat)
        self._wake()

    def failed(self, seat: Seat) -> None:
        """Record that an attempt has failed."""
        self._ahead.failed(seat)
        self._drop_pipe_if_ended()
        self._wake()

    def _may_open(self) -> bool:
        """Return whether the lane has a connection of its own, or may have one."""
        if self._pipe is None and self._ahead.wants_position:
            self._pipe = pipe_of(self._transport)
        return self._pipe is not None

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
