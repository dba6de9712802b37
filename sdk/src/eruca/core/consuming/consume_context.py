"""What a handler may say besides its verdict, and may ask: the second argument, if it takes one.

Concurrency rule: one per batch, used by the handler alone until it returns; ``is_lost`` may be
asked at any time.

Source: RocketMQ 5.3, ``ConsumeConcurrentlyContext``, ``ConsumeOrderlyContext``.
"""

from __future__ import annotations

from collections.abc import Callable

from eruca.core.messages.message_queue import MessageQueue


class ConsumeContext:
    """The circumstances of one batch.

    Attributes:
        queue: Where the batch lies.
        ack_index: Concurrent: index of the last message that is done with; those after it are sent
            back though the handler succeeds. None: all are done with; -1: none is.
        delay_level: Concurrent: by which delay level what failed is retried; -1 makes dead letters
            of it at once. None: by the group's policy.
        delay_seconds: Concurrent: the same in seconds.
        suspend_seconds: Orderly: how long to suspend, from 0.01 to 30. None: as the consumer says.
        auto_commit: Orderly: whether success commits; as the consumer says, unless it is changed.
    """

    __slots__ = (
        "_is_lost",
        "ack_index",
        "auto_commit",
        "delay_level",
        "delay_seconds",
        "queue",
        "suspend_seconds",
    )

    def __init__(
        self, queue: MessageQueue, is_lost: Callable[[], bool], *, auto_commit: bool = True
    ) -> None:
        self.queue = queue
        self._is_lost = is_lost
        self.ack_index: int | None = None
        self.delay_level: int | None = None
        self.delay_seconds: float | None = None
        self.suspend_seconds: float | None = None
        self.auto_commit = auto_commit

    @property
    def is_lost(self) -> bool:
        """Whether somebody else may have the queue by now, so that nothing said here counts."""
        return self._is_lost()
