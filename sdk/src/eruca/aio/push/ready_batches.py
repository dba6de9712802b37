"""Messages that wait for a handler, first come, first served.

They wait in *runs*: consecutive messages of one queue for one handler. Tasks of the event loop and
threads of plain functions take batches from the first run, so a lock protects the runs. Taking a
batch and counting it as running are one step. So when a queue is drained, each of its messages is
either here and can be withdrawn, or counted and awaited.

Messages of a *simple* run, each handled alone by an async handler without a context, are not taken
one by one. A worker begins a *stint*, which counts once, and takes messages from the run while the
stint lasts. If its handler waits for something, the next worker begins a stint of the same run.
Only the event loop does that, so it needs no lock for each message. A withdrawal empties the run,
so the stints end.

A run refers only to the messages that no handler has taken. The others, with their decoded bodies,
can be released while they are in the processor's caches.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from eruca.aio.push.held_queue import HeldQueue
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.consuming.handler_table import Registration
from eruca.core.consuming.orderly_result import Gate
from eruca.core.messages.received_message import ReceivedMessage


class Batch:
    """Messages for one call of a handler."""

    __slots__ = ("context", "deadline", "held", "is_expired", "messages", "registration")

    def __init__(
        self,
        held: HeldQueue,
        messages: list[ReceivedMessage],
        registration: Registration | None,
    ) -> None:
        self.held = held
        self.messages = messages
        self.registration = registration
        self.context: ConsumeContext | None = None
        if registration is not None and registration.takes_context:
            self.context = ConsumeContext(held.queue, held.is_lost)
        self.deadline = 0.0  # of a plain function's batch, once it has begun
        # exceeded the time limit; its handler's later result does not count
        self.is_expired = False

    @property
    def is_async(self) -> bool:
        """True if the event loop can handle it."""
        return self.registration is None or self.registration.is_async


class Run:
    """Consecutive messages of one queue for one handler.

    Args:
        held: The queue.
        messages: Its messages.
        registration: Their handler; None if there is none any longer.
        count_max: Messages in a batch.
    """

    __slots__ = ("count_max", "held", "is_async", "is_simple", "left", "registration")

    def __init__(
        self,
        held: HeldQueue,
        messages: Iterable[ReceivedMessage],
        registration: Registration | None,
        count_max: int,
    ) -> None:
        self.held = held
        self.registration = registration
        self.count_max = count_max
        self.left = deque(messages)  # those that no handler has taken
        self.is_async = registration is None or registration.is_async
        self.is_simple = (
            count_max == 1
            and registration is not None
            and registration.is_async
            and not registration.takes_context
        )

    def __len__(self) -> int:
        return len(self.left)

    @property
    def batch_count(self) -> int:
        """The number of batches that its messages make."""
        return -(-len(self) // self.count_max)

    def take(self) -> Batch:
        """Take the next batch; there must be one."""
        left = self.left
        assert left, "nothing is left"
        if self.count_max == 1:
            messages = [left.popleft()]
        else:
            messages = [left.popleft() for _ in range(min(self.count_max, len(left)))]
        return Batch(self.held, messages, self.registration)

    def withdrawn(self) -> Run:
        """Take all that is left; return it as another run."""
        rest = Run(self.held, self.left, self.registration, self.count_max)
        self.left.clear()
        return rest


class ReadyBatches:
    """The waiting messages of all queues.

    Args:
        clock: Monotonic.
        seconds: The time limit of a handler.
        on_overdue: Called, in any thread, with a queue whose session has ended.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        seconds: float,
        on_overdue: Callable[[HeldQueue], None],
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._on_overdue = on_overdue
        self._lock = threading.Lock()
        self._ready: deque[Run] = deque()
        self._begun: set[Batch] = set()

    def __len__(self) -> int:
        return sum(run.batch_count for run in self._ready)

    def put(self, runs: Iterable[Run]) -> None:
        """Add *runs* after the others."""
        with self._lock:
            self._ready.extend(runs)

    def begin_next(self) -> Run | Batch | None:
        """Begin a stint of the first run that may begin, or its next batch if it is not simple.

        Call it on the event loop, and :meth:`HeldQueue.end` when the stint or the batch has ended.
        """
        now = self._clock()
        with self._lock:
            run = self._first(now)
            if run is None:
                return None
            if run.is_simple:
                run.held.begin()
                return run
            return self._take(run, now)

    def take_in_thread(self) -> Batch | None:
        """Take the next batch that may begin, if it is a plain function's."""
        now = self._clock()
        with self._lock:
            run = self._first(now)
            return None if run is None or run.is_async else self._take(run, now)

    def settle(self, batch: Batch) -> bool:
        """Record that a batch has ended; return whether its result counts."""
        if batch.is_async:
            return True
        with self._lock:
            if batch.is_expired:
                return False
            self._begun.discard(batch)
            return True

    def expire(self) -> list[Batch]:
        """Return plain functions' batches that exceeded the time limit, and stop counting them."""
        now = self._clock()
        with self._lock:
            overdue = [batch for batch in self._begun if batch.deadline <= now]
            for batch in overdue:
                batch.is_expired = True
                self._begun.discard(batch)
            return overdue

    def withdraw(self, held: HeldQueue) -> list[Run]:
        """Remove a queue's messages; no stint takes them any more."""
        with self._lock:
            its = [run for run in self._ready if run.held is held]
            if its:
                self._ready = deque(run for run in self._ready if run.held is not held)
            return [run.withdrawn() for run in its if run]

    def close(self) -> None:
        """Remove all messages, so that all stints end."""
        with self._lock:
            for run in self._ready:
                run.withdrawn()
            self._ready.clear()

    def _take(self, run: Run, now: float) -> Batch:
        batch = run.take()
        run.held.begin()
        if not run.is_async:
            batch.deadline = now + self._seconds
            self._begun.add(batch)
        return batch

    def _first(self, now: float) -> Run | None:
        """Return the first run that may begin; drop those that must not."""
        ready = self._ready
        while ready:
            run = ready[0]
            if not run.left:
                ready.popleft()
                continue
            gate = run.held.gate(now)
            if gate is Gate.OPEN:
                return run
            ready.popleft().withdrawn()
            if gate is Gate.WAIT:
                # Its session has ended: the queue and all its messages are lost.
                run.held.is_dropped = True
                self._on_overdue(run.held)
        return None
