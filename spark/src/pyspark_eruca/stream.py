"""A topic as a stream, with Spark's own checkpoints."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_eruca.errors import OptionError, SourceError
from pyspark_eruca.exports import Exports
from pyspark_eruca.options import Options
from pyspark_eruca.positions import Lost, Position, adopted, compare
from pyspark_eruca.ranges import Held, Queue, pack
from pyspark_eruca.shown_progress import ShownProgress
from pyspark_eruca.starts import check_later, checked_starts
from pyspark_eruca.stream_offsets import StreamOffset, batch_ranges, next_offset
from pyspark_eruca.table import RangePartition, read_partition


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic's messages as they arrive; with ``availableNow``, those that exist at the start."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        if options.ending != "latest" or options.ending_at or options.ranges is not None:
            raise OptionError(
                "ranges, endingOffsets and endingTimestamp are not supported for a stream; remove"
                " them"
            )
        self._options = options
        self._clock = clock
        self._triggered_at: float | None = None
        self._latest: dict[str, Any] | None = None
        self._exports = Exports(options)
        self._progress = ShownProgress(options) if options.progress_group else None
        self._target: dict[Queue, Held] | None = None
        self._told: set[str] = set()  # reported faults of the checkpoint
        self._proved: dict[Queue, tuple[Position, str | None]] = {}  # with the run of the broker

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch; the first batch's own offset has its start."""
        return StreamOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the maximum number of messages in a micro-batch."""
        return ReadMaxRows(self._options.trigger_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the stream."""
        self._target = self._exports.held(self._options.topics)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch."""
        options = self._options
        given = self._parsed(start)
        if self._progress is not None and given.next:  # all before start is finished
            self._progress.show({queue: one.offset for queue, one in given.next.items()})
        held = self._target
        if held is None:
            held = self._exports.held(options.topics)
        before = StreamOffset(given.first, adopted(given.next, held))
        by_time: Mapping[Queue, Held] = {}
        starts: Mapping[Queue, int] = {}
        if not before.next:
            starts = checked_starts(options, held)
        if not before.next and options.starting_at:
            by_time = self._exports.held(options.topics, starting_at=options.starting_at)
            check_later(options, by_time)

        def begin(queue: Queue, now: Held) -> int:
            if queue in by_time:
                return min(by_time[queue].start, now.end)
            if options.starting == "latest":
                return now.max_offset
            return starts.get(queue, now.min_offset)

        advance = next_offset(
            before,
            held,
            begin=begin,
            rows_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            lost=self._lost(before, held),
        )
        for loss in advance.losses:
            if options.fail_on_data_loss:
                raise loss
            print(loss, file=sys.stderr)
        self._latest = StreamOffset(
            next={
                queue: Position(now.end, now.topic_id, now.broker_started_at, now.latest_stored_at)
                for queue, now in held.items()
            }
        ).to_json()
        if advance.offset == given or self._waits(given, advance.offset):
            return start
        self._triggered_at = self._clock()
        return advance.offset.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the queues, which the progress shows as ``latestOffset``."""
        return self._latest

    def _waits(self, given: StreamOffset, end: StreamOffset) -> bool:
        """Tell whether to wait for more messages (``minOffsetsPerTrigger``).

        The first batch is not delayed, nor is a run with ``availableNow``.
        """
        options = self._options
        if options.trigger_rows_min == 1 or self._target is not None or self._triggered_at is None:
            return False
        if self._clock() - self._triggered_at >= options.trigger_delay_seconds:
            return False
        rows = sum(one.rows for one in batch_ranges(given, end))
        return rows < options.trigger_rows_min

    def _parsed(self, document: dict[str, Any]) -> StreamOffset:
        """Return an offset of the checkpoint.

        Raises:
            SourceError: It belongs to another source or version; or to another topic, and that
                matters.
        """
        offset = StreamOffset.parse(document)
        for fault in offset.faults(self._options.topics):
            if self._options.fail_on_data_loss:
                raise SourceError(
                    f"{fault}; use another checkpoint, or, if this is intended, run once with"
                    " failOnDataLoss=false (eruca-spark: --allow-loss)"
                )
            if fault not in self._told:
                self._told.add(fault)
                print(fault, file=sys.stderr)
        return offset

    def _lost(self, before: StreamOffset, held: Mapping[Queue, Held]) -> dict[Queue, Lost]:
        """Return the queues that do not have the messages read before any more."""
        compared = compare(before.next, held)
        unproved = {
            queue: position
            for queue, position in compared.doubtful.items()
            if self._proved.get(queue) != (position, held[queue].broker_started_at)
        }
        lost = self._exports.lost(unproved)
        for queue, position in unproved.items():
            if queue not in lost:
                self._proved[queue] = position, held[queue].broker_started_at
        return compared.lost | lost

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a partition for each share of a batch."""
        ranges = batch_ranges(self._parsed(start), self._parsed(end))
        options = self._options
        shares = pack(ranges, options.partition_rows, count_min=options.partition_count_min)
        return [RangePartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share."""
        return read_partition(self._options, partition)
