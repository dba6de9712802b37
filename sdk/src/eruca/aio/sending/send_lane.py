"""A lane: messages of one producer that may share a batch.

Messages that may go to any queue of a topic share one lane, with several batches under way.
Messages for one particular queue have their own lane, which keeps them in order, retries included.
It has one batch under way at a time, or several that a broker stores only one after the other
(:mod:`eruca.aio.sending.ahead`).

A lane is *lone* after a message that had no company: nothing else waited or was under way before
its answer came. Then one task sends and awaits, and the next message will be alone, too. So it is
sent in the caller's task, at once: no batch is gathered, no task made, and no turn of the event
loop passes before the socket has it, or between the answer and the caller. Company ends it.

Concurrency rule: everything runs on the producer's event loop; only a lone send awaits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from eruca.aio.http.ownership import Ownership
from eruca.aio.sending.ahead import LaneTurns
from eruca.core.messages.message import Message
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.batching import Batching, full_at, linger_seconds
from eruca.core.producing.send_ahead import Seat
from eruca.core.producing.send_result import SendResult, Stored

SendFuture = asyncio.Future[SendResult]


class PendingBatch:
    """Messages that are sent together, and the futures of their results."""

    __slots__ = (
        "begin",
        "count_max",
        "deadline",
        "finished",
        "futures",
        "is_closed",
        "message_ids",
        "messages",
        "opened_at",
        "queue",
        "seat",
        "size",
        "size_max",
        "turns",
        "whole",
    )

    def __init__(self, queue: MessageQueue | None, *, opened_at: float, deadline: float) -> None:
        self.queue = queue  # the queue it must go to; None: any queue of the topic
        self.opened_at = opened_at  # by the loop's clock, as all times here
        self.deadline = deadline
        self.messages: list[Message] = []
        self.futures: list[SendFuture] = []  # one per message, unless `whole` is set
        self.whole: asyncio.Future[Stored] | None = None
        self.begin: Callable[[PendingBatch], None] | None = None  # starts the time limit
        self.message_ids: Sequence[str] | None = None  # set at the first attempt, kept by all
        self.size = 0  # bytes, estimated
        self.count_max = self.size_max = 0  # at which an open batch is full
        self.is_closed = False  # accepts no further message
        self.finished: asyncio.Future[None] | None = None  # for flush()
        self.turns: LaneTurns | None = None  # an ordered lane's; set when it leaves the lane
        self.seat: Seat | None = None  # there

    def succeed(self, stored: Stored) -> None:
        """Set the results."""
        if self.whole is not None:
            if not self.whole.done():
                self.whole.set_result(stored)
            return
        for future, result in zip(self.futures, stored.results(), strict=True):
            if not future.done():
                future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Set an error."""
        if self.whole is not None:
            if not self.whole.done():
                self.whole.set_exception(error)
            return
        for future in self.futures:
            if not future.done():
                future.set_exception(error)

    def drop_cancelled(self) -> None:
        """Remove cancelled messages; none of them has been stored."""
        if not any(map(asyncio.Future.cancelled, self.futures)):
            return
        kept = [place for place, future in enumerate(self.futures) if not future.cancelled()]
        self.messages = [self.messages[place] for place in kept]
        self.futures = [self.futures[place] for place in kept]
        if self.message_ids is not None:  # part of a batch that was refused
            self.message_ids = [self.message_ids[place] for place in kept]

    def part(self, start: int, end: int) -> PendingBatch:
        """Return some of its messages as a new batch, ids included."""
        part = PendingBatch(self.queue, opened_at=self.opened_at, deadline=self.deadline)
        part.messages = self.messages[start:end]
        part.futures = self.futures[start:end]
        part.message_ids = None if self.message_ids is None else self.message_ids[start:end]
        part.turns, part.seat = self.turns, self.seat
        return part


class SendLane:
    """Collects messages into batches and sends the batches one after another.

    Args:
        send: Sends a batch and sets its results or its error; never raises.
        send_one: Sends a batch of one message; returns its place, or raises the error.
        queue: The queue of all messages in this lane; None: any queue.
        limits: Maximum size of a batch.
        linger: How long a batch may wait for more messages, in seconds.
        in_flight_max: Maximum number of batches under way.
        timeout: From a batch's first message to its deadline, in seconds.
        turns: The turns of its batches, if they stay in order; then *in_flight_max* is theirs.
    """

    __slots__ = (
        "_caller",
        "_given_up",
        "_in_flight",
        "_in_flight_max",
        "_limits",
        "_linger",
        "_loop",
        "_open",
        "_ownership",
        "_pump_is_due",
        "_queue",
        "_send",
        "_send_one",
        "_timeout",
        "_timer",
        "_turns",
        "_waiting",
        "is_lone",
    )

    def __init__(
        self,
        send: Callable[[PendingBatch], Coroutine[None, None, None]],
        send_one: Callable[[PendingBatch], Coroutine[None, None, Stored]],
        queue: MessageQueue | None,
        *,
        limits: Batching,
        linger: float,
        in_flight_max: int,
        timeout: float,
        turns: LaneTurns | None = None,
    ) -> None:
        self._turns = turns
        self._send = send
        self._send_one = send_one
        self._queue = queue
        self._limits = limits
        self._linger = linger
        self._in_flight_max = in_flight_max
        self._timeout = timeout
        self._ownership = Ownership()
        self._loop = self._ownership.check()
        self._waiting: deque[PendingBatch] = deque()  # the last one may be open
        self._open: PendingBatch | None = None
        self._in_flight: dict[PendingBatch, asyncio.Task[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._pump_is_due = False
        self._caller: asyncio.Task[Any] | None = None  # of send_alone(); None if it is given up
        self._given_up: BaseException | None = None  # … and the error for it then
        self.is_lone = False  # whether the next message may use it

    @property
    def is_idle(self) -> bool:
        """True if no message waits and no batch is in flight."""
        return not self._waiting and not self._in_flight

    def add(self, message: Message, size: int, deadline: float = 0.0) -> SendFuture:
        """Add a message to the open batch; return the future of its result.

        If *deadline* is later than the batch's own, the batch gets the later one.
        """
        batch = self._open
        if (
            batch is None
            or batch.size + size > batch.size_max
            or len(batch.messages) >= batch.count_max
        ):
            batch = self._open_batch()
        if deadline:
            batch.deadline = max(batch.deadline, deadline)
        future: SendFuture = self._loop.create_future()
        batch.messages.append(message)
        batch.futures.append(future)
        batch.size += size
        return future

    async def send_alone(self, message: Message, size: int) -> SendResult:
        """Send a message in the caller's task, and return its place; only while the lane is lone.

        If the caller is cancelled, the request under way is given up, and not repeated: a broker
        may have stored the message.
        """
        assert self.is_lone
        assert self.is_idle
        batch = self._new_batch()
        batch.is_closed = True
        batch.messages.append(message)  # without a future: the caller itself gets the outcome
        batch.size = size
        task = asyncio.current_task(self._loop)
        assert task is not None
        cancelling = task.cancelling()
        self._in_flight[batch] = self._caller = task
        try:
            stored = await self._send_one(batch)
        except asyncio.CancelledError:
            error, self._given_up = self._given_up, None
            if error is None or task.uncancel() > cancelling:
                raise  # by the program
            raise error from None
        finally:
            self._caller = None
            self._ended(batch)
        return stored.result()

    def add_batch(self, batch: PendingBatch) -> None:
        """Add a batch after the others; it accepts no further message."""
        self._ownership.check()
        self.is_lone = False
        self._close_open_batch()
        batch.is_closed = True
        self._waiting.append(batch)
        self._pump_soon()

    def flush(self) -> list[PendingBatch]:
        """End the lingering of the present batches; return the unfinished ones."""
        self._ownership.check()
        self._close_open_batch()
        self._pump_soon()
        return [*self._waiting, *self._in_flight]

    async def close(self) -> None:
        """Close the lane's own connection."""
        if self._turns is not None:
            await self._turns.close()

    def cancel(self, error: BaseException, *, under_way: BaseException) -> list[asyncio.Task[Any]]:
        """Fail all waiting batches, and those *under_way* by another error; return their tasks."""
        self._open = None
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            finish(self._waiting.popleft(), error)
        for batch, task in self._in_flight.items():
            task.cancel()
            batch.fail(under_way)
        # A caller's own task goes on: the error is raised there.
        tasks = [task for task in self._in_flight.values() if task is not self._caller]
        if self._caller is not None:
            self._given_up = under_way
        return tasks

    def _open_batch(self) -> PendingBatch:
        self._close_open_batch()
        batch = self._open = self._new_batch()
        ahead = len(self._waiting) + len(self._in_flight)
        batch.count_max, batch.size_max = full_at(
            self._limits, ahead, takes_turns=self._turns is None and self._in_flight_max > 1
        )
        self._waiting.append(batch)
        self._pump_soon()
        return batch

    def _new_batch(self) -> PendingBatch:
        self._ownership.check()  # once for all of its messages
        self.is_lone = False
        now = self._loop.time()
        return PendingBatch(self._queue, opened_at=now, deadline=now + self._timeout)

    def _close_open_batch(self) -> None:
        if self._open is not None:
            self._open.is_closed = True
            self._open = None
            self._pump_soon()

    def _pump_soon(self) -> None:
        # At the end of this loop iteration, so that all sends of the iteration share the batch.
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        turns = self._turns
        while self._waiting:
            batch = self._waiting[0]
            wait = linger_seconds(
                is_full=batch.is_closed,
                in_flight=len(self._in_flight),
                in_flight_max=self._in_flight_max if turns is None else turns.room,
                waited_seconds=self._loop.time() - batch.opened_at,
                linger_seconds_max=self._linger,
            )
            if wait is None:
                return
            if wait > 0:
                self._timer = self._loop.call_later(wait, self._pump)
                return
            self._dispatch(self._waiting.popleft())
        if turns is not None and not self._in_flight:
            turns.rest()

    def _dispatch(self, batch: PendingBatch) -> None:
        if batch is self._open:
            self._open = None
            batch.is_closed = True
        if self._turns is not None:
            batch.turns, batch.seat = self._turns, self._turns.enter(batch.size)
        task = self._loop.create_task(self._sent(batch))
        self._in_flight[batch] = task
        task.add_done_callback(partial(self._on_done, batch))

    async def _sent(self, batch: PendingBatch) -> None:
        await self._send(batch)
        self._ended(batch)  # before those who get the results can send again

    def _on_done(self, batch: PendingBatch, task: asyncio.Task[None]) -> None:
        if batch not in self._in_flight:
            return
        if not task.cancelled() and (error := task.exception()) is not None:
            batch.fail(error)  # a defect; raise it where a caller waits
        self._ended(batch)

    def _ended(self, batch: PendingBatch) -> None:
        """Let the lane continue after a batch whose outcome is known."""
        del self._in_flight[batch]
        if batch.finished is not None and not batch.finished.done():
            batch.finished.set_result(None)
        if batch.turns is not None and batch.seat is not None:
            batch.turns.leave(batch.seat)
            if self._waiting and self._has_waited(self._waiting[0]):
                batch.turns.want()
        if self._waiting or self._turns is not None:
            self._pump_soon()
        else:
            self.is_lone = batch.whole is None and len(batch.messages) == 1 and self.is_idle

    def _has_waited(self, batch: PendingBatch) -> bool:
        """Tell whether a batch would have been sent earlier beside others."""
        return batch.is_closed or self._loop.time() - batch.opened_at >= self._linger


def finish(batch: PendingBatch, error: BaseException) -> None:
    """Fail a batch that was never sent."""
    batch.fail(error)
    if batch.finished is not None and not batch.finished.done():
        batch.finished.set_result(None)
