"""A topic as a stream, with Spark's own checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_eruca.errors import OptionError
from pyspark_eruca.exports import Exports
from pyspark_eruca.options import Options
from pyspark_eruca.ranges import Held, Queue, pack
from pyspark_eruca.stream_offsets import batch_ranges, data_loss, next_offset
from pyspark_eruca.table import RangePartition, read_partition


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic's messages as they come; under ``availableNow``, those that are there at first."""

    def __init__(self, options: Options) -> None:
        if options.ending != "latest" or options.ending_at:
            raise OptionError("a stream has no end: leave out endingOffsets and endingTimestamp")
        self._options = options
        self._exports = Exports(options)
        self._target: dict[Queue, Held] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch, whose own offset says where that begins."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how many messages a micro-batch has."""
        return ReadMaxRows(self._options.trigger_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where to end."""
        self._target = self._exports.held(self._options.topics)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        options = self._options
        held = self._target
        if held is None:
            held = self._exports.held(options.topics)
        by_time: Mapping[Queue, Held] = {}
        if not start and options.starting_at:
            by_time = self._exports.held(options.topics, starting_at=options.starting_at)

        def begin(queue: Queue, now: Held) -> int:
            if queue in by_time:
                return min(by_time[queue].start, now.end)
            if options.starting == "latest":
                return now.max_offset
            if isinstance(options.starting, str):
                return now.min_offset
            wanted = options.starting.get(queue, now.min_offset)
            if wanted < now.min_offset and options.fail_on_data_loss:
                raise data_loss(queue, wanted, now.min_offset)
            return max(wanted, now.min_offset)

        return next_offset(
            start,
            held,
            begin=begin,
            rows_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            fail_on_data_loss=options.fail_on_data_loss,
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a partition for each share of a batch."""
        ranges = batch_ranges(start, end)
        return [RangePartition(share) for share in pack(ranges, self._options.partition_rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a share's rows."""
        return read_partition(self._options, partition)
