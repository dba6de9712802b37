"""Batches that wait for a handler, first come, first served.

Tasks of the event loop and threads of plain functions take batches, so a lock protects them. Taking
a batch and counting it as running are one step. So when a queue is drained, each of its batches is
either here and can be withdrawn, or counted and awaited.
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
        context: ConsumeContext | None,
    ) -> None:
        self.held = held
        self.messages = messages
        self.registration = registration
        self.context = context
        self.deadline = 0.0  # of a plain function's batch, once it has begun
        # exceeded the time limit; its handler's later result does not count
        self.is_expired = False

    @property
    def is_async(self) -> bool:
        """True if the event loop can handle it."""
        return self.registration is None or self.registration.is_async


class ReadyBatches:
    """The waiting batches of all queues.

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
        self._ready: deque[Batch] = deque()
        self._begun: set[Batch] = set()

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, batches: Iterable[Batch]) -> None:
        """Add *batches* after the others."""
        with self._lock:
            self._ready.extend(batches)

    def take(self, *, in_thread: bool = False) -> Batch | None:
        """Take the next batch that may begin; in a thread, only a plain function's."""
        with self._lock:
            ready = self._ready
            while ready:
                if in_thread and ready[0].is_async:
                    return None
                batch = ready.popleft()
                now = self._clock()
                gate = batch.held.gate(now)
                if gate is Gate.OPEN:
                    batch.held.begin()
                    if not batch.is_async:
                        batch.deadline = now + self._seconds
                        self._begun.add(batch)
                    return batch
                if gate is Gate.WAIT:
                    # Its session has ended: the queue and all its batches are lost.
                    batch.held.is_dropped = True
                    self._on_overdue(batch.held)
            return None

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

    def withdraw(self, held: HeldQueue) -> list[Batch]:
        """Remove a queue's batches."""
        with self._lock:
            withdrawn = [batch for batch in self._ready if batch.held is held]
            if withdrawn:
                self._ready = deque(batch for batch in self._ready if batch.held is not held)
            return withdrawn
