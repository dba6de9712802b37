"""Rows of a frame, sent to a topic as new messages, each once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_eruca.errors import OptionError
from pyspark_eruca.ranges import Range
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

    The rows need the columns ``body``, ``topic``, ``broker_name``, ``queue_id``, ``queue_offset``
    (where they came from); ``tag``, ``keys``, ``sharding_key``, ``properties`` and ``flag`` are
    sent along where they are there. A row whose column ``damage`` is not null is not sent, and
    told on stderr. A body that was sent as JSON is sent as JSON.

    A message's id is made of the replay's name and the row's origin. What the target already has of
    this replay is found before the first row is sent, and again where a task is tried anew, and is
    left out. So an aborted replay is completed by running it again. It must not run twice at once.
    Where rows are shuffled on a cluster, Spark itself would do that when it loses an executor: it
    must be told not to, by ``spark.stage.maxConsecutiveAttempts=1``.

    Messages of one sharding key go to the queue its producers would choose; all others of one queue
    of origin to one queue, in the order of the rows.

    Loops are refused: a row may not go to the topic it comes from, nor to one it was replayed from.
    """

    def __init__(self, options: ReplayOptions, columns: Sequence[str]) -> None:
        missing = [name for name in ("body", *_ORIGIN_COLUMNS) if name not in columns]
        if missing:
            raise OptionError(f"a replay needs the columns {', '.join(missing)}")
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
        sender = ReplaySender(self._options, [self._known, self._sent_by_earlier_attempts()])
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
                # Of a topic that was created again meanwhile, all is later.
                self._ends.get((queue, now.topic_id), now.min_offset),
                now.max_offset,
                now.topic_id,
            )
            for queue, now in sorted(held.items())
        ]
        return Digests(already_replayed(exports, ranges, self._options.replay))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell how many there were."""
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
        """Leave what was sent: the same replay, run again, leaves it out."""
