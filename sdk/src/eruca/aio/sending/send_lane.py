"""A lane: messages that may share a batch, on their way through one producer.

Messages that may go to any queue of a topic share one lane, with several batches under way.
Messages for one particular queue have a lane of their own with one batch under way at a time, and
that is what keeps them in order, retries included.

Concurrency rule: everything runs on the producer's event loop; a lane never awaits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence

from eruca.aio.http.ownership import Ownership
from eruca.core.messages.message import Message
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.batching import Batching, linger_seconds
from eruca.core.producing.send_result import SendResult, Stored

SendFuture = asyncio.Future[SendResult]


class PendingBatch:
    """Messages that leave together, and who waits for them."""

    __slots__ = (
        "begin",
        "deadline",
        "finished",
        "futures",
        "is_closed",
        "message_ids",
        "messages",
        "opened_at",
        "queue",
        "size",
        "whole",
    )

    def __init__(self, queue: MessageQueue | None, *, opened_at: float, deadline: float) -> None:
        self.queue = queue  # where it must go; None for any queue of the topic
        self.opened_at = opened_at  # by the loop's clock, as all times here
        self.deadline = deadline
        self.messages: list[Message] = []
        self.futures: list[SendFuture] = []  # one per message, unless there is `whole`
        self.whole: asyncio.Future[Stored] | None = None
        self.begin: Callable[[PendingBatch], None] | None = None  # sets the deadline at last
        self.message_ids: Sequence[str] | None = None  # given at the first attempt, kept by all
        self.size = 0  # bytes, by estimate
        self.is_closed = False  # takes no further message
        self.finished: asyncio.Future[None] | None = None  # for whoever flushes

    def succeed(self, stored: Stored) -> None:
        """Hand out the results."""
        if self.whole is not None:
            if not self.whole.done():
                self.whole.set_result(stored)
            return
        for future, result in zip(self.futures, stored.results(), strict=True):
            if not future.done():
                future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Hand out an error."""
        if self.whole is not None:
            if not self.whole.done():
                self.whole.set_exception(error)
            return
        for future in self.futures:
            if not future.done():
                future.set_exception(error)

    def drop_cancelled(self) -> None:
        """Take out the messages nobody waits for any more; none of them has been stored."""
        if not any(map(asyncio.Future.cancelled, self.futures)):
            return
        kept = [place for place, future in enumerate(self.futures) if not future.cancelled()]
        self.messages = [self.messages[place] for place in kept]
        self.futures = [self.futures[place] for place in kept]
        if self.message_ids is not None:  # part of a batch that was refused
            self.message_ids = [self.message_ids[place] for place in kept]

    def part(self, start: int, end: int) -> PendingBatch:
        """Return some of its messages as a batch of their own, ids included."""
        part = PendingBatch(self.queue, opened_at=self.opened_at, deadline=self.deadline)
        part.messages = self.messages[start:end]
        part.futures = self.futures[start:end]
        part.message_ids = None if self.message_ids is None else self.message_ids[start:end]
        return part


class SendLane:
    """Collects messages into batches and lets the batches go one after another.

    Args:
        send: Sends a batch and hands out its results or its error; never raises.
        queue: Where everything in this lane goes; None for any queue.
        limits: How large a batch may grow.
        linger: How long a batch may wait for company, in seconds.
        in_flight_max: How many batches may be under way.
        timeout: From a batch's first message to its deadline, in seconds.
    """

    __slots__ = (
        "_count_max",
        "_in_flight",
        "_in_flight_max",
        "_is_flushing",
        "_linger",
        "_loop",
        "_open",
        "_ownership",
        "_pump_is_due",
        "_queue",
        "_send",
        "_size_max",
        "_timeout",
        "_timer",
        "_waiting",
    )

    def __init__(
        self,
        send: Callable[[PendingBatch], Coroutine[None, None, None]],
        queue: MessageQueue | None,
        *,
        limits: Batching,
        linger: float,
        in_flight_max: int,
        timeout: float,
    ) -> None:
        self._send = send
        self._queue = queue
        self._count_max = limits.count_max
        self._size_max = limits.bytes_max
        self._linger = linger
        self._in_flight_max = in_flight_max
        self._timeout = timeout
        self._ownership = Ownership()
        self._loop = self._ownership.check()
        self._waiting: deque[PendingBatch] = deque()  # the last one may be open
        self._open: PendingBatch | None = None
        self._in_flight: dict[asyncio.Task[None], PendingBatch] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._pump_is_due = False
        self._is_flushing = False

    @property
    def is_idle(self) -> bool:
        """True if no message waits and no batch is in flight."""
        return not self._waiting and not self._in_flight

    def add(self, message: Message, size: int, deadline: float = 0.0) -> SendFuture:
        """Put a message into the open batch and return the future of its result.

        A *deadline* beyond the batch's own extends that.
        """
        batch = self._open
        if (
            batch is None
            or batch.size + size > self._size_max
            or len(batch.messages) >= self._count_max
        ):
            batch = self._open_batch()
        if deadline:
            batch.deadline = max(batch.deadline, deadline)
        future: SendFuture = self._loop.create_future()
        batch.messages.append(message)
        batch.futures.append(future)
        batch.size += size
        return future

    def add_batch(self, batch: PendingBatch) -> None:
        """Put a batch behind the others; it takes no further message."""
        self._ownership.check()
        self._close_open_batch()
        batch.is_closed = True
        self._waiting.append(batch)
        self._pump_soon()

    def flush(self) -> list[PendingBatch]:
        """Stop lingering for what is here now, and return what has not come back yet."""
        self._ownership.check()
        self._close_open_batch()
        self._pump_soon()
        return [*self._waiting, *self._in_flight.values()]

    def cancel(self, error: BaseException, *, under_way: BaseException) -> list[asyncio.Task[None]]:
        """Fail all that waits, and by another error what is *under_way*; return its tasks."""
        self._open = None
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            finish(self._waiting.popleft(), error)
        for task, batch in self._in_flight.items():
            task.cancel()
            batch.fail(under_way)
        return list(self._in_flight)

    def _open_batch(self) -> PendingBatch:
        self._ownership.check()  # once for all of its messages
        self._close_open_batch()
        now = self._loop.time()
        batch = PendingBatch(self._queue, opened_at=now, deadline=now + self._timeout)
        self._open = batch
        self._waiting.append(batch)
        self._pump_soon()
        return batch

    def _close_open_batch(self) -> None:
        if self._open is not None:
            self._open.is_closed = True
            self._open = None
            self._pump_soon()

    def _pump_soon(self) -> None:
        # At the end of this turn of the loop: whoever sends in the same turn shares the batch.
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            batch = self._waiting[0]
            wait = linger_seconds(
                is_full=batch.is_closed,
                in_flight=len(self._in_flight),
                in_flight_max=self._in_flight_max,
                waited_seconds=self._loop.time() - batch.opened_at,
                linger_seconds_max=self._linger,
            )
            if wait is None:
                return
            if wait > 0:
                self._timer = self._loop.call_later(wait, self._pump)
                return
            self._dispatch(self._waiting.popleft())

    def _dispatch(self, batch: PendingBatch) -> None:
        if batch is self._open:
            self._open = None
            batch.is_closed = True
        task = self._loop.create_task(self._send(batch))
        self._in_flight[task] = batch
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        batch = self._in_flight.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            batch.fail(error)  # a defect; let it be heard where somebody waits
        if batch.finished is not None and not batch.finished.done():
            batch.finished.set_result(None)
        self._pump_soon()


def finish(batch: PendingBatch, error: BaseException) -> None:
    """Fail a batch that never left."""
    batch.fail(error)
    if batch.finished is not None and not batch.finished.done():
        batch.finished.set_result(None)
