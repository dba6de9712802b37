"""A topic as a table: rows of ranges that were pinned when it was loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_eruca.errors import OptionError
from pyspark_eruca.exports import Exports
from pyspark_eruca.options import Options
from pyspark_eruca.ranges import Range, pack, within
from pyspark_eruca.stream_offsets import data_loss
from pyspark_eruca.wanted import Wanted


class RangePartition(InputPartition):
    """A task's share: ranges of one topic."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def pinned_ranges(options: Options, exports: Exports) -> tuple[Range, ...]:
    """Return what there is to read at this moment, as the options narrow it.

    Raises:
        DataLossError: Retention has deleted where it was to start.
        OptionError: It is to end where there is nothing yet.
    """
    if options.starting == "latest":
        raise OptionError("option startingOffsets: a table from the latest offset on has no rows")
    held = exports.held(
        options.topics, starting_at=options.starting_at, ending_at=options.ending_at
    )
    ranges = []
    for queue, now in sorted(held.items()):
        start, end = now.start, now.end
        if not isinstance(options.starting, str):
            start = options.starting.get(queue, now.min_offset)
            if start < now.min_offset and options.fail_on_data_loss:
                raise data_loss(queue, start, now.min_offset)
            start = max(start, now.min_offset)
        if not isinstance(options.ending, str):
            end = options.ending.get(queue, now.max_offset)
            if end > now.max_offset:
                raise OptionError(f"endingOffsets: {queue.text} ends at {now.max_offset} by now")
        if start < end:
            ranges.append(Range(queue, start, end))
    return tuple(ranges)


class TableReader(DataSourceReader):
    """Rows of the ranges that were pinned."""

    def __init__(self, options: Options, ranges: tuple[Range, ...]) -> None:
        self._options = options
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each share of the ranges."""
        return [RangePartition(share) for share in pack(self._ranges, self._options.partition_rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a share's rows."""
        return read_partition(self._options, partition)


class FilteringReader(TableReader):
    """The same, of fewer ranges where a query's conditions allow it.

    Conditions on topic, broker, queue, offset and the time stored save reading, and Spark looks at
    each row again.

    Only for a frame that is used in one query. Spark 4.3 keeps what was planned last with what was
    loaded (``PythonScanBuilder.pushFilters`` sets it there), and not with the query: another query
    of the same load, or a second branch of a join, would find those ranges only. That is why it
    must be asked for.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the ranges; leave it to Spark to look at each row."""
        wanted = Wanted()
        for condition in filters:
            wanted.add(condition)
        ranges = wanted.narrow(self._ranges)
        if ranges and (wanted.stored_from or wanted.stored_to):
            topics = {one.queue.topic for one in ranges}
            held = Exports(self._options).held(
                sorted(topics), starting_at=wanted.stored_from, ending_at=wanted.stored_to
            )
            ranges = within(ranges, held)
        self._ranges = ranges
        return filters


def read_partition(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Return the rows of a task's share."""
    # Where there are no partitions at all, Spark makes one of its own.
    ranges = partition.ranges if isinstance(partition, RangePartition) else ()
    return Exports(options).read(ranges)
