"""The result of an export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eruca.exporting.ranges import Range


@dataclass(slots=True)
class Exported:
    """The result of a run."""

    batches: int = 0
    rows: int = 0
    missing_rows: int = 0
    damaged_rows: int = 0
    rows_by_topic: dict[str, int] = field(default_factory=dict)

    @property
    def has_found_messages(self) -> bool:
        """True if there was anything to export, even if it was deleted meanwhile."""
        return bool(self.rows or self.missing_rows)

    def count(self, ranges: Sequence[Range], rows: int, damaged_rows: int) -> None:
        """Add a batch of *ranges*, of which *rows* were written."""
        self.batches += 1
        self.rows += rows
        self.missing_rows += sum(one.rows for one in ranges) - rows
        self.damaged_rows += damaged_rows
        for one in ranges:
            topic = one.queue.topic
            self.rows_by_topic[topic] = self.rows_by_topic.get(topic, 0) + one.rows


Watch = Callable[[Exported], None]
"""Called from time to time with the progress."""
