"""Options of a push consumer, grouped by what they are about.

Each group is a frozen value with its defaults and its checks, so the client, its sync half and the
settings name only the group. A refusal names the option by its path, such as
``limits.queue_count_max``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from eruca.contract.errors import ValidationError
from eruca.contract.limits import (
    RETRY_TIMES_MAX,
    SESSION_SECONDS_DEFAULT,
    SESSION_SECONDS_MAX,
    SESSION_SECONDS_MIN,
)
from eruca.core.allocation import AllocationStrategy, Averagely
from eruca.core.checked_arguments import check_fields
from eruca.core.checked_numbers import check_above_zero, check_count, check_range
from eruca.core.consuming.orderly_result import SUSPEND_SECONDS_DEFAULT
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

QUEUE_COUNT_MAX: Final = 65_535  # RocketMQ's limit of pullThresholdForQueue
HELD_BYTES_MAX: Final = 2**40
COMMIT_SECONDS_MAX: Final = 60.0
AVERAGELY: Final = Averagely()  # RocketMQ's default strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Options for the failure of a handler.

    Args:
        retries_max: Retries before a message is a dead letter. None: as the group's config says.
        suspend_seconds: Ordered: the time before a failed message is tried again.
        on_poison: Ordered: while a message fails, ``block_queue``, or ``block_key``: only
            the messages of its sharding key wait.
        none_is_failure: Whether a handler that returns None has failed, as in RocketMQ.

    Raises:
        ValidationError: A value is not allowed.
    """

    retries_max: int | None = None
    suspend_seconds: float = SUSPEND_SECONDS_DEFAULT
    on_poison: Literal["block_queue", "block_key"] = "block_queue"
    none_is_failure: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self, "retries")
        if self.retries_max is not None:
            check_count("retries.retries_max", self.retries_max, 0, RETRY_TIMES_MAX)
        check_above_zero("retries.suspend_seconds", self.suspend_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the messages that a push consumer holds before it stops pulling.

    Args:
        queue_count_max: Messages held of a queue, on average over the queues of a broker. They are
            pulled together, so one queue may use the room that others leave.
        queue_bytes_max: Bytes held of one queue.
        bytes_max: Bytes held of all queues.
        span_max: Offsets between the first and the last message held of one queue. It bounds how
            much a crash repeats; an ordered consumer ignores it.

    Raises:
        ValidationError: A value is not allowed.
    """

    queue_count_max: int = 1_000  # RocketMQ's pullThresholdForQueue
    queue_bytes_max: int = 100 * 1024 * 1024  # RocketMQ's pullThresholdSizeForQueue
    bytes_max: int = 256 * 1024 * 1024
    span_max: int = 2_000  # RocketMQ's consumeConcurrentlyMaxSpan

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self, "limits")
        check_count("limits.queue_count_max", self.queue_count_max, 1, QUEUE_COUNT_MAX)
        check_count("limits.queue_bytes_max", self.queue_bytes_max, 1, HELD_BYTES_MAX)
        check_count("limits.bytes_max", self.bytes_max, 1, HELD_BYTES_MAX)
        check_count("limits.span_max", self.span_max, 1, QUEUE_COUNT_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Options of a push consumer's membership in its group.

    Args:
        strategy: The rule that divides the queues; the same for all members.
        session_seconds: A member not heard from for so long is out, and its queues are free.
        is_static: Whether a later process of the same client id takes over at once.
        replaces_subscription_version: Cut the group over to this member's subscriptions, if the
            group's still have this version.

    Raises:
        ValidationError: A value is not allowed.
    """

    strategy: AllocationStrategy = AVERAGELY
    session_seconds: float = SESSION_SECONDS_DEFAULT
    is_static: bool = False
    replaces_subscription_version: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        # Only a rebalance calls the strategy: the consumer would start first, and fail then.
        if isinstance(self.strategy, type) or not callable(getattr(self.strategy, "share", None)):
            raise ValidationError(
                f"membership.strategy: {self.strategy!r} is not an allocation strategy",
                fix="give one, such as eruca.Averagely()",
            )
        check_fields(self, "membership")
        check_range(
            "membership.session_seconds",
            self.session_seconds,
            SESSION_SECONDS_MIN,
            SESSION_SECONDS_MAX,
        )
        if (version := self.replaces_subscription_version) is not None:
            check_count("membership.replaces_subscription_version", version, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Options of a push consumer's offsets.

    Args:
        commit_seconds: The time between two commits; a crash repeats what was consumed since the
            last one. A commit costs one request, and one small record in the log, per broker and
            interval with progress.
        auto_commit: Ordered: whether success commits; if not, COMMIT and ROLLBACK do.
        directory: Broadcasting: the folder of the offset files. None: ``ERUCA_OFFSETS_DIR``, else
            ``~/.eruca/offsets``.

    Raises:
        ValidationError: A value is not allowed.
    """

    commit_seconds: float = 0.2  # RocketMQ: 5; a crash repeats what was consumed since
    auto_commit: bool = True
    directory: str | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self, "offsets")
        check_range("offsets.commit_seconds", self.commit_seconds, 0.0, COMMIT_SECONDS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Functions that a push consumer calls beside its handlers; an async one is awaited.

    Args:
        on_assigned: Called with queues before they are read.
        on_revoked: Called with queues that are handed over, when their handlers have ended.
        on_lost: Called with queues that another member may already own.
        on_damaged: Called with a message that its broker found damaged. No handler gets it: it
            is counted and logged, and a dead letter with reason ``damaged`` says where it lies
            and what is wrong. In broadcasting, which has no dead letters, it is skipped.

    Raises:
        ValidationError: A value is not a function of one argument.
    """

    on_assigned: Callable[[list[MessageQueue]], object] | None = None
    on_revoked: Callable[[list[MessageQueue]], object] | None = None
    on_lost: Callable[[list[MessageQueue]], object] | None = None
    on_damaged: Callable[[ReceivedMessage], object] | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self, "listeners")


RETRIES_DEFAULT: Final = Retries()
LIMITS_DEFAULT: Final = Limits()
MEMBERSHIP_DEFAULT: Final = Membership()
OFFSETS_DEFAULT: Final = Offsets()
LISTENERS_DEFAULT: Final = Listeners()
