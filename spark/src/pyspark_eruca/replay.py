"""Send the rows of a frame to a topic as new messages, each once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from eruca.exporting.errors import OptionError
from eruca.exporting.ranges import Range
from pyspark_eruca.replay_options import ReplayOptions
from pyspark_eruca.replay_sender import ReplaySender
from pyspark_eruca.replayed import Digests, already_replayed

_ORIGIN_COLUMNS: Final = ("topic", "broker_name", "queue_id", "queue_offset")


class ReplayDone(WriterCommitMessage):
    """The result of a task."""

    def __init__(self, sent: int, skipped: int, damaged: int) -> None:
        self.sent = sent
        self.skipped = skipped
        self.damaged = damaged


class ReplayWriter(DataSourceArrowWriter):
    """Sends rows to a topic as new messages, each once.

    The rows need the columns ``body``, ``topic``, ``broker_name``, ``queue_id`` and
    ``queue_offset`` (the message's origin). The columns ``tag``, ``keys``, ``sharding_key``,
    ``properties`` and ``flag`` are sent if they exist. A row with a value in the column ``damage``
    is not sent, but reported on stderr. A body that was sent as JSON is sent as JSON.

    A message's id is derived from the replay's name and the row's origin. Before the first row, and
    again when a task is retried, the writer searches the target for messages of this replay, and
    skips them. So running an aborted replay again completes it. It must not run twice at once. If
    rows are shuffled on a cluster, Spark itself would do that after it loses an executor.
    ``spark.stage.maxConsecutiveAttempts=1`` prevents that.

    Messages with a sharding key go to the queue that its producers would choose. All others of one
    queue of origin go to one queue, in the order of the rows.

    Loops are refused: a row must not go to its topic of origin, nor to a topic from which it was
    replayed.
    """

    def __init__(self, options: ReplayOptions, columns: Sequence[str]) -> None:
        missing = [name for name in ("body", *_ORIGIN_COLUMNS) if name not in columns]
        if missing:
            raise OptionError(f"a replay requires the columns {', '.join(missing)}")
        self._options = options
        exports = options.exports()
        held = exports.held([options.topic], starting_at=options.replay_from)
        self._ends = {(queue, now.topic_id): now.max_offset for queue, now in held.items()}
        before = (
            Range(queue, now.start, now.max_offset, now.topic_id)
            for queue, now in sorted(held.items())
        )
        self._known = Digests(already_replayed(exports, before, options.replay))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows."""
        known = [self._known, self._sent_by_earlier_attempts()]
        with closing(ReplaySender(self._options, known)) as sender:
            for batch in iterator:
                for row in batch.to_pylist():
                    sender.add(row)
            sender.flush()
        return ReplayDone(sender.sent, sender.skipped, sender.damaged)

    def _sent_by_earlier_attempts(self) -> Digests:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None or context.attemptNumber() == 0:
            return Digests()
        exports = self._options.exports()
        held = exports.held([self._options.topic], starting_at=self._options.replay_from)
        ranges = [
            Range(
                queue,
                # If the topic was created again meanwhile, all of its messages are newer.
                self._ends.get((queue, now.topic_id), now.min_offset),
                now.max_offset,
                now.topic_id,
            )
            for queue, now in sorted(held.items())
        ]
        return Digests(already_replayed(exports, ranges, self._options.replay))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the counts."""
        done = [message for message in messages if isinstance(message, ReplayDone)]
        summary = {
            "replay": self._options.replay,
            "topic": self._options.topic,
            "sent": sum(one.sent for one in done),
            "skipped": sum(one.skipped for one in done),
            "damaged": sum(one.damaged for one in done),
        }
        if self._options.summary_file:
            Path(self._options.summary_file).write_text(json.dumps(summary) + "\n")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep the sent messages: the same replay, run again, skips them."""
