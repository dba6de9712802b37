"""A topic as a stream, with Spark's own checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from eruca.exporting.options import Options
from eruca.exporting.planner import BatchPlanner
from eruca.exporting.ranges import pack
from pyspark_eruca.table import RangePartition, read_partition


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic's messages as they arrive; with ``availableNow``, those that exist at the start."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._planner = BatchPlanner(options, clock)

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch; the first batch's own offset has its start."""
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the maximum number of messages in a micro-batch."""
        return ReadMaxRows(self._options.trigger_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the stream."""
        self._planner.fix_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch."""
        return self._planner.next(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the queues, which the progress shows as ``latestOffset``."""
        return self._planner.latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a partition for each share of a batch."""
        options = self._options
        ranges = self._planner.ranges(start, end)
        shares = pack(ranges, options.partition_rows, count_min=options.partition_count_min)
        return [RangePartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share."""
        return read_partition(self._options, partition)
