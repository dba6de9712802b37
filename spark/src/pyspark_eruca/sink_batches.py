"""The division of a task's rows into batches, each sent under one idempotency key. Pure.

A **lane** is a sequence of rows that stay in order: the rows of one queue, if they have sharding
keys, else all rows of one topic. Its batches are numbered. A batch's key is made of the write, the
partition, the lane and that number.

Invariants: The same rows in the same order always make the same batches under the same keys,
however Spark cuts them. Every row is in one batch. A lane's batches are sent one after the other.

So if rows are sent again in the same order, each batch is found under its key. If their order has
changed, the first batch that differs has other content than the broker stored under its key, and is
refused. A lane whose stored batches are all the same still has exactly the rows that were not sent.
"""

from __future__ import annotations

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

    @property
    def text(self) -> str:
        """Its name in keys."""
        return "n" if self.queue_index is None else f"q{self.queue_index}"


class Batch(NamedTuple):
    """Messages to send in one request."""

    lane: Lane
    number: int  # in the lane, from 0
    texts: list[bytes]  # the messages' JSON
    rows: list[int]  # their numbers in the partition, from 0


class _Waiting:
    """A lane's next batch."""

    __slots__ = ("number", "rows", "size", "texts")

    def __init__(self) -> None:
        self.number = 0
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

    def rest(self) -> Iterator[Batch]:
        """Yield the remaining batches."""
        for lane, waiting in self._lanes.items():
            if waiting.texts:
                yield self._taken(lane)

    def _taken(self, lane: Lane) -> Batch:
        waiting = self._lanes[lane]
        batch = Batch(lane, waiting.number, waiting.texts, waiting.rows)
        self._size -= waiting.size
        waiting.number += 1
        waiting.texts, waiting.rows, waiting.size = [], [], 0
        return batch
