"""One queue that this member holds: its lock, what was pulled of it and is not done with.

It is filled by the same fetcher as a pull consumer's queues; what a pull brings goes straight to
the runner. When a pull finds that the queue's range has moved away, retention or a broker that lost
its tail having taken what came next, it goes on where the reader's settings say, and says so in the
log.
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
    """A receiver of a queue's messages and of its progress."""

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Take in messages that were pulled."""

    def restart(self, held: HeldQueue) -> None:
        """Forget the queue's messages: it has been made anew."""

    def progressed(self, held: HeldQueue) -> None:
        """Note that the queue may be committed further, and may have room."""

    def skipped(self, held: HeldQueue, message: ReceivedMessage) -> bool:
        """Note that no handler gets a damaged message; tell whether it is still to be buried."""


class HeldQueue(QueueFlow):
    """A queue in this member's hands.

    Args:
        queue: Which.
        model: Whether it is shared out or read by everyone.
        limits: What may be held of it.
        prefetch: The consumer's account of bytes.
        intake: Where messages go.
        offset: Where to read on; None where that is to be found out.
        start: How to find it out.
        token: The lock's; None in broadcasting.
        session: That the lock lives by; None in broadcasting.
    """

    __slots__ = (
        "_intake",
        "_limits",
        "_model",
        "_prefetch",
        "begun_count",
        "committed",
        "ended_count",
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
        self.is_begun = offset is not None  # it is known where it begins
        self.committed: int | None = None  # by this member, since it holds the queue
        self.is_draining = False  # no further batch begins
        self.is_dropped = False  # lost, or released: nothing counts any more
        self.begun_count = 0  # batches; written by whoever takes one, under the lock for that
        self.ended_count = 0  # batches; written by the event loop
        self.idle = asyncio.Event()  # a batch has ended while draining, and none was in hand

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
        """Batches that have begun and not ended."""
        return self.begun_count - self.ended_count

    def is_lost(self) -> bool:
        """Tell whether somebody else may have the queue."""
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
        """Tell whether what is held leaves room for more."""
        process = self.process
        return self._limits.has_room(
            count=process.count,
            size=process.size,
            span=process.span,
            kept_count=process.kept_count,
            kept_size=process.kept_size,
        )

    def put(self, messages: list[ReceivedMessage], next_offset: int, epoch: int) -> int:
        """Take in a pull's answer; return the bytes now held more, 0 for an outdated answer."""
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
        """Go on behind a message that is damaged: no handler gets it.

        Where it is to be a dead letter, it is held until it is: no commit passes it before.
        """
        if epoch != self.epoch or self.is_draining or self.is_dropped:
            return 0
        self.follow()
        message = ReceivedMessage.damaged(self.queue, next_offset - 1, damage)
        self.fetch_offset = next_offset
        # Held before it is told of, so that it is there when it is done with.
        size = self.process.put([message], next_offset)
        if not self._intake.skipped(self, message):
            size -= self.process.remove([message])
        self._tell()
        self._intake.progressed(self)
        return size

    def begin_anew(self) -> None:
        """Read from the beginning; what is held of the queue as it was is forgotten."""
        super().begin_anew()
        self.follow()

    def freed(self, size: int) -> None:
        """Note that messages of so many bytes have left the process queue."""
        self._prefetch.size -= size
        self._tell()
        self._intake.progressed(self)

    def keep(self, messages: Sequence[ReceivedMessage]) -> None:
        """Note that messages have been handled and wait for a commit; what is behind may come."""
        self.process.keep(messages)
        self._intake.progressed(self)

    def begin(self) -> None:
        """Note that a batch begins."""
        self.begun_count += 1

    def end(self) -> None:
        """Note that a batch is settled."""
        self.ended_count += 1
        if self.is_draining and self.in_hand == 0:
            self.idle.set()

    async def until_idle(self) -> None:
        """Return when nothing is in hand, once no batch can begin any more."""
        while self.in_hand:
            self.idle.clear()
            await self.idle.wait()

    def drop(self) -> None:
        """Have nothing count any more; what is held is forgotten."""
        self.is_dropped = True
        self._prefetch.size -= self.process.clear()
        self._tell()

    def _tell(self) -> None:
        self.count, self.size = self.process.count, self.process.size

    def follow(self) -> None:
        """Go on where the fetcher does: it has found the start, or what came next is gone."""
        offset = self.fetch_offset
        if offset is None or (self.is_begun and offset == self.process.next_offset):
            return
        if self.is_begun:
            _logger.warning(
                "%s holds nothing at offset %d any more: reading goes on at %d",
                self.queue,
                self.process.next_offset,
                offset,
            )
        if offset >= self.process.next_offset:
            self.process.put((), offset)  # what is held is good; only what was to come is gone
        else:
            self._prefetch.size -= self.process.restart(offset)
            self._intake.restart(self)
        self.is_begun = True
        self._tell()
        self._intake.progressed(self)
