"""What a push consumer is told, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from eruca.contract.errors import ValidationError
from eruca.contract.limits import (
    CLIENT_ID_SIZE_MAX,
    RETRY_TIMES_MAX,
    SESSION_SECONDS_DEFAULT,
    SESSION_SECONDS_MAX,
    SESSION_SECONDS_MIN,
)
from eruca.core.allocation import AllocationStrategy, Averagely
from eruca.core.checked_names import check_own_group
from eruca.core.checked_numbers import check_above_zero, check_count, check_range
from eruca.core.consuming.flow_control import COUNT_MAX_DEFAULT, SIZE_MAX_DEFAULT, SPAN_MAX_DEFAULT
from eruca.core.consuming.orderly_result import SUSPEND_SECONDS_DEFAULT
from eruca.core.consuming.pull_settings import check_aware

if TYPE_CHECKING:
    from eruca.contract.groups import MessageModel

PoisonPolicy: TypeAlias = Literal["block", "park_key"]
PushStart: TypeAlias = Literal["earliest", "latest"]
Listener: TypeAlias = Callable[..., Any]  # of queues or a message; an async one is awaited

CONCURRENCY_DEFAULT: Final = 20  # RocketMQ's consumeThreadMax
CONCURRENCY_MAX: Final = 1_000
BATCH_COUNT_MAX: Final = 1_024  # RocketMQ's limit of consumeMessageBatchMaxSize
CONSUME_SECONDS_DEFAULT: Final = 15 * 60.0  # RocketMQ's consumeTimeout
PUSH_COMMIT_SECONDS_DEFAULT: Final = 0.2  # RocketMQ: 5; a crash repeats what was consumed since
HELD_SIZE_MAX_DEFAULT: Final = 256 * 1024 * 1024  # bytes of all queues
STOP_SECONDS_DEFAULT: Final = 60.0  # for handlers to finish
AVERAGELY: Final = Averagely()  # RocketMQ's default strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """A push consumer's settings; see ``AsyncClient.push_consumer`` for what they mean.

    Raises:
        ValidationError: A value is not allowed, or two do not go together.
    """

    group: str
    message_model: MessageModel = "clustering"
    ordered: bool = False
    start: PushStart | datetime | None = None
    concurrency: int = CONCURRENCY_DEFAULT
    batch_max_count: int = 1
    consume_timeout: float = CONSUME_SECONDS_DEFAULT
    none_is_failure: bool = False
    auto_commit: bool = True
    retry_max_times: int | None = None
    suspend_seconds: float = SUSPEND_SECONDS_DEFAULT
    on_poison: PoisonPolicy = "block"
    queue_max_count: int = COUNT_MAX_DEFAULT
    queue_max_bytes: int = SIZE_MAX_DEFAULT
    max_bytes: int = HELD_SIZE_MAX_DEFAULT
    max_span: int = SPAN_MAX_DEFAULT
    strategy: AllocationStrategy = AVERAGELY
    on_assigned: Listener | None = None
    on_revoked: Listener | None = None
    on_lost: Listener | None = None
    on_damaged: Listener | None = None
    commit_seconds: float = PUSH_COMMIT_SECONDS_DEFAULT
    session_seconds: float = SESSION_SECONDS_DEFAULT
    stop_timeout: float = STOP_SECONDS_DEFAULT
    client_id: str | None = None
    is_static: bool = False
    replaces_subscription_version: int | None = None
    offsets_dir: str | None = None
    wait_for_topics: bool = False

    def __post_init__(self) -> None:
        """Check the values, and which of them go together."""
        check_own_group(self.group)
        if self.message_model not in ("clustering", "broadcasting"):
            raise ValidationError(
                f"message_model: {self.message_model!r} is neither clustering nor broadcasting"
            )
        self._check_strategy()
        self._check_start()
        self._check_numbers()
        self._check_order()
        if self.client_id is not None and not 0 < len(self.client_id) <= CLIENT_ID_SIZE_MAX:
            raise ValidationError(f"client_id: 1 to {CLIENT_ID_SIZE_MAX} characters")

    @property
    def is_clustering(self) -> bool:
        """Whether the members share the queues; else each reads all of them."""
        return self.message_model == "clustering"

    def _check_strategy(self) -> None:
        # Only a round asks it: the consumer would have begun, and would end then.
        if isinstance(self.strategy, type) or not callable(getattr(self.strategy, "share", None)):
            raise ValidationError(
                f"strategy: {self.strategy!r} is no object that shares out queues",
                fix="such as eruca.Averagely()",
            )

    def _check_start(self) -> None:
        if isinstance(self.start, datetime):
            check_aware(self.start, "start")
        elif self.start not in ("earliest", "latest", None):
            raise ValidationError(f"start: {self.start!r} is neither earliest nor latest, no time")

    def _check_numbers(self) -> None:
        check_count("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        check_count("batch_max_count", self.batch_max_count, 1, BATCH_COUNT_MAX)
        check_count("queue_max_count", self.queue_max_count, 1, 65_535)
        check_count("max_span", self.max_span, 1, 65_535)
        check_count("queue_max_bytes", self.queue_max_bytes, 1, 2**40)
        check_count("max_bytes", self.max_bytes, 1, 2**40)
        check_range(
            "session_seconds", self.session_seconds, SESSION_SECONDS_MIN, SESSION_SECONDS_MAX
        )
        check_range("commit_seconds", self.commit_seconds, 0.0, 60.0)
        if self.retry_max_times is not None:
            check_count("retry_max_times", self.retry_max_times, 0, RETRY_TIMES_MAX)
        if (version := self.replaces_subscription_version) is not None:
            check_count("replaces_subscription_version", version, 0)
        for name in ("consume_timeout", "suspend_seconds", "stop_timeout"):
            check_above_zero(name, getattr(self, name))

    def _check_order(self) -> None:
        if self.on_poison not in ("block", "park_key"):
            raise ValidationError(f"on_poison: {self.on_poison!r} is neither block nor park_key")
        if not self.ordered and (self.on_poison != "block" or not self.auto_commit):
            raise ValidationError("on_poison and auto_commit are of ordered consumers only")
        if self.on_poison == "park_key" and not self.auto_commit:
            raise ValidationError(
                "on_poison: keys can only be parked with auto_commit",
                fix="a commit by hand covers a whole queue, and so would a rollback",
            )
