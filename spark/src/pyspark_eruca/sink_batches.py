"""The division of a task's rows into batches, each sent under one idempotency key. Pure.

A **lane** is a sequence of rows that stay in order: the rows of one queue, if they have sharding
keys, else all rows of one topic. All batches of one topic are numbered in the order in which they
are sent, whatever their lane. A batch's key is made of the write, the partition and that number.

Invariants: The same rows in the same order, divided over the same number of queues, always make the
same batches under the same keys, however Spark cuts them. Every row is in one batch. A topic's
batches are sent one after the other, and none after one that has failed.

So an attempt leaves the batches 0 to n of each topic, without a gap. The next attempt sends its own
batch 0 to n under the same keys. If each has the same content, they are known, and what remains are
exactly the rows that were not sent. If the order of the rows or the number of queues has changed,
the first batch that differs has other content than what is stored under its key. It is refused
before anything new is stored. A key must not name its lane: then a lane that other queues make
would have keys that no broker knows, and its rows would be stored a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

BATCH_COUNT_MAX: Final = 1_000  # messages in one request
# Bytes of their JSON, in which a body is a third larger. A broker accepts 6 MiB of JSON and 4 MiB
# of records. A record is at most a little larger than its message in JSON.
BATCH_SIZE_MAX: Final = 3 * 1024 * 1024
WAITING_SIZE_MAX: Final = 32 * 1024 * 1024  # bytes of all lanes of a task, the memory it needs


class Lane(NamedTuple):
    """Rows that stay in order."""

    topic: str
    queue_index: int | None  # among the topic's queues; None: rows without a sharding key


class Batch(NamedTuple):
    """Messages to send in one request."""

    lane: Lane
    number: int  # among the topic's batches, from 0
    texts: list[bytes]  # the messages' JSON
    rows: list[int]  # their numbers in the partition, from 0


class _Waiting:
    """A lane's next batch."""

    __slots__ = ("rows", "size", "texts")

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.rows: list[int] = []
        self.size = 0


class Batches:
    """Divides rows into batches.

    Args:
        count_max: Most messages of a batch.
        size_max: Most bytes of a batch, unless it is one message.
        waiting_size_max: Most bytes that wait for more rows.
    """

    def __init__(
        self,
        *,
        count_max: int = BATCH_COUNT_MAX,
        size_max: int = BATCH_SIZE_MAX,
        waiting_size_max: int = WAITING_SIZE_MAX,
    ) -> None:
        self._count_max = count_max
        self._size_max = size_max
        self._waiting_size_max = waiting_size_max
        self._lanes: dict[Lane, _Waiting] = {}
        self._taken_counts: Counter[str] = Counter()  # batches by topic
        self._size = 0

    def add(self, lane: Lane, text: bytes, row: int) -> Iterator[Batch]:
        """Add a message; yield the batches to send before the next one is added."""
        waiting = self._lanes.setdefault(lane, _Waiting())
        is_full = len(waiting.texts) == self._count_max
        if waiting.texts and (is_full or waiting.size + len(text) > self._size_max):
            yield self._taken(lane)
        waiting.texts.append(text)
        waiting.rows.append(row)
        waiting.size += len(text)
        self._size += len(text)
        while self._size > self._waiting_size_max:
            # The first of the largest: the same one whenever the same rows come.
            yield self._taken(max(self._lanes, key=lambda one: self._lanes[one].size))

    def count(self, topic: str) -> int:
        """Return the number of a topic's batches so far."""
        return self._taken_counts[topic]

    def rest(self) -> Iterator[Batch]:
        """Yield the remaining batches."""
        for lane, waiting in self._lanes.items():
            if waiting.texts:
                yield self._taken(lane)

    def _taken(self, lane: Lane) -> Batch:
        waiting = self._lanes[lane]
        batch = Batch(lane, self._taken_counts[lane.topic], waiting.texts, waiting.rows)
        self._taken_counts[lane.topic] += 1
        self._size -= waiting.size
        waiting.texts, waiting.rows, waiting.size = [], [], 0
        return batch
