"""Batches of an export or of a stream: the position after the next batch, from the one before."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from eruca.exporting.errors import BrokenAnswer, DataLossError, OptionError, SourceError
from eruca.exporting.exports import Exports
from eruca.exporting.options import Options
from eruca.exporting.positions import Lost, Position, adopted, compare
from eruca.exporting.ranges import Held, LogEnd, Queue, Range
from eruca.exporting.shown_progress import ShownProgress
from eruca.exporting.starts import check_later, checked_starts
from eruca.exporting.stream_offsets import GO_ON, StreamOffset, batch_ranges, next_offset


class BatchPlanner:
    """Plans the batches of topics, one after the other.

    Positions are documents, see :mod:`.stream_offsets`. The caller stores them together with the
    rows before them.

    Args:
        options: The topics, and where to begin.
        clock: Seconds that never decrease, for ``maxTriggerDelay``.

    Raises:
        OptionError: The options are for a table that ends.
    """

    def __init__(
        self,
        options: Options,
        clock: Callable[[], float] = time.monotonic,
        *,
        stop: threading.Event | None = None,
    ) -> None:
        if options.ending != "latest" or options.ending_at or options.ranges is not None:
            raise OptionError(
                "ranges, endingOffsets and endingTimestamp are not supported for a stream; remove"
                " them"
            )
        self._options = options
        self._clock = clock
        self._planned_at: float | None = None
        self._latest: dict[str, Any] | None = None
        self._exports = Exports(options, stop=stop)
        self._progress = ShownProgress(options) if options.progress_group else None
        self._target: dict[Queue, Held] | None = None
        self._logs: Mapping[str, LogEnd] = {}
        self._told: set[str] = set()  # reported faults of the position
        self._gone: set[str] = set()  # topics that are reported as deleted or away
        self._proved: dict[Queue, tuple[Position, str | None]] = {}  # with the run of the broker

    @staticmethod
    def initial() -> dict[str, Any]:
        """Return the position before the first batch; the first batch's own has its start."""
        return StreamOffset().to_json()

    def fix_end(self) -> None:
        """Fix the end: later batches contain only the messages that exist now."""
        self._target = self._held()

    def next(self, start: dict[str, Any], rows_max: int | None) -> dict[str, Any]:
        """Return the position after the next batch; *start* itself if there is none.

        Args:
            start: The position after the last batch.
            rows_max: Maximum number of messages in the batch; None: no limit.

        Raises:
            DataLossError: Messages after *start* are deleted, and that matters.
            UnavailableError: There was no answer.
            SourceError: The service refused, or *start* is of another source.
        """
        options = self._options
        given = self._parsed(start)
        if self._progress is not None and given.next:  # all before start is finished
            self._progress.show({queue: one.offset for queue, one in given.next.items()})
        held = self._target
        if held is None:
            held = self._held()
        if not (held or given.next):
            self._exports.topics()  # raises if a pattern matches none at the start
        if options.topics.pattern is not None:
            self._check_deleted(given.next, held)
        before = StreamOffset(given.first, adopted(given.next, held))
        by_time: Mapping[Queue, Held] = {}
        starts: Mapping[Queue, int] = {}
        if not before.next:
            starts = checked_starts(options, held)
        if not before.next and options.starting_at:
            by_time = self._exports.held(
                sorted({queue.topic for queue in held}), starting_at=options.starting_at
            )
            check_later(options, by_time)

        def begin(queue: Queue, now: Held) -> int:
            if queue in by_time:
                return min(by_time[queue].start, now.end)
            if options.starting == "latest":
                return now.max_offset
            return starts.get(queue, now.min_offset)

        advance = next_offset(
            before, held, begin=begin, rows_max=rows_max, lost=self._lost(before, held)
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
        self._planned_at = self._clock()
        return advance.offset.to_json()

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        """Return the messages between two positions.

        Raises:
            SourceError: No planner has returned *end* after *start*.
        """
        return batch_ranges(self._parsed(start), self._parsed(end))

    @property
    def logs(self) -> Mapping[str, LogEnd]:
        """The ends of the broker groups' logs that the ends of all queues reach."""
        return self._logs

    @property
    def latest(self) -> dict[str, Any] | None:
        """The end of the queues at the last call of :meth:`next`."""
        return self._latest

    def _held(self) -> dict[Queue, Held]:
        topics = self._exports.topics(may_be_none=True)
        has_pattern = self._options.topics.pattern is not None
        held = self._exports.held(topics, skips_deleted=has_pattern)
        self._logs = self._exports.logs
        return held

    def _check_deleted(self, known: Mapping[Queue, Position], held: dict[Queue, Held]) -> None:
        """Add to *held* the topics that are back; report those that no longer exist.

        Raises:
            DataLossError: A topic of the position no longer exists, and that matters.
            UnavailableError: The brokers of one are away, and that matters.
        """
        by_topic: dict[str, list[Queue]] = {}
        for queue in sorted(known):
            by_topic.setdefault(queue.topic, []).append(queue)
        self._gone &= by_topic.keys() - {queue.topic for queue in held}
        for topic in sorted(by_topic.keys() - {queue.topic for queue in held} - self._gone):
            patience = self._exports.patience()
            while not (back := self._exports.held([topic], skips_deleted=True)):
                fault: Exception
                if is_deleted := self._exports.is_deleted(by_topic[topic]):
                    ends = ", ".join(f"{one.text}: {known[one].offset}" for one in by_topic[topic])
                    fault = DataLossError(
                        f"topic {topic} no longer exists, and messages after those that were read"
                        f" may be lost (read up to {ends}); {GO_ON}"
                    )
                else:
                    fault = BrokenAnswer(f"topic {topic}: its brokers are away; {GO_ON}")
                if not self._options.fail_on_data_loss:
                    self._gone.add(topic)
                    print(fault, file=sys.stderr)
                    break
                if is_deleted:
                    raise fault
                patience.wait(fault)
            held.update(back)

    def _waits(self, given: StreamOffset, end: StreamOffset) -> bool:
        """Tell whether to wait for more messages (``minOffsetsPerTrigger``).

        The first batch is not delayed, nor is a run whose end is fixed.
        """
        options = self._options
        if options.trigger_rows_min == 1 or self._target is not None or self._planned_at is None:
            return False
        if self._clock() - self._planned_at >= options.trigger_delay_seconds:
            return False
        rows = sum(one.rows for one in batch_ranges(given, end))
        return rows < options.trigger_rows_min

    def _parsed(self, document: dict[str, Any]) -> StreamOffset:
        """Return a position.

        Raises:
            SourceError: It belongs to another source or version; or to another topic, and that
                matters.
        """
        offset = StreamOffset.parse(document)
        for fault in offset.faults(self._options.topics):
            if self._options.fail_on_data_loss:
                raise SourceError(
                    f"{fault}; use another checkpoint, or, if this is intended, run once with"
                    " failOnDataLoss=false (commands: --allow-loss)"
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
