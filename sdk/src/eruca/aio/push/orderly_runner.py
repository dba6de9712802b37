"""Hand out messages in order: one batch of a queue at a time, many queues at once.

Each queue has a task. The number of running tasks is limited by the concurrency. A task gives up
its slot when the queue is empty or suspended, or after a minute. An async handler is awaited. A
plain function runs in a thread, several batches in a row as long as they succeed quickly.

A queue may be lost and assigned again while an earlier handler is still running. The new messages
wait for that handler, so that two handlers never have messages of one queue.

:mod:`eruca.core.consuming.orderly_result` decides what follows from a batch's result. If some
messages of a batch became dead letters, only the others are put back. RocketMQ puts back the whole
batch, and makes those dead letters twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeAlias

from eruca.aio.push.background import Background
from eruca.aio.push.calling import SUCCEEDED, Calls, Outcome
from eruca.aio.push.held_queue import HeldQueue
from eruca.aio.push.orderly_stint import is_simple, work_through
from eruca.aio.push.retry_limit import RetryLimit
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.consuming.handler_table import HandlerTable, Registration
from eruca.core.consuming.keyed_queue import KeyedQueue
from eruca.core.consuming.ordered_queue import OrderedQueue
from eruca.core.consuming.orderly_result import (
    LOCK_LOOK_SECONDS,
    TURN_SECONDS,
    Action,
    Gate,
    action_if_all_dead,
    action_of,
    is_exhausted,
    must_step_back,
    suspend_seconds,
)
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

STINT_SECONDS: Final = 0.005  # how long a thread continues with further batches before it reports
_STINT_BATCHES: Final = 64  # batches given to a thread at a time

_Queue: TypeAlias = KeyedQueue[ReceivedMessage] | OrderedQueue[ReceivedMessage]

_logger = logging.getLogger(__name__)


class Buries(Protocol):
    """The destination of messages whose retries are used up."""

    async def bury(
        self, held: HeldQueue, messages: Sequence[ReceivedMessage], outcome: Outcome
    ) -> list[ReceivedMessage]:
        """Make *messages* dead letters; return those for which that was not confirmed."""
        ...


class _Lane:
    """One queue, and the state of its task."""

    def __init__(self, held: HeldQueue, *, by_key: bool) -> None:
        self.held = held
        self._by_key = by_key
        self.news = asyncio.Event()  # set for messages, a resume, or an end
        self.ready_at = 0.0  # suspended until then
        self.is_busy = False  # a batch is running
        self.is_stuck = False  # the warning about missing commits was logged
        self.task: asyncio.Task[None] | None = None
        self.restart()

    def restart(self) -> None:
        """Reset to the state of an empty queue."""
        self.queue: _Queue = (
            KeyedQueue(self.held.process, _sharding_key)
            if self._by_key
            else OrderedQueue(self.held.process)
        )


class _Batch(NamedTuple):
    """Messages for one call, and the handler's result besides the verdict."""

    messages: list[ReceivedMessage]
    registration: Registration | None
    context: ConsumeContext


class OrderlyRunner:
    """Runs the handlers of one consumer.

    Args:
        settings: The consumer's.
        handlers: Its handlers.
        send_backs: Makes dead letters; None in broadcasting, where such messages are dropped.
        retry_limit: Returns the number of retries after which a message is a dead letter.
        on_lost: Called with a queue whose session has ended.
        on_failure: Called with an internal error, which ends the consumer.
        calls: Calls the handlers; default: without interceptors.
    """

    def __init__(
        self,
        settings: PushSettings,
        handlers: HandlerTable,
        send_backs: Buries | None,
        *,
        retry_limit: RetryLimit,
        on_lost: Callable[[HeldQueue], None],
        on_failure: Callable[[BaseException], None],
        calls: Calls | None = None,
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._send_backs = send_backs
        self._retry_limit = retry_limit
        self._on_lost = on_lost
        self._calls = calls or Calls(settings)
        self._loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(settings.concurrency)
        self._threads: ThreadPoolExecutor | None = None
        self._lanes: dict[HeldQueue, _Lane] = {}
        self._lost: dict[MessageQueue, asyncio.Task[None]] = {}  # their last batch is still running
        self._tasks = Background(on_failure)
        self._tasks.start(self._calls.watch(), "eruca time limits")

    @property
    def begun_at(self) -> float:
        """Time when the event loop last began a handler."""
        return self._calls.begun_at

    def add(self, held: HeldQueue) -> None:
        """Start a queue."""
        lane = _Lane(held, by_key=self._settings.retries.on_poison == "block_key")
        self._lanes[held] = lane
        lane.task = self._tasks.start(self._run(lane), f"eruca queue {held.queue}")

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Hand out *messages* after the earlier ones."""
        lane = self._lanes[held]
        lane.queue.add(messages)
        lane.news.set()

    def restart(self, held: HeldQueue) -> None:
        """Drop the queue's messages; running batches do not count."""
        self._lanes[held].restart()

    def pause(self, held: HeldQueue) -> None:
        """Hand out nothing from a queue until it is resumed; its task checks this itself."""

    def resume(self, held: HeldQueue) -> None:
        """Hand out a paused queue again."""
        if (lane := self._lanes.get(held)) is not None:
            lane.news.set()

    async def drain(self, held: HeldQueue) -> None:
        """Begin no further batch of a queue; return when none is running."""
        held.is_draining = True
        lane = self._lanes.pop(held, None)
        if lane is not None and lane.task is not None:
            if not lane.is_busy:
                lane.task.cancel()  # it waits for messages, a time, or a slot
            await asyncio.wait((lane.task,))

    def drop(self, held: HeldQueue) -> None:
        """Ignore all later results of a queue."""
        held.drop()
        lane = self._lanes.pop(held, None)
        if lane is None:
            return
        lane.news.set()
        if lane.is_busy and lane.task is not None:
            self._lost[held.queue] = lane.task
            lane.task.add_done_callback(lambda _: self._lost.pop(held.queue))

    async def close(self) -> None:
        """Cancel async handlers; threads continue on their own."""
        await self._tasks.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # --- a queue's task ---------------------------------------------------------------------------

    async def _run(self, lane: _Lane) -> None:
        held = lane.held
        if (before := self._lost.get(held.queue)) is not None:
            await asyncio.wait((before,))
        while not held.is_draining and not held.is_dropped:
            lane.news.clear()
            now = time.monotonic()
            ready_at = None if held.is_paused else lane.queue.ready_at()
            if ready_at is None:
                await lane.news.wait()
                continue
            due = max(ready_at, lane.ready_at)
            if due > now:
                with suppress(TimeoutError):
                    async with asyncio.timeout(due - now):
                        await lane.news.wait()
                continue
            if held.gate(now) is Gate.WAIT:
                self._on_lost(held)
                await asyncio.sleep(LOCK_LOOK_SECONDS)
                continue
            async with self._places:
                await self._take_turn(lane)

    async def _take_turn(self, lane: _Lane) -> None:
        held = lane.held
        began_at = yielded_at = time.monotonic()
        lane.is_busy = True
        try:
            while not held.is_paused:
                now = time.monotonic()
                if held.gate(now) is not Gate.OPEN:
                    return
                if must_step_back(now - began_at):
                    lane.ready_at = now + TURN_SECONDS
                    return
                if now - yielded_at >= STINT_SECONDS:
                    await asyncio.sleep(0)  # handlers that never wait would block the loop
                    yielded_at = time.monotonic()
                held.begin()
                try:
                    goes_on = await self._handle_next(lane, now, yielded_at + STINT_SECONDS)
                finally:
                    held.end()
                if not goes_on:
                    return
        finally:
            lane.is_busy = False

    async def _handle_next(self, lane: _Lane, now: float, ends_at: float) -> bool:
        """Handle the next messages, if any; return whether the queue continues."""
        held, queue = lane.held, lane.queue
        handler = self._handlers.only_one_of(held.queue.topic)
        if (
            handler is None
            or not isinstance(queue, OrderedQueue)
            or not is_simple(self._settings, handler)
        ):
            batches = self._next(held, queue, now)
            return bool(batches) and await self._handle(lane, queue, batches)
        if queue.ready_at() is None:
            return False
        failed = await work_through(self._calls, held, queue, handler, ends_at=ends_at)
        if failed is None or held.is_dropped:
            return not held.is_dropped
        message, outcome = failed
        batch = _Batch([message], handler, ConsumeContext(held.queue, held.is_lost))
        return await self._conclude(lane, queue, batch, outcome)

    def _next(self, held: HeldQueue, queue: _Queue, now: float) -> list[_Batch]:
        """Take the next batch; for a thread, several."""
        batches: list[_Batch] = []
        while len(batches) < _STINT_BATCHES:
            batch = self._next_batch(held, queue, now)
            if batch is None:
                break
            batches.append(batch)
            if batch.registration is None or batch.registration.is_async:
                break
        if len(batches) > 1 and batches[-1].registration is not batches[0].registration:
            _give_back(queue, batches.pop().messages, now)
        return batches

    def _next_batch(self, held: HeldQueue, queue: _Queue, now: float) -> _Batch | None:
        messages = queue.take(self._settings.batch_count_max, now)
        if not messages:
            return None
        registration = self._handlers.only_one_of(held.queue.topic)
        if registration is None:
            registration = self._handlers.find(messages[0])
            for index, message in enumerate(messages):
                if index and self._handlers.find(message) is not registration:
                    _give_back(queue, messages[index:], now)
                    del messages[index:]
                    break
        context = ConsumeContext(
            held.queue, held.is_lost, auto_commit=self._settings.offsets.auto_commit
        )
        return _Batch(messages, registration, context)

    # --- handling ---------------------------------------------------------------------------------

    async def _handle(self, lane: _Lane, queue: _Queue, batches: list[_Batch]) -> bool:
        """Run batches and process their results; return whether the queue continues."""
        registration = batches[0].registration
        if registration is None:
            outcomes = [self._calls.unhandled(batches[0].messages[0])]
        elif registration.is_async:
            batch = batches[0]
            outcomes = [await self._calls.call_async(registration, batch.messages, batch.context)]
        else:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(
                    self._settings.concurrency, thread_name_prefix="eruca-handler"
                )
            run = self._loop.run_in_executor(
                self._threads, self._run_in_thread, lane.held, registration, batches
            )
            outcomes = await self._within_limit(run, batches[0])
        if lane.held.is_dropped:
            return False
        now = time.monotonic()
        for batch in reversed(batches[len(outcomes) :]):
            _give_back(queue, batch.messages, now)
        goes_on = True
        for batch, outcome in zip(batches, outcomes, strict=False):
            goes_on = await self._conclude(lane, queue, batch, outcome)
        return goes_on

    def _run_in_thread(
        self, held: HeldQueue, registration: Registration, batches: list[_Batch]
    ) -> list[Outcome]:
        """Call a plain function batch by batch, while the calls succeed quickly."""
        outcomes: list[Outcome] = []
        ends_at = time.monotonic() + STINT_SECONDS
        for batch in batches:
            outcome = self._calls.call(registration, batch.messages, batch.context)
            outcomes.append(outcome)
            now = time.monotonic()
            if outcome is not SUCCEEDED or now >= ends_at or held.gate(now) is not Gate.OPEN:
                break
        return outcomes

    async def _within_limit(
        self, run: asyncio.Future[list[Outcome]], first: _Batch
    ) -> list[Outcome]:
        """Wait for a thread, however long it takes: later messages must not overtake."""
        limit = self._settings.consume_timeout_seconds
        done, _ = await asyncio.wait((run,), timeout=limit)
        if not done:
            _logger.warning(
                "a handler has been running for more than %g s; its queue waits for it, at %r",
                limit,
                first.messages[0],
            )
        return await run

    # --- results ----------------------------------------------------------------------------------

    async def _conclude(self, lane: _Lane, queue: _Queue, batch: _Batch, outcome: Outcome) -> bool:
        """Process one result; return whether the queue continues."""
        if isinstance(queue, KeyedQueue):
            return await self._conclude_by_key(lane, queue, batch, outcome)
        held, context = lane.held, batch.context
        action = action_of(outcome.status, auto_commit=context.auto_commit)
        dead: list[ReceivedMessage] = []
        if action is Action.PUT_BACK:
            dead = await self._bury_exhausted(held, batch.messages, outcome)
            if held.is_dropped:
                return False
            if len(dead) == len(batch.messages):
                action = action_if_all_dead(auto_commit=context.auto_commit)
        if action is Action.COMMIT:
            held.freed(queue.commit(batch.messages))
            return True
        if action is Action.KEEP:
            held.keep(batch.messages)
            self._warn_if_stuck(lane, queue)
            return True
        if action is Action.PUT_BACK:
            queue.put_back(batch.messages)
            held.freed(queue.discard(dead) if dead else 0)
        else:
            queue.roll_back()
            held.process.keep_none()
        lane.ready_at = time.monotonic() + self._suspend_seconds(context)
        return False

    async def _conclude_by_key(
        self,
        lane: _Lane,
        queue: KeyedQueue[ReceivedMessage],
        batch: _Batch,
        outcome: Outcome,
    ) -> bool:
        held = lane.held
        if outcome.status is not ConsumeStatus.SUSPEND:
            held.freed(queue.succeed(batch.messages))
            return True
        dead = await self._bury_exhausted(held, batch.messages, outcome)
        if held.is_dropped:
            return False
        if dead:
            held.freed(queue.succeed(dead))
        if alive := [message for message in batch.messages if message not in dead]:
            queue.block(alive, time.monotonic() + self._suspend_seconds(batch.context))
        return True

    async def _bury_exhausted(
        self, held: HeldQueue, messages: list[ReceivedMessage], outcome: Outcome
    ) -> list[ReceivedMessage]:
        """Count a failure of each message; return those that are dead letters now."""
        limit = await self._retry_limit.max_times(held.queue)
        if held.is_dropped:
            return []
        dead = [m for m in messages if is_exhausted(m.reconsume_times, limit)]
        if dead and self._send_backs is not None:
            unsent = await self._send_backs.bury(held, dead, outcome)
            dead = [message for message in dead if message not in unsent]
        elif dead:
            _logger.error(
                "%d messages have failed too often and are dropped: %r", len(dead), dead[0]
            )
        for message in messages:
            if message not in dead:
                message._retried += 1
        return dead

    def _suspend_seconds(self, context: ConsumeContext) -> float:
        return suspend_seconds(context.suspend_seconds, self._settings.retries.suspend_seconds)

    def _warn_if_stuck(self, lane: _Lane, queue: OrderedQueue[ReceivedMessage]) -> None:
        held = lane.held
        if not lane.is_stuck and queue.ready_at() is None and not held.has_flow_room():
            lane.is_stuck = True
            _logger.warning(
                "%s: %d messages are uncommitted, and pulling stops until a handler returns COMMIT",
                held.queue,
                held.process.count,
            )


def _sharding_key(message: ReceivedMessage) -> str | None:
    return message.sharding_key


def _give_back(queue: _Queue, messages: Sequence[ReceivedMessage], now: float) -> None:
    if isinstance(queue, KeyedQueue):
        queue.give_back(messages, now)
    else:
        queue.put_back(messages)
