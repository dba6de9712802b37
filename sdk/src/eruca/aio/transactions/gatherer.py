"""Send the requests of many transactions to brokers together.

A request goes out at once, alone, while no other is under way at its broker. Those that are made
meanwhile gather, and share the next request. So one task never waits, and many tasks share. As long
as they do, a request waits for the end of the loop's iteration, in which the others are made. If
the broker refuses a shared request for its content, each part of it is sent alone, so that none
fails with another.

Concurrency rule: belongs to the event loop that first uses it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from typing import Final, Generic, TypeVar

from eruca.aio.http.ownership import Ownership
from eruca.contract.errors import (
    ErucaError,
    MalformedBodyError,
    NotFoundError,
    TimeoutExpiredError,
    TooLargeError,
    ValidationError,
)
from eruca.contract.limits import SHARED_TRANSACTION_COUNT_MAX

R = TypeVar("R")
T = TypeVar("T")

BYTES_MAX: Final = 2 * 1024 * 1024  # of one request that several share
IN_FLIGHT_MAX: Final = 2  # requests under way at one broker: one is made while it handles the other
_SHARE_MIN: Final = 8  # requests for which a second one under way is worth its cost
# The last one is the answer of an older broker, which knows no request for many transactions.
_SEND_ALONE: Final = (ValidationError, MalformedBodyError, TooLargeError, NotFoundError)


class Gatherer(Generic[R, T]):
    """Gathers requests of one kind, for each broker by itself.

    Args:
        one: Sends one request to a broker's URL within a time in seconds; returns its answer.
        many: Sends several; returns an answer or an error for each, in their order.
    """

    def __init__(
        self,
        one: Callable[[str, R, float], Awaitable[T]],
        many: Callable[[str, Sequence[R], float], Awaitable[Sequence[T | ErucaError]]],
    ) -> None:
        self._one = one
        self._many = many
        self._lanes: dict[str, _Lane[R, T]] = {}
        self._ownership = Ownership()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop holds only weak references
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    async def ask(self, url: str, request: R, *, size: int, timeout: float) -> T:
        """Return the answer to *request*, of *size* bytes, within *timeout* seconds.

        Raises:
            ErucaError: As the broker answers this request, or the one that it shares.
        """
        loop = self._ownership.check()
        lane = self._lanes.get(url)
        if lane is None:
            # Brokers may return at other addresses, so idle ones are forgotten.
            self._lanes = {u: known for u, known in self._lanes.items() if not known.is_idle}
            lane = self._lanes[url] = _Lane(url)
        if lane.is_idle and not lane.is_shared:
            lane.in_flight += 1
            try:
                return await self._one(url, request, timeout)
            finally:
                self._returned(lane)
        waiting: _Waiting[R, T] = _Waiting(request, size, loop.time() + timeout)
        lane.waiting.append(waiting)
        if self._timer is None or waiting.deadline < self._timer_due:
            self._set_timer(waiting.deadline)
        if not lane.is_pump_due and lane.in_flight < IN_FLIGHT_MAX:
            self._pump_soon(lane)
        return await waiting.future

    def _returned(self, lane: _Lane[R, T]) -> None:
        lane.in_flight -= 1
        if lane.waiting and not lane.is_pump_due:
            self._pump_soon(lane)

    def _pump_soon(self, lane: _Lane[R, T]) -> None:
        # At the end of this loop iteration, so that all requests of the iteration are shared.
        lane.is_pump_due = True
        asyncio.get_running_loop().call_soon(self._pump, lane)

    def _pump(self, lane: _Lane[R, T]) -> None:
        lane.is_pump_due = False
        while lane.waiting and (free := IN_FLIGHT_MAX - lane.in_flight) > 0:
            taken = lane.take(max(-(-len(lane.waiting) // free), _SHARE_MIN))
            if not taken:
                return
            lane.in_flight += 1
            lane.sent.update(taken)
            lane.is_shared = len(taken) > 1
            sending = (
                self._send_all(lane, taken) if lane.is_shared else self._send_alone(lane, taken[0])
            )
            task = asyncio.get_running_loop().create_task(sending)
            self._tasks.add(task)
            task.add_done_callback(partial(self._sent, lane, taken))

    def _sent(
        self, lane: _Lane[R, T], taken: Sequence[_Waiting[R, T]], task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        for waiting in taken:  # without an outcome: raise the defect where the caller waits
            waiting.fail(asyncio.CancelledError() if error is None else error)
        lane.sent.difference_update(taken)
        self._returned(lane)

    async def _send_all(self, lane: _Lane[R, T], taken: Sequence[_Waiting[R, T]]) -> None:
        latest = max(waiting.deadline for waiting in taken)
        timeout = max(latest - asyncio.get_running_loop().time(), 0.0)
        try:
            answers = await self._many(lane.url, [waiting.request for waiting in taken], timeout)
        except _SEND_ALONE:
            await asyncio.gather(*(self._send_alone(lane, waiting) for waiting in taken))
        except ErucaError as error:
            for waiting in taken:
                waiting.fail(copy(error))  # each caller adds to its own
        else:
            for waiting, answer in zip(taken, answers, strict=True):
                if isinstance(answer, ErucaError):
                    waiting.fail(answer)
                elif not waiting.future.done():
                    waiting.future.set_result(answer)

    async def _send_alone(self, lane: _Lane[R, T], waiting: _Waiting[R, T]) -> None:
        timeout = max(waiting.deadline - asyncio.get_running_loop().time(), 0.0)
        try:
            answer = await self._one(lane.url, waiting.request, timeout)
        except ErucaError as error:
            waiting.fail(error)
        else:
            if not waiting.future.done():
                waiting.future.set_result(answer)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._expire)
        self._timer_due = when

    def _expire(self) -> None:
        """Fail the requests whose time is over; their broker may have received them."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        later: list[float] = []
        for lane in self._lanes.values():
            for waiting in (*lane.waiting, *lane.sent):
                if waiting.deadline > now:
                    later.append(waiting.deadline)
                else:
                    waiting.fail(
                        TimeoutExpiredError(f"{lane.url}: no complete answer before the deadline")
                    )
        if later:
            self._set_timer(min(later))


class _Waiting(Generic[R, T]):
    """A request that shares, and the future of its answer."""

    __slots__ = ("deadline", "future", "request", "size")

    def __init__(self, request: R, size: int, deadline: float) -> None:
        self.request = request
        self.size = size  # bytes
        self.deadline = deadline  # by the loop's clock
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def fail(self, error: BaseException) -> None:
        """Set an error, unless there is an outcome already."""
        if self.future.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(error)


class _Lane(Generic[R, T]):
    """The requests of one kind to one broker."""

    __slots__ = ("in_flight", "is_pump_due", "is_shared", "sent", "url", "waiting")

    def __init__(self, url: str) -> None:
        self.url = url
        self.in_flight = 0
        self.waiting: deque[_Waiting[R, T]] = deque()
        self.sent: set[_Waiting[R, T]] = set()
        self.is_pump_due = False
        self.is_shared = False  # whether several have shared the last request

    @property
    def is_idle(self) -> bool:
        return not self.in_flight and not self.waiting

    def take(self, count_max: int) -> list[_Waiting[R, T]]:
        """Remove and return requests for the next one; those with an outcome are dropped."""
        taken: list[_Waiting[R, T]] = []
        size = 0
        while self.waiting and len(taken) < min(count_max, SHARED_TRANSACTION_COUNT_MAX):
            size += self.waiting[0].size
            if taken and size > BYTES_MAX:
                break
            if (waiting := self.waiting.popleft()).future.done():
                size -= waiting.size
            else:
                taken.append(waiting)
        return taken
