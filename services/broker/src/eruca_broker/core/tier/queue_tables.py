"""Find the messages of a queue in the tier, by the heads of side objects. Pure.

A side object has the consume queues' entries of one segment, as the broker's files have them::

    head      this module's, encoded as MessagePack
    entries   20 bytes each (core/consume_queue_entry.py), by queue, in queue order
    times     store times of the same messages, i64 big-endian, ms since 1970
    keys      8 bytes for each key of a message, u64 little-endian, ascending: above, the hash by
              which the key index finds it; below, the record's place in the segment

The head has the hash of every 4,096th key, so the rows of most hashes are in one stretch of 64 KiB.
If every message has the same key, its rows are all there are, and a binary search finds a place
among them. Objects of format 1 have no keys, nor have segments with too many of them.

The head has a **run** for each queue: consecutive offsets. A topic that was deleted and created
again has the same queues from 0 on, so a run has the log offset of its first message: a run from
before the topic's creation is another topic's.

A queue without a message in the segment has an empty run, which tells where it stands. So each
table knows all queues of its time, and a binary search over the segments finds an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE
from eruca_broker.core.tier.manifests import DIGEST_SIZE

Key: TypeAlias = tuple[str, int]
"""A queue: its topic and its number."""

TIME_SIZE: Final = 8  # bytes
TIME_DTYPE: Final = np.dtype(">i8")
KEY_SIZE: Final = 8  # bytes
KEY_DTYPE: Final = np.dtype("<u8")
FENCE_DTYPE: Final = np.dtype("<u4")
FENCE_ROWS: Final = 4_096  # keys between two of which the head has the hash
_PLACE_BITS: Final = 32
_RUN_DTYPE: Final = np.dtype(
    [
        ("topic", "<u4"),
        ("queue_id", "<u4"),
        ("begin", "<i8"),
        ("count", "<i8"),
        ("log_offset", "<i8"),
        ("place", "<i8"),
    ]
)


class InvalidHeadError(ValueError):
    """A head cannot be read."""


class Run(NamedTuple):
    """Consecutive messages of one queue in one segment; perhaps none."""

    begin: int  # queue offset of the first one
    messages: int
    log_offset: int  # of the first one; of an empty run, of one of the same topic before it
    place: int  # index of its first entry

    @property
    def end(self) -> int:
        """The queue offset after the last message."""
        return self.begin + self.messages


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The head as it is stored."""

    format: int
    base: int  # log offset at which the segment begins
    size: int  # bytes of the segment
    chunk_size: int  # bytes of a chunk, of the segment and of the side object's rest
    entry_count: int
    segment_digests: bytes  # SHA-256 of each chunk of the segment, one after another
    side_digests: bytes  # … of what follows the head
    topics: list[str]
    runs: bytes
    key_count: int | None = None  # None: it has no keys
    key_fences: bytes = b""  # the hash of every FENCE_ROWS-th key


FORMAT: Final = 3  # 1 has no keys; up to 2, the manifest's times may not be the extremes
_READABLE: Final = (1, 2, 3)


class QueueTable:
    """The runs of one segment.

    Args:
        head: The head.

    Raises:
        InvalidHeadError: Its parts do not fit together.
    """

    def __init__(self, head: Head) -> None:
        self.head = head
        self._runs: NDArray[np.void] = np.frombuffer(head.runs, _RUN_DTYPE)
        self._numbers = {topic: number for number, topic in enumerate(head.topics)}
        self._places = self._runs["topic"].astype(np.int64) << 32 | self._runs["queue_id"]
        chunks = -(-head.size // head.chunk_size), -(-self.body_size // head.chunk_size)
        digests = len(head.segment_digests), len(head.side_digests)
        if digests != (chunks[0] * DIGEST_SIZE, chunks[1] * DIGEST_SIZE):
            raise InvalidHeadError("its digests are not those of its chunks")
        self._fences: NDArray[np.uint32] = np.frombuffer(head.key_fences, FENCE_DTYPE)
        if len(self._fences) != -(-(head.key_count or 0) // FENCE_ROWS):
            raise InvalidHeadError("its fences are not those of its keys")
        if len(self._places) and (np.diff(self._places) < 0).any():
            raise InvalidHeadError("its queues are not in order")

    @property
    def body_size(self) -> int:
        """Bytes after the head."""
        return self.keys_at + (self.head.key_count or 0) * KEY_SIZE

    @property
    def keys_at(self) -> int:
        """The position of the first key after the head."""
        return self.head.entry_count * (ENTRY_SIZE + TIME_SIZE)

    def keys_near(self, key_hash: int) -> tuple[int, int]:
        """Return the first of the keys among which are all with a hash, and the one after them."""
        above = np.uint32(key_hash & 0xFFFF_FFFF)
        first = max(int(np.searchsorted(self._fences, above)) - 1, 0) * FENCE_ROWS
        last = int(np.searchsorted(self._fences, above, side="right")) * FENCE_ROWS
        return first, min(last, self.head.key_count or 0)

    @property
    def times_at(self) -> int:
        """The position of the first store time after the head."""
        return self.head.entry_count * ENTRY_SIZE

    def runs_of(self, queue: Key, since: int) -> list[Run]:
        """Return a queue's runs in log order, of a topic that was created at log offset *since*."""
        number = self._numbers.get(queue[0])
        if number is None:
            return []
        place = number << 32 | queue[1]
        first = int(np.searchsorted(self._places, place))
        last = int(np.searchsorted(self._places, place, side="right"))
        rows = self._runs[first:last].tolist()
        return [Run(*row[2:]) for row in rows if row[4] >= since]

    def last_runs(self) -> dict[Key, Run]:
        """Return the last run of each queue."""
        topics = self.head.topics
        return {(topics[row[0]], row[1]): Run(*row[2:]) for row in self._runs.tolist()}


def key_rows(hashes: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return rows of keys, not in order."""
    above = hashes.view(np.uint32).astype(np.uint64) << np.uint64(_PLACE_BITS)
    rows: NDArray[np.uint64] = above | places.astype(np.uint64)
    return rows


def key_row(key_hash: int, place: int) -> int:
    """Return the row of a key whose record has a place in the segment."""
    return ((key_hash & 0xFFFF_FFFF) << _PLACE_BITS) + place


def fences_of(rows: NDArray[np.uint64]) -> bytes:
    """Return the fences of *rows*, which ascend."""
    return (rows[::FENCE_ROWS] >> np.uint64(_PLACE_BITS)).astype(FENCE_DTYPE).tobytes()


def places_with(rows: NDArray[np.uint64], key_hash: int) -> list[int]:
    """Return the places in the segment of records that may have a key, the latest first."""
    above = np.uint64(key_hash & 0xFFFF_FFFF)
    found = rows[rows >> np.uint64(_PLACE_BITS) == above] & np.uint64(0xFFFF_FFFF)
    places: list[int] = np.unique(found)[::-1].astype(np.int64).tolist()
    return places


def run_with(runs: Iterable[Run], offset: int) -> Run | None:
    """Return the latest of *runs* that has the message at *offset*; None: none has it."""
    return next((r for r in reversed([*runs]) if r.begin <= offset < r.end), None)


def placed(runs: Mapping[Key, Iterable[Run]]) -> dict[Key, list[Run]]:
    """Return *runs* with the places of their entries: by queue, then in log order."""
    found: dict[Key, list[Run]] = {}
    place = 0
    for queue in sorted(runs):
        for run in runs[queue]:
            found.setdefault(queue, []).append(run._replace(place=place))
            place += run.messages
    return found


def carried(
    before: Mapping[Key, Run], runs: Mapping[Key, list[Run]], is_current: Callable[[Key, Run], bool]
) -> dict[Key, list[Run]]:
    """Return *runs*, and an empty run for each other queue that stands somewhere.

    Args:
        before: The last run of each queue, in the segment before.
        runs: Those of this segment.
        is_current: Tells whether the queue is still that of an existing topic.
    """
    found = dict(runs)
    for queue, run in before.items():
        if queue not in found and is_current(queue, run):
            found[queue] = [Run(run.end, 0, run.log_offset, 0)]
    return found


def encoded(
    runs: Mapping[Key, list[Run]],
    *,
    base: int,
    size: int,
    chunk_size: int,
    segment_digests: bytes,
    side_digests: bytes,
    key_count: int | None = None,
    key_fences: bytes = b"",
) -> bytes:
    """Return the bytes of a head; *runs* have their places."""
    topics = sorted({topic for topic, _ in runs})
    numbers = {topic: number for number, topic in enumerate(topics)}
    rows = [(numbers[q[0]], q[1], *run) for q in sorted(runs) for run in runs[q]]
    return msgspec.msgpack.encode(
        Head(
            format=FORMAT,
            base=base,
            size=size,
            chunk_size=chunk_size,
            entry_count=sum(run.messages for of_one in runs.values() for run in of_one),
            segment_digests=segment_digests,
            side_digests=side_digests,
            topics=topics,
            runs=np.array(rows, _RUN_DTYPE).tobytes(),
            key_count=key_count,
            key_fences=key_fences,
        )
    )


def decoded(data: bytes) -> QueueTable:
    """Return the table with these bytes, whose digest is verified.

    Raises:
        InvalidHeadError: It is of a later version, or its parts do not fit together.
    """
    try:
        version = msgspec.msgpack.decode(data, type=dict).get("format")
        if version not in _READABLE:
            raise InvalidHeadError(f"expected format {FORMAT} or earlier, found {version}")
        return QueueTable(msgspec.msgpack.decode(data, type=Head))
    except (msgspec.DecodeError, ValueError) as error:
        if isinstance(error, InvalidHeadError):
            raise
        raise InvalidHeadError(f"it cannot be read: {error}") from error


def begin_of(table: QueueTable, queue: Key, since: int) -> int:
    """Return the queue offset with which a queue begins in the tier, by its first table.

    A queue that the first table does not know began later, and so at 0.
    """
    runs = table.runs_of(queue, since)
    return runs[0].begin if runs else 0


def segment_with(
    table_of: Callable[[int], QueueTable],
    queue: Key,
    since: int,
    offset: int,
    *,
    count: int,
    guess: int | None = None,
) -> int | None:
    """Return the index of the segment with a queue's message at *offset*; None: none has it.

    Args:
        table_of: Returns a segment's table; it may raise, and the search is then repeated.
        queue: The queue.
        since: The log offset at which its topic was created.
        offset: The queue offset.
        count: The number of segments.
        guess: An index to look at first, and the one after it.
    """

    def end_at(index: int) -> int:
        runs = table_of(index).runs_of(queue, since)
        return runs[-1].end if runs else 0

    for near in () if guess is None else (guess, guess + 1):
        if near < count and run_with(table_of(near).runs_of(queue, since), offset) is not None:
            return near
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if end_at(middle) > offset:
            high = middle
        else:
            low = middle + 1
    if low == count or run_with(table_of(low).runs_of(queue, since), offset) is None:
        return None
    return low
