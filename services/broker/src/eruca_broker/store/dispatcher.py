"""Dispatch: from the log to the consume queues and the key index.

Every record passes here once when it has become visible and once more when a projection is
rebuilt, through the same functions: that is why a rebuilt projection equals the one it replaces.

Consume queues are brought up to date at once, because a pull waits for them. The key index follows
in larger steps, up to ``INDEX_BACKLOG_MAX`` records behind: hashing keys costs less in bulk.

Source: RocketMQ 5.3, ``DefaultMessageStore.ReputMessageService``, ``CommitLogDispatcher``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eruca.contract.hashing import string_hash, tags_code
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import V1_TOPIC_SIZE_MAX
from eruca_broker.core.batch import Batch
from eruca_broker.core.consume_queue_entry import build_entries, view_entries
from eruca_broker.core.events import TopicDeleted, decode_event
from eruca_broker.core.property_hashes import (
    PropertyHashes,
    hash_properties,
    index_hashes,
    tag_and_keys,
)
from eruca_broker.core.record_columns import (
    LogBuffer,
    RecordColumns,
    TopicColumn,
    read_columns,
    strided,
)
from eruca_broker.core.scheduled import DELAYED_TOPICS, delivery_time
from eruca_broker.store.appended import Appended
from eruca_broker.store.commit_log import CommitLog
from eruca_broker.store.consume_queues import ConsumeQueues
from eruca_broker.store.key_index import KeyIndex
from eruca_broker.store.segment import Segment

Int64Array: TypeAlias = NDArray[np.int64]

INDEX_BACKLOG_MAX: Final = 2_048  # records the key index may be behind before it must catch up
_COLUMNS_COUNT_MIN: Final = 96  # records of a tick from which columns cost less than each by itself
_ENTRY: Final = struct.Struct(">qiq")
_TAGS: Final = b"TAGS\x01"
_DELETED_TAG: Final = tags_code("topic_deleted")


class Dispatcher:
    """Feeds the projections; knows how far each has come."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, index: KeyIndex) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self.queued_offset = log.min_offset  # everything before it is in the consume queues
        self.indexed_offset = log.min_offset  # everything before it is in the key index
        self._backlog: list[Int64Array | Sequence[int]] = []  # log offsets still to be indexed
        self._backlog_count = 0

    def dispatch(self, appended: Sequence[Appended], end_offset: int) -> None:
        """Make *appended*, which fill the log up to *end_offset*, visible.

        Raises:
            OSError: A projection could not be written. Repeating the call is harmless.
        """
        if appended and appended[0].log_offset < self.queued_offset:
            appended = [item for item in appended if item.log_offset >= self.queued_offset]
        count = sum(item.batch.count for item in appended)
        if count >= _COLUMNS_COUNT_MIN:
            self.catch_up_index()  # keys are indexed in the log's order
            for segment, some in groupby(appended, lambda item: self._segment_of(item.log_offset)):
                self._dispatch_columns(segment, list(some))
        else:
            self._dispatch_each(appended)
        self.queued_offset = end_offset
        if self._backlog_count >= INDEX_BACKLOG_MAX:
            self.catch_up_index()
        elif not self._backlog:
            self.indexed_offset = end_offset

    @property
    def is_index_behind(self) -> bool:
        """Whether records are visible whose keys are not indexed yet."""
        return bool(self._backlog)

    def catch_up_index(self) -> None:
        """Bring the key index up to where the consume queues are.

        Raises:
            OSError: The index could not be written; it stays behind, and the call may be repeated.
        """
        if self._backlog:
            offsets = np.concatenate([np.asarray(part, np.int64) for part in self._backlog])
            first = int(np.searchsorted(offsets, self._log.min_offset))  # what retention has left
            while first < len(offsets):
                segment = self._segment_of(int(offsets[first]))
                last = int(np.searchsorted(offsets, segment.end_offset))
                columns = read_columns(segment.buffer, offsets[first:last] - segment.base_offset)
                topics, hashes = TopicColumn.of(columns), _hashes_of(columns)
                self._put_keys(columns, segment.base_offset, topics, hashes)
                first = last
            self._backlog = []
            self._backlog_count = 0
        self.indexed_offset = self.queued_offset

    def unindexed(self) -> Iterator[int]:
        """Yield the log offsets of the records that are visible and not in the key index yet."""
        for part in reversed(self._backlog):
            yield from map(int, reversed(part))

    def rebuild(self, columns: RecordColumns, topics: TopicColumn, base_offset: int) -> None:
        """Put records found by recovery into the projections; known ones change nothing.

        Args:
            columns: Records of one segment, in log order.
            topics: Theirs.
            base_offset: Log offset of the segment's first byte.
        """
        hashes = _hashes_of(columns)
        codes = _with_delivery_times(columns, topics, hashes.tag_codes)
        is_event = topics.rows_of(EVENTS_TOPIC)
        first = 0
        for row in np.flatnonzero(is_event & (hashes.tag_codes == _DELETED_TAG)).tolist():
            # Queues of a deleted topic must not swallow records of its successor.
            self._put_entries(columns, base_offset, topics, codes, slice(first, row + 1))
            self._delete_topic_of(columns, row)
            first = row + 1
        self._put_entries(columns, base_offset, topics, codes, slice(first, None))
        self._put_keys(columns, base_offset, topics, hashes)
        end = base_offset + int(columns.starts[-1] + columns.sizes[-1])
        self.queued_offset = self.indexed_offset = end

    def _dispatch_each(self, appended: Sequence[Appended]) -> None:
        """Read each record's tag; leave the keys to the backlog."""
        runs: dict[tuple[str, int], tuple[int, list[bytes]]] = {}
        for item in appended:
            batch = item.batch
            _, parts = runs.setdefault((batch.topic, batch.queue_id), (item.queue_offset, []))
            parts.append(_entries_of(item))
        for (topic, queue_id), (first, parts) in runs.items():
            self._queues.queue(topic, queue_id).put_run(first, b"".join(parts))
        for item in appended:
            base = item.log_offset
            self._backlog.append([base + start for start in item.batch.starts])
            self._backlog_count += item.batch.count

    def _dispatch_columns(self, segment: Segment, items: Sequence[Appended]) -> None:
        """Read tags and keys of all records at once; *items* lie in one segment."""
        counts = [item.batch.count for item in items]

        def spread(values: Iterable[int], dtype: type = np.int64) -> NDArray[Any]:
            return np.repeat(np.fromiter(values, dtype, len(items)), counts)

        log_offsets = np.concatenate(
            [np.asarray(item.batch.starts, np.int64) + item.log_offset for item in items]
        )
        sizes = np.concatenate([np.asarray(item.batch.sizes, np.int64) for item in items])
        if len(items) == 1:  # its buffer is at hand; the mapping would fault page by page
            batch = items[0].batch
            buffer: LogBuffer = batch.buffer
            positions = log_offsets - items[0].log_offset + batch.start
        else:
            buffer, positions = segment.buffer, log_offsets - segment.base_offset
        body_size_at = spread(item.batch.layout.body_size for item in items)
        around = spread(_size_around(item.batch) for item in items)
        body_sizes = strided(buffer, ">i4", 4)[positions + body_size_at].astype(np.int64)
        hashes = hash_properties(
            buffer, positions + body_sizes + around, sizes - body_sizes - around
        )
        entries = build_entries(log_offsets, sizes, _codes_of(items, hashes.tag_codes))
        first = 0
        for item, count in zip(items, counts, strict=True):
            queue = self._queues.queue(item.batch.topic, item.batch.queue_id)
            queue.put_run(item.queue_offset, entries[first : first + count])
            first += count
        rows = hashes.key_rows
        prefixes = spread((_prefix_hash(item.batch.topic) for item in items), np.uint32)[rows]
        self._index.put_many(
            index_hashes(prefixes, hashes.key_hashes, hashes.key_sizes),
            log_offsets[rows],
            spread(item.store_timestamp for item in items)[rows],
        )

    def _segment_of(self, log_offset: int) -> Segment:
        segment = self._log.segment_at(log_offset)
        assert segment is not None, log_offset
        return segment

    def _put_entries(
        self,
        columns: RecordColumns,
        base_offset: int,
        topics: TopicColumn,
        codes: Int64Array,
        rows: slice,
    ) -> None:
        queued = np.arange(len(codes))[rows]
        queued = queued[columns.is_queued()[queued]]
        places = topics.numbers[queued] << 32 | columns.queue_ids[queued]
        order = queued[np.argsort(places, kind="stable")]
        offsets = columns.queue_offsets[order]
        entries = build_entries(
            columns.starts[order] + base_offset, columns.sizes[order], codes[order]
        )
        # A run: neighbours of one queue whose offsets follow each other.
        topic_numbers, queue_ids = topics.numbers[order], columns.queue_ids[order]
        breaks = np.flatnonzero(
            (np.diff(topic_numbers) != 0) | (np.diff(queue_ids) != 0) | (np.diff(offsets) != 1)
        )
        for first, last in pairwise([0, *(breaks + 1).tolist(), len(order)]):
            if first < last:
                topic = topics.names[int(topic_numbers[first])]
                queue = self._queues.queue(topic, int(queue_ids[first]))
                queue.put_run(int(offsets[first]), entries[first:last])

    def _put_keys(
        self,
        columns: RecordColumns,
        base_offset: int,
        topics: TopicColumn,
        hashes: PropertyHashes,
    ) -> None:
        chosen = columns.is_indexed()[hashes.key_rows]
        rows = hashes.key_rows[chosen]
        prefixes = np.array([_prefix_hash(name) for name in topics.names], np.uint32)
        self._index.put_many(
            index_hashes(
                prefixes[topics.numbers[rows]], hashes.key_hashes[chosen], hashes.key_sizes[chosen]
            ),
            columns.starts[rows] + base_offset,
            columns.store_timestamps[rows],
        )

    def _delete_topic_of(self, columns: RecordColumns, row: int) -> None:
        start = int(columns.body_starts[row])
        event = decode_event(
            bytes(memoryview(columns.buffer)[start : start + int(columns.body_sizes[row])])
        )
        if isinstance(event, TopicDeleted):
            self._queues.delete_topic(event.topic)


def _hashes_of(columns: RecordColumns) -> PropertyHashes:
    return hash_properties(columns.buffer, columns.properties_starts, columns.properties_sizes)


def keyed_offsets(columns: RecordColumns, base_offset: int) -> list[int]:
    """Return the log offsets of the records that have keys to be indexed, ascending."""
    rows = np.unique(_hashes_of(columns).key_rows)
    offsets: list[int] = (columns.starts[rows[columns.is_indexed()[rows]]] + base_offset).tolist()
    return offsets


def _entries_of(item: Appended) -> bytes:
    """Return the consume-queue entries of a small batch."""
    batch = item.batch
    position = batch.start
    log_offset = item.log_offset
    buffer, body_size_at = batch.buffer, batch.layout.body_size
    after_topic = _size_around(batch)
    entries = []
    is_delayed = batch.topic in DELAYED_TOPICS
    for size in batch.sizes:
        body_size = int.from_bytes(buffer[position + body_size_at : position + body_size_at + 4])
        properties = bytes(buffer[position + after_topic + body_size : position + size])
        code = _tag_code(properties)
        if is_delayed:
            code = _time_or(code, batch.topic, properties, item.store_timestamp)
        entries.append(_ENTRY.pack(log_offset, size, code))
        position += size
        log_offset += size
    return b"".join(entries)


def _size_around(batch: Batch) -> int:
    """Return the bytes of a record in front of its properties, its body left out."""
    topic_head_size = 2 if len(batch.topic) > V1_TOPIC_SIZE_MAX else 1
    return batch.layout.body + topic_head_size + len(batch.topic) + 2


def _tag_code(properties: bytes) -> int:
    found = properties.find(_TAGS)
    if found < 0:
        return 0
    if found == 0 and properties.find(_TAGS, 1) < 0:
        return _code_of(properties[len(_TAGS) : properties.find(b"\x02")])
    tag, _ = tag_and_keys(properties)
    return tags_code(tag) if tag else 0


@lru_cache(maxsize=4096)
def _code_of(tag: bytes) -> int:
    return tags_code(tag.decode("utf-8", "replace"))


@lru_cache(maxsize=4096)
def _prefix_hash(topic: str) -> int:
    return string_hash(f"{topic}#") & 0xFFFF_FFFF


def _with_delivery_times(
    columns: RecordColumns, topics: TopicColumn, codes: Int64Array
) -> Int64Array:
    """Replace tag codes by delivery times in the topics where messages wait."""
    changed = codes
    view = memoryview(columns.buffer)
    for topic in DELAYED_TOPICS:
        for row in np.flatnonzero(topics.rows_of(topic)).tolist():
            start = int(columns.properties_starts[row])
            properties = bytes(view[start : start + int(columns.properties_sizes[row])])
            changed = changed.copy() if changed is codes else changed
            stored_at = int(columns.store_timestamps[row])
            changed[row] = _time_or(int(codes[row]), topic, properties, stored_at)
    return changed


def _codes_of(items: Sequence[Appended], codes: Int64Array) -> Int64Array:
    """Return what the entries of *items* hold behind offset and size, given their tags' codes."""
    if DELAYED_TOPICS.isdisjoint(item.batch.topic for item in items):
        return codes
    changed, row = codes.copy(), 0
    for item in items:
        end = row + item.batch.count
        if item.batch.topic in DELAYED_TOPICS:
            changed[row:end] = view_entries(_entries_of(item))["tags_code"]
        row = end
    return changed


def _time_or(code: int, topic: str, properties: bytes, stored_at_ms: int) -> int:
    time = delivery_time(topic, properties, stored_at_ms)
    return code if time is None else time
