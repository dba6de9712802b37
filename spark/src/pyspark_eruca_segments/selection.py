"""The choice of rows: topics, times, offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca.exporting.ranges import Queue
from pyspark_eruca_segments.walk import Proven

NEVER: Final = 2**63 - 1


@dataclass(frozen=True)
class Selection:
    """The rows that are wanted of one broker's log."""

    broker_name: str
    since: Mapping[str, int]  # the topics; each with the log offset from which it has existed
    starting_ms: int | None = None  # stored at this time or later, in ms since 1970
    ending_ms: int | None = None  # stored before
    starts: tuple[tuple[Queue, int], ...] = ()  # offsets of queues; others from their beginning
    ends: tuple[tuple[Queue, int], ...] = ()

    def chosen(self, proven: Proven) -> NDArray[np.bool_]:
        """Tell which records have rows."""
        columns = proven.columns
        since = np.array([self.since.get(topic, NEVER) for topic in proven.topics])
        chosen: NDArray[np.bool_] = columns.is_queued()
        chosen &= columns.log_offsets >= since[proven.numbers]
        if self.starting_ms is not None:
            chosen &= columns.store_timestamps >= self.starting_ms
        if self.ending_ms is not None:
            chosen &= columns.store_timestamps < self.ending_ms
        for queue, offset in self.starts:
            chosen &= ~self._is_of(queue, proven) | (columns.queue_offsets >= offset)
        for queue, offset in self.ends:
            chosen &= ~self._is_of(queue, proven) | (columns.queue_offsets < offset)
        return chosen

    def _is_of(self, queue: Queue, proven: Proven) -> NDArray[np.bool_]:
        known = queue.broker_name == self.broker_name and queue.topic in proven.topics
        number = proven.topics.index(queue.topic) if known else -1
        its: NDArray[np.bool_] = (proven.numbers == number) & (
            proven.columns.queue_ids == queue.queue_id
        )
        return its
