"""Equal stretches of time, in which messages are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """Stretches of time, one after the other, in whole milliseconds.

    Attributes:
        from_ms: Beginning of the first one.
        width_ms: Length of each; the last one may reach beyond the requested time.
        to_ms: The last millisecond that is counted.
    """

    from_ms: int
    width_ms: int
    to_ms: int

    @classmethod
    def of(cls, from_ms: int, to_ms: int, count_max: int) -> Self:
        """Return at most *count_max* buckets from *from_ms* to *to_ms*, both included."""
        assert from_ms <= to_ms, (from_ms, to_ms)
        return cls(from_ms, -(-(to_ms + 1 - from_ms) // count_max), to_ms)

    @property
    def count(self) -> int:
        """The number of buckets."""
        return (self.to_ms - self.from_ms) // self.width_ms + 1

    def index_of(self, ms: int) -> int | None:
        """Return the bucket of a time; None: it is in none."""
        return (ms - self.from_ms) // self.width_ms if self.from_ms <= ms <= self.to_ms else None

    def start_of(self, index: int) -> int:
        """Return the beginning of a bucket."""
        return self.from_ms + index * self.width_ms
