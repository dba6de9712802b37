"""Validate a simple consumer's settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Self

from eruca.contract.errors import ValidationError
from eruca.contract.limits import INVISIBLE_SECONDS_MAX, INVISIBLE_SECONDS_MIN
from eruca.core.checked_names import check_own_group, check_topic
from eruca.core.checked_numbers import check_range
from eruca.core.consuming.pull_settings import check_aware
from eruca.core.filters.sql92 import Sql92Filter
from eruca.core.filters.subscription_filter import Filter, subscription_of
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL, Subscription

RECEIVE_COUNT_DEFAULT: Final = 16
RECEIVE_SECONDS_DEFAULT: Final = 20.0  # how long to wait for messages


@dataclass(frozen=True, slots=True)
class SimpleSettings:
    """A simple consumer's settings; create them by :meth:`resolve`."""

    group: str
    subscriptions: Mapping[str, Subscription]  # by topic
    start: Literal["earliest", "latest"] | datetime | None
    invisible_seconds: float

    @classmethod
    def resolve(
        cls,
        group: str,
        *,
        topics: str | Iterable[str],
        filter: Filter | Mapping[str, Filter],
        start: Literal["earliest", "latest"] | datetime | None,
        invisible_seconds: float,
    ) -> Self:
        """Return validated settings.

        Raises:
            ValidationError: A value is invalid, or two values cannot be combined.
        """
        check_own_group(group)
        several = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        if not several:
            raise ValidationError("topics: expected at least one topic, found none")
        for topic in several:
            check_topic(topic, "topics")
        if isinstance(start, datetime):
            check_aware(start, "start")
        elif start not in (None, "earliest", "latest"):
            raise ValidationError(f"start: expected earliest, latest or a time, found {start!r}")
        check_invisible(invisible_seconds)
        return cls(group, _subscriptions(several, filter), start, invisible_seconds)


def check_invisible(seconds: float) -> None:
    """Raise ValidationError for a lease length that no broker grants."""
    check_range("invisible_seconds", seconds, INVISIBLE_SECONDS_MIN, INVISIBLE_SECONDS_MAX)


def _subscriptions(
    topics: Iterable[str], filters: Filter | Mapping[str, Filter]
) -> dict[str, Subscription]:
    if isinstance(filters, str | Sql92Filter):
        return dict.fromkeys(topics, subscription_of(filters))
    if strangers := set(filters) - set(topics):
        raise ValidationError(f"filter: this consumer does not read {sorted(strangers)}")
    return {topic: subscription_of(filters.get(topic, SUBSCRIBE_ALL)) for topic in topics}
