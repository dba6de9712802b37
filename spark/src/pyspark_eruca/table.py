"""A topic as a table: rows of ranges that were fixed at the load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from eruca.exporting.errors import OptionError
from eruca.exporting.exports import Exports
from eruca.exporting.options import Options
from eruca.exporting.ranges import Range, pack
from eruca.exporting.starts import check_later, check_order, checked_ends, checked_starts


class RangePartition(InputPartition):
    """A task's share: ranges of one topic."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def pinned_ranges(options: Options, exports: Exports) -> tuple[Range, ...]:
    """Return the ranges to read, from the present offsets and the options.

    Raises:
        DataLossError: Retention has deleted the start.
        OptionError: The start or end is outside a queue, or the queue does not exist.
    """
    if options.starting == "latest":
        raise OptionError(
            "option startingOffsets: a table that begins at the latest offset has no rows"
        )
    held = exports.held(
        exports.topics(), starting_at=options.starting_at, ending_at=options.ending_at
    )
    check_later(options, held)
    starts, ends = checked_starts(options, held), checked_ends(options, held)
    check_order(options)
    ranges = []
    for queue, now in sorted(held.items()):
        start, end = starts.get(queue, now.start), ends.get(queue, now.end)
        if start < end:
            ranges.append(Range(queue, start, end, now.topic_id))
    return tuple(ranges)


class TableReader(DataSourceReader):
    """Rows of the fixed ranges.

    It does not define ``pushFilters``. Spark 4.3 keeps the reader and the partitions that it
    planned last with the loaded source, not with the query: ``PythonScanBuilder.pushFilters``
    replaces them there. So every other query of the same load would use the reader with the filters
    of one query, and so would the other side of a join. They would lack rows.
    """

    def __init__(self, options: Options, ranges: tuple[Range, ...]) -> None:
        self._options = options
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each share of the ranges."""
        options = self._options
        shares = pack(self._ranges, options.partition_rows, count_min=options.partition_count_min)
        return [RangePartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share."""
        return read_partition(self._options, partition)


def read_partition(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Return the rows of a task's share."""
    # If there are no partitions, Spark makes one itself.
    ranges = partition.ranges if isinstance(partition, RangePartition) else ()
    return Exports(options).read(ranges)
