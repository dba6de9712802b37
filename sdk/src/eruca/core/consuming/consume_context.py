"""The context of a batch: the optional second argument of a handler.

A handler reads the context, and sets the ack index, delays and commits there. An invalid value
raises at the assignment, so the handler itself fails.

Concurrency rule: each batch has its own context, which only the handler uses until it returns. Any
thread may read ``is_lost`` at any time.

Source: RocketMQ 5.3, ``ConsumeConcurrentlyContext``, ``ConsumeOrderlyContext``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real

from eruca.contract.errors import ValidationError
from eruca.core.messages.message_queue import MessageQueue


class ConsumeContext:
    """The circumstances of one batch.

    Attributes:
        queue: The batch's queue.
        delay_level: Concurrent: delay level of the failed messages' retry; -1 makes them dead
            letters at once. None: by the group's policy.
        delay_seconds: Concurrent: the same delay in seconds.
        auto_commit: Orderly: true if success commits. The default is the consumer's setting.
    """

    __slots__ = (
        "_ack_index",
        "_is_lost",
        "_suspend_seconds",
        "auto_commit",
        "delay_level",
        "delay_seconds",
        "queue",
    )

    def __init__(
        self, queue: MessageQueue, is_lost: Callable[[], bool], *, auto_commit: bool = True
    ) -> None:
        self.queue = queue
        self._is_lost = is_lost
        self._ack_index: int | None = None
        self.delay_level: int | None = None
        self.delay_seconds: float | None = None
        self._suspend_seconds: float | None = None
        self.auto_commit = auto_commit

    @property
    def is_lost(self) -> bool:
        """True if another member may own the queue now; the result is then ignored."""
        return self._is_lost()

    @property
    def ack_index(self) -> int | None:
        """Concurrent: index of the last acknowledged message; None: all; -1: none.

        The messages after it are sent back although the handler succeeds.
        """
        return self._ack_index

    @ack_index.setter
    def ack_index(self, index: int | None) -> None:
        if index is not None and not isinstance(index, Integral):
            raise ValidationError(
                f"ack_index: expected a whole number, found {index!r}",
                fix="set the index of the last acknowledged message, or None for all",
            )
        self._ack_index = index

    @property
    def suspend_seconds(self) -> float | None:
        """Orderly: time to suspend, from 0.01 to 30; None: the consumer's setting."""
        return self._suspend_seconds

    @suspend_seconds.setter
    def suspend_seconds(self, seconds: float | None) -> None:
        if seconds is not None and (not isinstance(seconds, Real) or math.isnan(seconds)):
            raise ValidationError(
                f"suspend_seconds: expected a number of seconds, found {seconds!r}",
                fix="set 0.01 to 30, or None for the consumer's setting",
            )
        self._suspend_seconds = seconds
