"""Validate a pull consumer's settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from eruca.contract.errors import ValidationError
from eruca.core.checked_names import check_own_group, check_topic
from eruca.core.checked_numbers import check_count, check_range
from eruca.core.consuming.pull_positions import (
    OUT_OF_RANGE_POLICIES,
    START_POSITIONS,
    OutOfRangePolicy,
    StartPosition,
)
from eruca.core.filters.sql92 import Sql92Filter
from eruca.core.filters.subscription_filter import Filter, subscription_of
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL, Subscription
from eruca.core.messages.message_queue import MessageQueue, checked_queue

START_DEFAULT: Final = "earliest"
COMMIT_SECONDS_DEFAULT: Final = 5.0  # RocketMQ's autoCommitIntervalMillis
PREFETCH_COUNT_DEFAULT: Final = 2_000  # messages of one queue
PREFETCH_SIZE_DEFAULT: Final = 64 * 1024 * 1024  # bytes of all queues


@dataclass(frozen=True, slots=True)
class PullSettings:
    """A pull consumer's settings."""

    group: str | None
    topics: tuple[str, ...]  # all queues of these are read; empty if queues are named
    queues: tuple[MessageQueue, ...]  # the named ones
    subscriptions: Mapping[str, Subscription]  # by topic
    start: StartPosition | datetime  # where nothing is committed
    is_start_asked: bool  # by the program; else it is the default
    on_offset_out_of_range: OutOfRangePolicy
    commit_seconds: float | None  # None: only by hand
    prefetch_count_max: int
    prefetch_bytes_max: int
    wait_for_topics: bool

    @classmethod
    def resolve(
        cls,
        group: str | None,
        *,
        topics: str | Iterable[str] = (),
        queues: Iterable[MessageQueue] = (),
        filter: Filter | Mapping[str, Filter] = "*",
        start: StartPosition | datetime | None = None,
        on_offset_out_of_range: OutOfRangePolicy = "error",
        commit_seconds: float | None = COMMIT_SECONDS_DEFAULT,
        prefetch_count_max: int = PREFETCH_COUNT_DEFAULT,
        prefetch_bytes_max: int = PREFETCH_SIZE_DEFAULT,
        wait_for_topics: bool = False,
    ) -> PullSettings:
        """Return the settings for the arguments of ``pull_consumer``.

        Raises:
            ValidationError: A value is invalid, or two values cannot be combined.
        """
        if group is not None:
            check_own_group(group)
        named = tuple(dict.fromkeys(checked_queue(queue, "queues") for queue in queues))
        several = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        if bool(several) == bool(named):
            raise ValidationError("expected either topics or queues to read")
        every_topic = dict.fromkeys(several or (queue.topic for queue in named))
        for topic in every_topic:
            check_topic(topic, "topics")
        if on_offset_out_of_range not in OUT_OF_RANGE_POLICIES:
            raise ValidationError(
                f"on_offset_out_of_range: {on_offset_out_of_range!r} is invalid; valid options:"
                f" {', '.join(OUT_OF_RANGE_POLICIES)}"
            )
        check_count("prefetch_count_max", prefetch_count_max, 1)
        check_count("prefetch_bytes_max", prefetch_bytes_max, 1)
        if commit_seconds is not None:
            check_range("commit_seconds", commit_seconds, 0)
        return cls(
            group,
            several,
            named,
            _subscriptions(every_topic, filter),
            START_DEFAULT if start is None else _checked_start(start, group),
            start is not None,
            on_offset_out_of_range,
            None if group is None else commit_seconds,
            prefetch_count_max,
            prefetch_bytes_max,
            wait_for_topics,
        )


def check_aware(moment: datetime, name: str) -> None:
    """Raise ValidationError for a time without a time zone."""
    if moment.tzinfo is None:
        raise ValidationError(
            f"{name}: {moment!r} has no time zone", fix="such as datetime.now(UTC)"
        )


def _subscriptions(
    topics: Iterable[str], filters: Filter | Mapping[str, Filter]
) -> dict[str, Subscription]:
    if isinstance(filters, str | Sql92Filter):
        return dict.fromkeys(topics, subscription_of(filters))
    if strangers := set(filters) - set(topics):
        raise ValidationError(f"filter: this consumer does not read {sorted(strangers)}")
    return {topic: subscription_of(filters.get(topic, SUBSCRIBE_ALL)) for topic in topics}


def _checked_start(start: StartPosition | datetime, group: str | None) -> StartPosition | datetime:
    if isinstance(start, datetime):
        check_aware(start, "start")
    elif start not in START_POSITIONS:
        raise ValidationError(
            f"start: {start!r} is invalid; valid options: {', '.join(START_POSITIONS)}, or a time"
        )
    elif start == "committed" and group is None:
        raise ValidationError("start: 'committed' needs a group")
    return start
