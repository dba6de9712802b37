"""Write the rows of any frame to topics, each once.

A message's id names its row: the write, the partition, the batch and the place in it (see
:mod:`.sink_batches`). Messages are sent under these ids as idempotency keys, so brokers store each
once, however often Spark runs a task, one attempt after the other or several at once. An attempt
after the time for which brokers know a key finds the messages in the log (see :mod:`.sending`).

The write of a stream is its query and the micro-batch. Both are in Spark's checkpoint, so a
micro-batch that runs again after a restart has the same ids. The write of a table is new for each
``save()``, unless the option ``idempotencyPrefix`` names it.

This requires that a partition has the same rows in the same order whenever it runs again. Spark
promises that for rows that come straight from a source that repeats them (files, topics). It does
not for rows after a shuffle. If the order changes, the sink does not send twice: a broker refuses
other content under a known key, and the write fails. With ``idempotencyKeyColumn`` neither the
order nor the partition matters; each row is then a request of its own.

Rows that have moved to another partition have other ids, and are stored again. An earlier attempt
with another division leaves messages that no task of this one comes to: behind the last batch of a
partition, which each task looks for, or of partitions behind the last one, which only the driver
can look for, at the commit. Both are errors (``failOnDoubledRows``).

Source: Spark 4.3, ``MicroBatchExecution`` (the local properties of query and batch).
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from eruca.exporting.errors import OptionError, SourceError
from pyspark_eruca.sending import Connections, TopicRoute, TopicSender
from pyspark_eruca.sink_columns import SinkColumns
from pyspark_eruca.sink_options import SinkOptions
from pyspark_eruca.sink_sender import SinkSender, raise_or_tell

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
# Partitions of an earlier run that are looked for, behind those of this one: as many as this one
# has, within these limits.
_MORE_PARTITIONS: Final = (16, 64)
# Times topics. Each is a request to each broker, one after the other, for every micro-batch.
_LOOKED_FOR_MAX: Final = 256
_ROWS_AT_ONCE: Final = 256  # rows as Python objects; a batch of Spark's may have 10 000


class Sent(WriterCommitMessage):
    """The result of a task."""

    def __init__(self, sent: int, known: int, prefix: str, topics: Sequence[str]) -> None:
        self.sent = sent
        self.known = known
        self.prefix = prefix  # of the write's keys
        self.topics = topics


class SinkWriter(DataSourceArrowWriter):
    """Writes a table to topics.

    Raises:
        OptionError: A column does not fit.
        SourceError: The topic of the option does not exist.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = SinkColumns(schema, topic=options.topic, key_column=options.key_column)
        self._route = _route(options)
        self._prefix = options.prefix or f"spark-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows."""
        context = TaskContext.get()
        assert context is not None
        sender = SinkSender(
            self._options,
            self._columns,
            prefix=self._prefix,
            partition=context.partitionId(),
            route=self._route,
            # Attempts of an unnamed write share their keys, too.
            checks_division=self._options.key_column is None,
        )
        return _sent(sender, self._prefix, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the counts.

        Raises:
            SourceError: An earlier run of the named write had more partitions.
        """
        if self._options.prefix is not None:
            _check_partitions(self._options, self._route, messages)
        if self._options.summary_file:
            sent, known = _counts(messages)
            summary = {"sent": sent, "skipped": known, "prefix": self._prefix}
            Path(self._options.summary_file).write_text(json.dumps(summary) + "\n")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report what is stored all the same: nothing takes messages back."""
        _tell_aborted(messages, f"write {self._prefix}")


class SinkStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream to topics; raises as :class:`SinkWriter` does."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.prefix is not None:
            raise OptionError(
                "option idempotencyPrefix: a stream's messages are known by the query and the"
                " micro-batch; remove the option"
            )
        self._options = options
        self._columns = SinkColumns(schema, topic=options.topic, key_column=options.key_column)
        self._route = _route(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows of a micro-batch."""
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise SourceError(
                "Spark does not tell the query and the micro-batch, by which the messages of a"
                " repeated micro-batch are known; use Spark 4.3, or write in foreachBatch with the"
                " option idempotencyPrefix"
            )
        prefix = f"{query}-{batch}"
        sender = SinkSender(
            self._options,
            self._columns,
            prefix=prefix,
            partition=context.partitionId(),
            route=self._route,
            checks_division=self._options.key_column is None,
        )
        return _sent(sender, prefix, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - as Spark's
        """Check that no earlier run of the micro-batch had more partitions.

        Raises:
            SourceError: One had.
        """
        if self._options.key_column is None:
            _check_partitions(self._options, self._route, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - as Spark's
        """Report what is stored all the same; the micro-batch will run again."""
        _tell_aborted(messages, f"micro-batch {batchId}")


def _route(options: SinkOptions) -> TopicRoute | None:
    """Look up the topic of the options, which must exist before anything is sent.

    All tasks use this route. If each attempt looked it up, an attempt after a broker's death would
    store its rows at the others, and not know that the dead one has them.
    """
    return TopicSender(options, options.topic).route if options.topic is not None else None


def _sent(sender: SinkSender, prefix: str, batches: Iterator[pa.RecordBatch]) -> Sent:
    with closing(sender):
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                rows: list[dict[str, Any]] = batch.slice(start, _ROWS_AT_ONCE).to_pylist()
                sender.send(rows)
        sender.flush()
    return Sent(sender.sent, sender.known, prefix, sender.topics)


def _check_partitions(
    options: SinkOptions, route: TopicRoute | None, messages: list[WriterCommitMessage | None]
) -> None:
    """Raise SourceError if an earlier run of this write had more partitions than this one.

    Only the driver knows how many there are, and only now. It looks for the first messages of some
    partitions more, in as many topics as the limit allows.
    """
    done = [message for message in messages if isinstance(message, Sent)]
    count = len(messages)
    least, most = _MORE_PARTITIONS
    more = min(max(count, least), most)
    connections = Connections(options)
    with closing(connections):
        names = sorted({topic for one in done for topic in one.topics})
        for name in names[: _LOOKED_FOR_MAX // more]:
            topic = TopicSender(options, name, route=route, connections=connections)
            for partition in range(count, count + more):
                first_id = f"{done[0].prefix}-{partition}-0-0"
                if (broker_name := topic.holder(first_id)) is not None:
                    raise_or_tell(
                        options,
                        f"an earlier run of write {done[0].prefix} had more than this one's"
                        f" {count} partitions: its message {first_id!r} of topic {name} is at"
                        f" {broker_name}",
                    )
                    break


def _counts(messages: list[WriterCommitMessage | None]) -> tuple[int, int]:
    done = [message for message in messages if isinstance(message, Sent)]
    return sum(one.sent for one in done), sum(one.known for one in done)


def _tell_aborted(messages: list[WriterCommitMessage | None], what: str) -> None:
    sent, known = _counts(messages)
    failed = sum(message is None for message in messages)
    print(
        f"{what} failed: {len(messages) - failed} tasks are complete, with {sent + known} messages"
        f" acknowledged; {failed} tasks are not, and their errors tell what they have sent",
        file=sys.stderr,
    )
