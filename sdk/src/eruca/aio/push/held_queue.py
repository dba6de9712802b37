"""One queue that this member holds: its lock, and its pulled and unfinished messages.

The fetcher of pull consumers fills it. Pulled messages go directly to the runner. A pull may find
that the next offset is outside the queue's range: retention has deleted it, or the broker lost its
log's tail. Then reading continues where the reader's settings say, and a warning is logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from eruca.aio.pulling.broker_fetcher import Prefetch
from eruca.core.consuming.flow_control import FlowLimits
from eruca.core.consuming.orderly_result import Gate, gate
from eruca.core.consuming.process_queue import ProcessQueue
from eruca.core.consuming.pull_flow import QueueFlow
from eruca.core.consuming.pull_positions import StartPosition
from eruca.core.consuming.session import Session
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

if TYPE_CHECKING:
    from eruca.contract.groups import MessageModel

_logger = logging.getLogger(__name__)


class Intake(Protocol):
    """A receiver of a queue's messages and progress."""

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Accept messages that were pulled."""

    def restart(self, held: HeldQueue) -> None:
        """Drop the queue's messages: its topic was deleted and created again."""

    def progressed(self, held: HeldQueue) -> None:
        """Record that the queue may have an offset to commit, and may have room."""

    def skipped(self, held: HeldQueue, message: ReceivedMessage) -> bool:
        """Record that a damaged message is skipped; return whether it must become a dead letter."""


class HeldQueue(QueueFlow):
    """A queue that this member holds.

    Args:
        queue: The queue.
        model: Whether the group shares its queues or every member reads all of them.
        limits: How much of it may be prefetched.
        prefetch: The consumer's account of bytes.
        intake: Receives the messages.
        offset: Where to read on; None: find it with *start*.
        start: How to find the offset.
        token: The lock's token; None in broadcasting.
        session: The session that the lock depends on; None in broadcasting.
    """

    __slots__ = (
        "_intake",
        "_limits",
        "_model",
        "_prefetch",
        "begun_count",
        "committed",
        "ended_count",
        "finished",
        "idle",
        "is_begun",
        "is_draining",
        "is_dropped",
        "process",
        "session",
        "token",
    )

    def __init__(
        self,
        queue: MessageQueue,
        *,
        model: MessageModel,
        limits: FlowLimits,
        prefetch: Prefetch,
        intake: Intake,
        offset: int | None,
        start: StartPosition | datetime = "latest",
        came_after: datetime | None = None,
        token: int | None = None,
        session: Session | None = None,
    ) -> None:
        super().__init__(queue, start, use_committed=False, offset=offset, came_after=came_after)
        self._model: MessageModel = model
        self._limits = limits
        self._prefetch = prefetch
        self._intake = intake
        self.token = token
        self.session = session
        self.process: ProcessQueue[ReceivedMessage] = ProcessQueue(offset or 0)
        self.is_begun = offset is not None  # the start offset is known
        self.committed: int | None = None  # by this member, since it holds the queue
        self.is_draining = False  # begin no further batch
        self.is_dropped = False  # lost or released: results do not count any more
        self.begun_count = 0  # batches; written under the lock for taking one
        self.ended_count = 0  # batches; written by the event loop
        # handled successfully, and not yet removed from the process queue; the event loop's
        self.finished: list[ReceivedMessage] = []
        self.idle = asyncio.Event()  # set while draining, when no batch is running

    def gate(self, now: float) -> Gate:
        """Return whether a batch may begin."""
        session = self.session
        return gate(
            self._model,
            is_dropped=self.is_dropped or self.is_draining,
            is_locked=session is not None,
            lock_age_seconds=0.0 if session is None else session.age(now),
            lock_seconds=0.0 if session is None else session.seconds,
        )

    @property
    def in_hand(self) -> int:
        """Number of running batches."""
        return self.begun_count - self.ended_count

    def is_lost(self) -> bool:
        """Tell whether another member may have the queue."""
        session = self.session
        return self.is_dropped or (session is not None and session.is_over(time.monotonic()))

    def has_room(self, count_max: int) -> bool:
        """Tell whether to pull more."""
        self.follow()
        return (
            not self.is_pulling
            and not self.is_paused
            and not self.is_draining
            and not self.is_dropped
            and self.fault is None
            and self.has_flow_room()
        )

    def has_flow_room(self) -> bool:
        """Tell whether the prefetched messages leave room for more."""
        process = self.process
        return self._limits.has_room(
            count=process.count,
            size=process.size,
            span=process.span,
            kept_count=process.kept_count,
            kept_size=process.kept_size,
        )

    def put(self, messages: list[ReceivedMessage], next_offset: int, epoch: int) -> int:
        """Accept a pull's answer; return the number of added bytes, 0 for an outdated answer."""
        if epoch != self.epoch or self.is_draining or self.is_dropped:
            return 0
        self.follow()
        self.fetch_offset = next_offset
        size = self.process.put(messages, next_offset)
        self._tell()
        if messages:
            self._intake.put(self, messages)
        else:
            self._intake.progressed(self)
        return size

    def put_damaged(self, damage: str, next_offset: int, epoch: int) -> int:
        """Skip a damaged message: no handler gets it.

        If it must become a dead letter, it is kept until that is done, and no commit passes it
        before.
        """
        if epoch != self.epoch or self.is_draining or self.is_dropped:
            return 0
        self.follow()
        message = ReceivedMessage.damaged(self.queue, next_offset - 1, damage)
        self.fetch_offset = next_offset
        # Store it before reporting it, so that it exists when it is finished.
        size = self.process.put([message], next_offset)
        if not self._intake.skipped(self, message):
            size -= self.process.remove([message])
        self._tell()
        self._intake.progressed(self)
        return size

    def start_over(self) -> None:
        """Read from the beginning; drop the messages of the former topic."""
        super().start_over()
        self.follow()

    def settle(self) -> None:
        """Remove the finished messages from the process queue."""
        finished = self.finished
        if finished:
            if not self.is_dropped:
                self.freed(self.process.remove(finished))
            finished.clear()

    def freed(self, size: int) -> None:
        """Record that messages of so many bytes have left the process queue."""
        self._prefetch.size -= size
        self._tell()
        self._intake.progressed(self)

    def keep(self, messages: Sequence[ReceivedMessage]) -> None:
        """Record that messages were handled and wait for a commit; the next ones may follow."""
        self.process.keep(messages)
        self._intake.progressed(self)

    def begin(self) -> None:
        """Record that a batch begins."""
        self.begun_count += 1

    def end(self) -> None:
        """Record that a batch has ended."""
        self.ended_count += 1
        if self.is_draining and self.in_hand == 0:
            self.idle.set()

    async def until_idle(self) -> None:
        """Wait until no batch is running; no new one may begin meanwhile."""
        while self.in_hand:
            self.idle.clear()
            await self.idle.wait()

    def drop(self) -> None:
        """Ignore all later results, and drop the messages."""
        self.is_dropped = True
        self._prefetch.size -= self.process.clear()
        self._tell()

    def _tell(self) -> None:
        self.count, self.size = self.process.count, self.process.size

    def follow(self) -> None:
        """Follow the fetcher: it has found the start, or the next offset is gone."""
        offset = self.fetch_offset
        if offset is None or (self.is_begun and offset == self.process.next_offset):
            return
        if self.is_begun:
            _logger.warning(
                "%s has no message at offset %d any more; continuing at %d",
                self.queue,
                self.process.next_offset,
                offset,
            )
        if offset >= self.process.next_offset:
            # the prefetched messages are valid; only later ones are gone
            self.process.put((), offset)
        else:
            self._prefetch.size -= self.process.restart(offset)
            self._intake.restart(self)
        self.is_begun = True
        self._tell()
        self._intake.progressed(self)
