"""A topic's volume over time as columns of a picture.

Columns of a sliding time begin at multiples of their width. So a page that is open shows the same
columns again, and its question has a recent answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from eruca.contract.queries import MessageCounts

COLUMN_COUNT: Final = 60
HEIGHT: Final = 100.0  # of the picture, in its own units
_LEAST_HEIGHT: Final = 1.5  # so that one message beside a million can be seen


@dataclass(frozen=True, slots=True)
class Column:
    """A stretch of time.

    Attributes:
        start: Its beginning.
        end: Its end, exclusive.
        count: The messages stored in it; None: unknown.
        height: Of its bar, up to ``HEIGHT``; an unknown one has the whole height.
    """

    start: datetime
    end: datetime
    count: int | None
    height: float


def sliding(now: datetime, span: timedelta) -> tuple[datetime, datetime]:
    """Return the beginning and the end of the last *span*, which ends in the present column."""
    width = span / COLUMN_COUNT
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    until = epoch + ((now - epoch) // width + 1) * width
    return until - span, until


def columns_of(counts: MessageCounts) -> Sequence[Column]:
    """Return the columns of a picture, the oldest first."""
    width = timedelta(milliseconds=counts.width_ms)
    largest = max((one.count for one in counts.counts if one.count is not None), default=0)
    return [
        Column(
            one.start,
            min(one.start + width, counts.until),
            one.count,
            _height(one.count, largest),
        )
        for one in counts.counts
    ]


def total_of(columns: Sequence[Column]) -> int | None:
    """Return the sum of all columns; None: one is unknown."""
    known = [column.count for column in columns if column.count is not None]
    return sum(known) if len(known) == len(columns) else None


def _height(count: int | None, largest: int) -> float:
    if count is None:
        return HEIGHT
    return max(HEIGHT * count / largest, _LEAST_HEIGHT) if count else 0.0
