"""Hand out messages without order: many at a time, first come, first served.

The number of workers equals the concurrency. A worker awaits async handlers itself, one message
after the other, and settles those that succeeded together: at the end of its stint, or as soon as a
handler waits. All workers share the event loop's turn: none begins a handler after its end. A plain
function runs in a thread, which continues with the next batches for a while. So quick handlers pay
for one thread switch per many batches, and no batch is stuck behind a busy thread. The thread
reports each result as it comes. The event loop collects the reported results together.

:mod:`eruca.core.consuming.concurrent_result` decides what follows from a batch's result.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final, Protocol

from eruca.aio.push.background import Background
from eruca.aio.push.calling import (
    LOOK_SECONDS_MAX,
    LOOKS_PER_LIMIT,
    SUCCEEDED,
    Calls,
    Outcome,
)
from eruca.aio.push.held_queue import HeldQueue
from eruca.aio.push.ready_batches import Batch, ReadyBatches, Run
from eruca.core.consuming.concurrent_result import (
    AGAIN_SECONDS,
    acknowledged_count,
    settle,
    to_send_back,
)
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.consuming.handler_table import HandlerTable
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.messages.received_message import ReceivedMessage

# How long workers continue before they yield to the event loop. In a longer time they would handle
# most of what is prefetched, and wait for the next pulls.
STINT_SECONDS: Final = 0.002
THREAD_STINT_SECONDS: Final = 1.0  # how long a thread continues; a process that ends waits for it

_logger = logging.getLogger(__name__)


class SendsBack(Protocol):
    """The destination of failed messages."""

    async def retry(
        self,
        held: HeldQueue,
        messages: Sequence[ReceivedMessage],
        outcome: Outcome,
        context: ConsumeContext | None,
    ) -> list[ReceivedMessage]:
        """Schedule *messages* for redelivery; return those whose redelivery was not confirmed."""
        ...


class ConcurrentRunner:
    """Runs the handlers of one consumer.

    Args:
        settings: The consumer's.
        handlers: Its handlers.
        send_backs: Receives failed messages; None in broadcasting, where they are dropped.
        on_lost: Called with a queue whose session has ended.
        on_failure: Called with an internal error, which ends the consumer.
        calls: Calls the handlers; default: without interceptors.
    """

    def __init__(
        self,
        settings: PushSettings,
        handlers: HandlerTable,
        send_backs: SendsBack | None,
        *,
        on_lost: Callable[[HeldQueue], None],
        on_failure: Callable[[BaseException], None],
        calls: Calls | None = None,
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._send_backs = send_backs
        self._on_lost = on_lost
        self._calls = calls or Calls(settings)
        self._loop = asyncio.get_running_loop()
        self._ready = ReadyBatches(
            time.monotonic,
            seconds=settings.consume_timeout_seconds,
            on_overdue=self._report_overdue,
        )
        self._threads: ThreadPoolExecutor | None = None
        self._resting: deque[asyncio.Future[None]] = deque()  # idle workers
        self._ends_at: float | None = None  # of the event loop's turn, once a worker has one
        self._paused: dict[HeldQueue, list[Run]] = {}
        self._done: deque[tuple[Batch, Outcome]] = deque()  # results from threads
        self._is_collecting = False  # the event loop has been scheduled to read them
        self._is_closed = False
        self._tasks = Background(on_failure)
        for number in range(settings.concurrency):
            self._tasks.start(self._work(), f"eruca worker {number}")
        self._tasks.start(self._calls.watch(), "eruca time limits")
        self._tasks.start(self._watch_threads(), "eruca threads' time limits")

    @property
    def begun_at(self) -> float:
        """Time when the event loop last began a handler."""
        return self._calls.begun_at

    def add(self, held: HeldQueue) -> None:
        """Start a queue: nothing to do, because its messages arrive by themselves."""

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Hand out *messages* in batches as soon as a handler is free."""
        runs = self._runs(held, messages)
        if held.is_paused:
            self._paused.setdefault(held, []).extend(runs)
            return
        self._hand_out(runs)

    def restart(self, held: HeldQueue) -> None:
        """Drop the queue's messages; running batches do not count."""
        self._ready.withdraw(held)
        self._paused.pop(held, None)

    def pause(self, held: HeldQueue) -> None:
        """Hand out nothing from a queue until it is resumed."""
        self._paused.setdefault(held, []).extend(self._ready.withdraw(held))

    def resume(self, held: HeldQueue) -> None:
        """Hand out a paused queue again."""
        self._hand_out(self._paused.pop(held, []))

    async def drain(self, held: HeldQueue) -> None:
        """Begin no further batch of a queue; return when none is running."""
        held.is_draining = True
        self._ready.withdraw(held)
        self._paused.pop(held, None)
        await held.until_idle()

    def drop(self, held: HeldQueue) -> None:
        """Ignore all later results of a queue."""
        held.drop()
        self._ready.withdraw(held)
        self._paused.pop(held, None)

    async def close(self) -> None:
        """Cancel async handlers; threads continue on their own."""
        # a handler may ignore its cancellation, and its worker must end nevertheless
        self._is_closed = True
        self._ready.close()
        await self._tasks.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # --- runs -------------------------------------------------------------------------------------

    def _runs(self, held: HeldQueue, messages: list[ReceivedMessage]) -> list[Run]:
        find, count_max = self._handlers.find, self._settings.batch_count_max
        only = self._handlers.only_one_of(held.queue.topic)
        if only is not None:
            return [Run(held, messages, only, count_max)]
        return [
            Run(held, its, registration, count_max) for registration, its in groupby(messages, find)
        ]

    def _hand_out(self, runs: Sequence[Run]) -> None:
        self._ready.put(runs)
        self._wake(sum(run.batch_count for run in runs))

    # --- workers ----------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not self._is_closed:
            ends_at = self._turn_ends_at()
            if time.monotonic() >= ends_at:
                await asyncio.sleep(0)  # handlers that never wait would block the loop
                continue
            batch = self._ready.begin_next()
            if batch is None:
                await self._rest()
            elif isinstance(batch, Run):
                await self._work_through(batch, ends_at)
            elif batch.registration is None:
                self._finish(batch, self._calls.unhandled(batch.messages[0]))
            elif batch.registration.is_async:
                try:
                    outcome = await self._calls.call_async(
                        batch.registration, batch.messages, batch.context
                    )
                except BaseException:  # the loop ends, for example by sys.exit in a handler
                    batch.held.end()  # nobody waits for it; its messages are handled again
                    raise
                self._finish(batch, outcome)
            else:
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(
                        self._settings.concurrency, thread_name_prefix="eruca-handler"
                    )
                try:
                    running = self._loop.run_in_executor(self._threads, self._run_in_thread, batch)
                except RuntimeError:  # the process ends, and its threads accept nothing more
                    batch.held.end()
                    raise
                await running

    async def _work_through(self, run: Run, ends_at: float) -> None:
        """Handle messages of a run until the turn ends, or one does not succeed."""
        held, registration = run.held, run.registration
        assert registration is not None
        if held.session is not None:
            ends_at = min(ends_at, held.session.expires_at)
        try:
            failed = await self._calls.call_each(
                registration,
                run.left,
                held,
                ends_at=ends_at,
                settle=held.settle,
            )
        except BaseException:  # as above; the messages before are finished
            held.settle()
            held.end()
            raise
        held.settle()
        if failed is None:
            held.end()
        else:
            message, outcome = failed
            self._conclude(Batch(held, [message], registration), outcome)

    def _turn_ends_at(self) -> float:
        """Return until when handlers may begin before the event loop turns to something else."""
        if self._ends_at is None:
            self._ends_at = time.monotonic() + STINT_SECONDS
            self._loop.call_soon(self._end_turn)
        return self._ends_at

    def _end_turn(self) -> None:
        self._ends_at = None

    def _run_in_thread(self, first: Batch) -> None:
        """Run plain functions in this thread for a while, as long as there are batches."""
        batch: Batch | None = first
        ends_at = time.monotonic() + THREAD_STINT_SECONDS
        while batch is not None:
            assert batch.registration is not None
            outcome = self._calls.call(batch.registration, batch.messages, batch.context)
            self._done.append((batch, outcome))
            if not self._is_collecting:
                self._is_collecting = True
                self._loop.call_soon_threadsafe(self._collect)
            is_over = time.monotonic() >= ends_at
            batch = None if is_over else self._ready.take_in_thread()

    def _collect(self) -> None:
        # This order matters: the thread reports everything it adds from now on.
        self._is_collecting = False
        done = self._done
        while done:
            self._finish(*done.popleft())

    async def _rest(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._resting.append(future)
        try:
            await future
        finally:
            if not future.done():
                self._resting.remove(future)

    def _wake(self, count: int) -> None:
        resting = self._resting
        while count > 0 and resting:
            future = resting.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    async def _watch_threads(self) -> None:
        limit = self._settings.consume_timeout_seconds
        while True:
            await asyncio.sleep(min(limit / LOOKS_PER_LIMIT, LOOK_SECONDS_MAX))
            for batch in self._ready.expire():
                _logger.warning(
                    "a handler has been running for more than %g s at %r", limit, batch.messages[0]
                )
                self._conclude(batch, self._calls.timed_out())

    # --- results ----------------------------------------------------------------------------------

    def _finish(self, batch: Batch, outcome: Outcome) -> None:
        if self._ready.settle(batch):
            self._conclude(batch, outcome)

    def _conclude(self, batch: Batch, outcome: Outcome) -> None:
        held, messages = batch.held, batch.messages
        if outcome is SUCCEEDED and batch.context is None and not held.is_dropped:
            held.freed(held.process.remove(messages))  # the most frequent case
            held.end()
            return
        ack_index = None if batch.context is None else batch.context.ack_index
        done = acknowledged_count(outcome.status, ack_index, len(messages))
        if held.is_dropped:
            held.end()
            return
        failed = to_send_back(held.process, messages[done:], self._settings.message_model)
        if not failed:
            held.freed(settle(held.process, messages, ()))
            held.end()
            return
        self._tasks.start(self._send_back(batch, failed, outcome), "eruca send-back")

    async def _send_back(
        self, batch: Batch, failed: list[ReceivedMessage], outcome: Outcome
    ) -> None:
        held = batch.held
        assert self._send_backs is not None
        try:
            unsent = await self._send_backs.retry(held, failed, outcome, batch.context)
            if held.is_dropped:
                return
            held.freed(settle(held.process, batch.messages, unsent))
            if unsent:
                for message in unsent:
                    message._retried += 1
                self._loop.call_later(AGAIN_SECONDS, self._again, held, unsent)
        finally:
            held.end()

    def _again(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        if not held.is_dropped and not held.is_draining:
            self.put(held, messages)

    # --- the edges --------------------------------------------------------------------------------

    def _report_overdue(self, held: HeldQueue) -> None:
        self._loop.call_soon_threadsafe(self._on_lost, held)
