"""Validate a push consumer's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from eruca.contract.errors import ValidationError
from eruca.contract.limits import CLIENT_ID_SIZE_MAX
from eruca.core.checked_names import check_own_group
from eruca.core.checked_numbers import check_above_zero, check_count
from eruca.core.consuming.pull_settings import check_aware
from eruca.core.consuming.push_options import Limits, Listeners, Membership, Offsets, Retries

if TYPE_CHECKING:
    from eruca.contract.groups import MessageModel

PushStart: TypeAlias = Literal["earliest", "latest"]
Listener: TypeAlias = Callable[..., Any]  # takes queues or a message; an async one is awaited

CONCURRENCY_DEFAULT: Final = 20  # RocketMQ's consumeThreadMax
CONCURRENCY_MAX: Final = 1_000
BATCH_COUNT_MAX: Final = 1_024  # RocketMQ's limit of consumeMessageBatchMaxSize
CONSUME_SECONDS_DEFAULT: Final = 15 * 60.0  # RocketMQ's consumeTimeout
STOP_SECONDS_DEFAULT: Final = 60.0  # for handlers to finish


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """A push consumer's settings; ``AsyncClient.push_consumer`` describes them.

    The option values check themselves; this class checks which of them go together.

    Raises:
        ValidationError: A value is invalid, or two values cannot be combined.
    """

    group: str
    message_model: MessageModel
    ordered: bool
    start: PushStart | datetime | None
    concurrency: int
    batch_count_max: int
    consume_timeout_seconds: float
    stop_timeout_seconds: float
    client_id: str | None
    wait_for_topics: bool
    retries: Retries
    limits: Limits
    membership: Membership
    offsets: Offsets
    listeners: Listeners

    def __post_init__(self) -> None:
        """Check the values and their combinations."""
        check_own_group(self.group)
        if self.message_model not in ("clustering", "broadcasting"):
            raise ValidationError(
                f"message_model: {self.message_model!r} is neither clustering nor broadcasting"
            )
        self._check_start()
        self._check_numbers()
        self._check_order()
        if self.client_id is not None and not 0 < len(self.client_id) <= CLIENT_ID_SIZE_MAX:
            raise ValidationError(
                f"client_id: {len(self.client_id)} characters are not from 1 to"
                f" {CLIENT_ID_SIZE_MAX}",
                fix=f"give client_id of 1 to {CLIENT_ID_SIZE_MAX} characters",
            )

    @property
    def is_clustering(self) -> bool:
        """True if the members divide the queues; else each reads all of them."""
        return self.message_model == "clustering"

    def _check_start(self) -> None:
        if isinstance(self.start, datetime):
            check_aware(self.start, "start")
        elif self.start not in ("earliest", "latest", None):
            raise ValidationError(
                f"start: expected earliest, latest or a time, found {self.start!r}"
            )

    def _check_numbers(self) -> None:
        check_count("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        check_count("batch_count_max", self.batch_count_max, 1, BATCH_COUNT_MAX)
        for name in ("consume_timeout_seconds", "stop_timeout_seconds"):
            check_above_zero(name, getattr(self, name))

    def _check_order(self) -> None:
        by_key, by_hand = self.retries.on_poison == "block_key", not self.offsets.auto_commit
        if not self.ordered and (by_key or by_hand):
            name = "retries.on_poison" if by_key else "offsets.auto_commit"
            raise ValidationError(
                f"{name}: only an ordered consumer has this option",
                fix="leave it out, or give ordered=True",
            )
        if by_key and by_hand:
            raise ValidationError(
                'retries.on_poison: "block_key" needs offsets.auto_commit',
                fix="a commit by hand covers a whole queue, and so would a rollback; "
                "leave one of the two out",
            )
