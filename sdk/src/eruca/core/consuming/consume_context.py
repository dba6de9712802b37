"""What a handler may say besides its verdict, and may ask: the second argument, if it takes one.

What means nothing is refused where it is said, and so is a failure of the handler that says it.

Concurrency rule: one per batch, used by the handler alone until it returns; ``is_lost`` may be
asked at any time.

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
        queue: Where the batch lies.
        delay_level: Concurrent: by which delay level what failed is retried; -1 makes dead letters
            of it at once. None: by the group's policy.
        delay_seconds: Concurrent: the same in seconds.
        auto_commit: Orderly: whether success commits; as the consumer says, unless it is changed.
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
        """Whether somebody else may have the queue by now, so that nothing said here counts."""
        return self._is_lost()

    @property
    def ack_index(self) -> int | None:
        """Concurrent: index of the last message that is done with; None: all are; -1: none is.

        Those after it are sent back though the handler succeeds.
        """
        return self._ack_index

    @ack_index.setter
    def ack_index(self, index: int | None) -> None:
        if index is not None and not isinstance(index, Integral):
            raise ValidationError(
                f"ack_index: {index!r} is no whole number",
                fix="give the index of the last message that is done with, or None for all",
            )
        self._ack_index = index

    @property
    def suspend_seconds(self) -> float | None:
        """Orderly: how long to suspend, from 0.01 to 30; None: as the consumer says."""
        return self._suspend_seconds

    @suspend_seconds.setter
    def suspend_seconds(self, seconds: float | None) -> None:
        if seconds is not None and (not isinstance(seconds, Real) or math.isnan(seconds)):
            raise ValidationError(
                f"suspend_seconds: {seconds!r} is no number of seconds",
                fix="give one from 0.01 to 30, or None for what the consumer says",
            )
        self._suspend_seconds = seconds
