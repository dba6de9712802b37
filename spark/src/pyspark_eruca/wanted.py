"""What a query's conditions leave of the ranges to read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_eruca.ranges import Range


class Wanted:
    """What a query's conditions leave of the ranges."""

    def __init__(self) -> None:
        self._names: dict[str, set[Any]] = {}  # of topic, broker, queue: those that may be
        self._least: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self.stored_from: str | None = None
        self.stored_to: str | None = None

    def add(self, condition: Filter) -> None:
        """Take a condition into account, as far as it is understood."""
        if not isinstance(
            condition,
            EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual,
        ):
            return
        name, value = condition.attribute[0], condition.value
        if name == "stored_at":
            self._add_time(condition, value)
        elif isinstance(condition, EqualTo | In):
            self._add_values(name, {value} if isinstance(condition, EqualTo) else set(value))
        elif name in ("queue_id", "queue_offset") and isinstance(value, int):
            self._add_bound(condition, name, value)

    def _add_values(self, name: str, values: set[Any]) -> None:
        if name in ("topic", "broker_name", "queue_id"):
            self._names[name] = self._names.get(name, values) & values
        elif name == "queue_offset" and values and None not in values:
            self._bound(name, min(values), max(values))

    def _add_bound(self, condition: Filter, name: str, value: int) -> None:
        if isinstance(condition, GreaterThan):
            self._bound(name, value + 1, None)
        elif isinstance(condition, GreaterThanOrEqual):
            self._bound(name, value, None)
        elif isinstance(condition, LessThan):
            self._bound(name, None, value - 1)
        else:
            self._bound(name, None, value)

    def _bound(self, name: str, least: int | None, most: int | None) -> None:
        if least is not None:
            self._least[name] = max(least, self._least.get(name, least))
        if most is not None:
            self._most[name] = min(most, self._most.get(name, most))

    def _add_time(self, condition: Filter, value: object) -> None:
        if not isinstance(value, datetime):
            return
        # Store times are whole milliseconds: rounded outwards, nothing is missed.
        if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
            least = _rfc3339(value)
            self.stored_from = max(self.stored_from or least, least)
        if isinstance(condition, EqualTo | LessThan | LessThanOrEqual):
            most = _rfc3339(value + timedelta(milliseconds=1))
            self.stored_to = min(self.stored_to or most, most)

    def narrow(self, ranges: Iterable[Range]) -> tuple[Range, ...]:
        """Return what is left."""
        if self.stored_from and self.stored_to and self.stored_from >= self.stored_to:
            return ()
        left = []
        for one in ranges:
            is_wanted = all(getattr(one.queue, name) in some for name, some in self._names.items())
            queue_id = one.queue.queue_id
            if not is_wanted or not (
                self._least.get("queue_id", queue_id)
                <= queue_id
                <= self._most.get("queue_id", queue_id)
            ):
                continue
            start = max(one.start, self._least.get("queue_offset", one.start))
            end = min(one.end, self._most.get("queue_offset", one.end - 1) + 1)
            if start < end:
                left.append(Range(one.queue, start, end))
        return tuple(left)


def _rfc3339(moment: datetime) -> str:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
