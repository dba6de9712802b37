"""Send the rows of a task, each once."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from eruca.exporting.errors import RefusedError, SourceError
from pyspark_eruca.sending import (
    KEY_REUSED,
    Connections,
    TopicRoute,
    TopicSender,
    queue_index,
)
from pyspark_eruca.sink_batches import BATCH_SIZE_MAX, Batch, Batches, Lane
from pyspark_eruca.sink_columns import RowError, SinkColumns
from pyspark_eruca.sink_options import SinkOptions

KEYED_AT_ONCE: Final = 8  # requests of rows with keys of their own; each waits for a flush
KEYED_GATHERED_MAX: Final = 256  # of these rows, sent together
_OF_A_MESSAGE: Final = re.compile(r"/body/messages/([0-9]+)")  # in a refusal
_REUSED_FIX: Final = (
    "an earlier attempt sent other rows here, or the same in another order, or the topic's queues"
    " have changed since. Give each partition an order before writing (sortWithinPartitions) and"
    " keep the number of queues until the write is complete, or name a column of unique values in"
    " the option idempotencyKeyColumn"
)


def raise_or_tell(options: SinkOptions, found: str) -> None:
    """Report rows that two attempts have divided differently.

    Raises:
        SourceError: The options do not allow it.
    """
    text = (
        f"{found}. So rows may be in the topic twice, and nothing takes them back. Keep the"
        " division into partitions until a write is complete, or name a column of unique values in"
        " the option idempotencyKeyColumn"
    )
    if options.fail_on_doubled:
        raise SourceError(f"{text}; to continue all the same, set failOnDoubledRows=false")
    print(text, file=sys.stderr)


class _Outcome(NamedTuple):
    """The result of sending a batch."""

    batch: Batch
    is_new: bool = False  # else it was stored before
    error: SourceError | None = None


class SinkSender:
    """Sends the rows of one partition, in their order.

    Args:
        options: The name servers, and how long to retry.
        columns: The rows' columns.
        prefix: The beginning of the keys of this write; unused if rows have keys of their own.
        partition: The partition's number.
        route: Of the topic in the options, for all attempts; None: each looks up its topics.
        checks_division: Whether an earlier run may have sent rows under the same keys.
    """

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        *,
        prefix: str,
        partition: int,
        route: TopicRoute | None = None,
        checks_division: bool = False,
    ) -> None:
        self._checks_division = checks_division
        self._options = options
        self._columns = columns
        self._prefix = prefix
        self._partition = partition
        self._route = route
        self._batches = Batches()
        self._connections = Connections(options)
        self._topics: dict[str, TopicSender] = {}
        self._keyed: list[tuple[Batch, list[str]]] = []  # rows with keys of their own, gathered
        self._keyed_size = 0  # bytes of them
        self._twins: dict[tuple[int, str], TopicSender] = {}  # by thread's share and topic
        self._of_twins = [Connections(options) for _ in range(KEYED_AT_ONCE)]
        self._threads = ThreadPoolExecutor(KEYED_AT_ONCE, "eruca-sink")  # starts none before use
        self._row = 0
        self.sent = 0  # messages stored now
        self.known = 0  # messages that were stored under their keys before

    def send(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Send rows; those that wait for more are sent by :meth:`flush`.

        Raises:
            SourceError: A row is not a message, or a broker refused it or was unreachable. The text
                names the row, and how many messages of the partition are stored.
        """
        for row in rows:
            try:
                key = self._columns.key_of(row)
                topic, sharding_key, text = self._columns.message_of(row)
                queues = self._topic(topic, self._row).queues
                index = queue_index(sharding_key, len(queues)) if sharding_key else None
            except RowError as error:
                raise self._failure(f"row {self._row}", error) from error
            lane = Lane(topic, index)
            if key is None:
                for batch in self._batches.add(lane, text, self._row):
                    self._send(batch, self._keys_of(batch))
            else:
                self._keyed.append((Batch(lane, 0, [text], [self._row]), [key]))
                self._keyed_size += len(text)
                if len(self._keyed) == KEYED_GATHERED_MAX or self._keyed_size > BATCH_SIZE_MAX:
                    self._send_keyed()
            self._row += 1

    def flush(self) -> None:
        """Send the remaining rows; raises as :meth:`send` does."""
        for batch in self._batches.rest():
            self._send(batch, self._keys_of(batch))
        self._send_keyed()
        if self._checks_division:
            self._check_division()

    @property
    def topics(self) -> list[str]:
        """The topics of the rows, and that of the options."""
        return sorted({*self._topics, *filter(None, [self._options.topic])})

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown()
        for connections in (self._connections, *self._of_twins):
            connections.close()

    def _check_division(self) -> None:
        """Raise SourceError if an earlier attempt of this partition had more rows.

        Its batches have the numbers from 0 on, so it is enough to look for the next one.
        """
        for name in self.topics:
            try:
                topic = self._topic(name, self._row)
                next_id = f"{self._prefix}-{self._partition}-{self._batches.count(name)}-0"
                if (broker_name := topic.holder(next_id)) is None:
                    continue
                raise_or_tell(
                    self._options,
                    f"an earlier attempt of partition {self._partition} had more rows: its message"
                    f" {next_id!r} of topic {name} is at {broker_name}",
                )
            except SourceError as error:
                raise self._failure("after its last row", error) from error

    def _keys_of(self, batch: Batch) -> list[str]:
        name = f"{self._prefix}-{self._partition}-{batch.number}"
        return [f"{name}-{index}" for index in range(len(batch.texts))]

    def _send(self, batch: Batch, keys: list[str]) -> None:
        outcome = self._sent(self._topics[batch.lane.topic], batch, keys)
        self._count([outcome])

    def _send_keyed(self) -> None:
        """Send the rows with keys of their own that have been gathered, some at once.

        Rows of one queue are sent one after the other, by one thread.
        """
        shares: defaultdict[int, list[tuple[Batch, list[str]]]] = defaultdict(list)
        for batch, keys in self._keyed:
            index = batch.lane.queue_index
            number = zlib.crc32(keys[0].encode()) if index is None else index
            shares[number % KEYED_AT_ONCE].append((batch, keys))
        self._keyed, self._keyed_size = [], 0
        futures = [
            self._threads.submit(self._send_share, worker, share)
            for worker, share in shares.items()
        ]
        self._count([outcome for future in futures for outcome in future.result()])

    def _send_share(self, worker: int, share: list[tuple[Batch, list[str]]]) -> list[_Outcome]:
        """Send rows one after the other, until one fails."""
        outcomes: list[_Outcome] = []
        for batch, keys in share:
            name = batch.lane.topic
            if (worker, name) not in self._twins:
                self._twins[worker, name] = self._topics[name].twin(self._of_twins[worker])
            outcomes.append(self._sent(self._twins[worker, name], batch, keys))
            if outcomes[-1].error is not None:
                break
        return outcomes

    def _sent(self, topic: TopicSender, batch: Batch, keys: list[str]) -> _Outcome:
        index = batch.lane.queue_index
        if index is None:
            index = zlib.crc32(keys[0].encode()) % len(topic.queues)
        messages = [
            b'%b, "message_id": %b}' % (text[:-1], json.dumps(key).encode())
            for text, key in zip(batch.texts, keys, strict=True)
        ]
        try:
            next_id = None
            if self._options.key_column is None:
                next_id = f"{keys[0].rpartition('-')[0]}-{len(keys)}"
            is_new = topic.send(topic.queues[index], keys, messages, next_id=next_id)
            return _Outcome(batch, is_new=is_new)
        except SourceError as error:
            return _Outcome(batch, error=error)

    def _count(self, outcomes: Iterable[_Outcome]) -> None:
        """Count stored messages; raise SourceError if one has failed."""
        failed: list[_Outcome] = []
        for outcome in outcomes:
            if outcome.error is not None:
                failed.append(outcome)
            elif outcome.is_new:
                self.sent += len(outcome.batch.rows)
            else:
                self.known += len(outcome.batch.rows)
        if not failed:
            return
        first = min(failed, key=lambda one: one.batch.rows[0])
        error = first.error
        assert error is not None
        is_reused = isinstance(error, RefusedError) and error.code == KEY_REUSED
        raise self._failure(
            _place(first.batch.rows, str(error)), error, f": {_REUSED_FIX}" if is_reused else ""
        ) from error

    def _topic(self, name: str, row: int) -> TopicSender:
        if name not in self._topics:
            try:
                self._topics[name] = TopicSender(
                    self._options,
                    name,
                    window_seconds=self._options.window_seconds,
                    route=self._route,
                    connections=self._connections,
                )
            except SourceError as error:
                raise self._failure(f"row {row}", error) from error
        return self._topics[name]

    def _failure(self, place: str, error: Exception, fix: str = "") -> SourceError:
        stored = self.sent + self.known
        return SourceError(
            f"partition {self._partition}, {place}: {error}{fix}. Acknowledged of this partition:"
            f" {stored} messages, {self.sent} of them by this attempt"
        )


def _place(rows: list[int], refusal: str) -> str:
    """Return the rows of a batch that a refusal is about, in words."""
    found = _OF_A_MESSAGE.search(refusal)
    if found is not None and int(found[1]) < len(rows):
        return f"row {rows[int(found[1])]}"
    return f"row {rows[0]}" if len(rows) == 1 else f"rows {rows[0]} to {rows[-1]}"
