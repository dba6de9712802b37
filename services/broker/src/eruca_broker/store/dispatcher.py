"""Dispatch: from the log to the consume queues and the key index.

Every record passes here once when it has become visible and once more when a projection is
rebuilt, through the same functions: that is why a rebuilt projection equals the one it replaces.

Consume queues are brought up to date at once, because a pull waits for them. The key index follows
in larger steps, up to ``INDEX_BACKLOG_MAX`` records behind: hashing keys costs less in bulk. Until
then their properties are kept, so that the log need not be read again.

A file that cannot be written holds up nothing but itself: its queue, or the index, is noted as
lagging (:mod:`.queues.lagging`), passed over from then on, and catches up from the log.

Source: RocketMQ 5.3, ``DefaultMessageStore.ReputMessageService``, ``CommitLogDispatcher``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eruca.contract.hashing import tags_code
from eruca.contract.names import EVENTS_TOPIC
from eruca.core.messages.record_columns import RecordColumns, TopicColumn
from eruca_broker.core.batches.batch_columns import LooseTexts
from eruca_broker.core.consume_queue_entry import (
    ENTRY,
    Entries,
    build_entries,
    encode_entry,
    view_entries,
)
from eruca_broker.core.index.backlog import KeyBacklog, Many, One, prefix_hash
from eruca_broker.core.log.recovery import MAX_OFFSET, walk
from eruca_broker.core.properties.hashes import (
    PropertyHashes,
    hash_properties,
    hash_texts,
    index_hashes,
    tag_and_keys,
)
from eruca_broker.core.properties.shapes import AlikeTexts, tag_codes
from eruca_broker.core.records.scheduled import DELAYED_TOPICS, delivery_time
from eruca_broker.core.state.events import EVENTS_QUEUE_ID, TopicDeleted, decode_event
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.lagging import KEY_INDEX, Key, Lag, ProjectionError
from eruca_broker.store.queues.queue_files import DamagedQueueError

Int64Array: TypeAlias = NDArray[np.int64]

INDEX_BACKLOG_MAX: Final = 2_048  # records the key index may be behind before it must catch up
INDEX_BACKLOG_SIZE_MAX: Final = 2 * 1024 * 1024  # … and bytes of their properties, in memory
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
        self.lagging: dict[Key, Lag] = {}  # what could not be written; see KEY_INDEX
        self._backlog = KeyBacklog()
        self._waiting: list[bytes] = []  # entries of messages that wait for their time

    def dispatch(
        self, appended: Sequence[Appended], end_offset: int
    ) -> Sequence[tuple[Key, ProjectionError]]:
        """Make *appended*, which fill the log up to *end_offset*, visible.

        Their keys are kept for the index, which may be behind; see :meth:`bound_backlog`.

        Returns:
            The queues that could not be written now, and why; they lag from here on.
        """
        runs: dict[Key, tuple[int, list[bytes]]] = {}  # by queue
        keyed: list[list[One] | Many] = []
        each: list[One] | None = None  # the last of keyed, if it is a list
        for item in appended:
            batch = item.batch
            queue = batch.topic, batch.queue_id
            _, entries = runs.setdefault(queue, (item.queue_offset, []))
            if isinstance(batch.texts, list):
                if each is None:
                    each = []
                    keyed.append(each)
                each += _take_each(item, batch.texts, entries)
            else:
                each = None
                keyed.append(_take_all(item, batch.texts, entries))
        failed = []
        for key, (first, entries) in runs.items():
            run = b"".join(entries)
            if key[0] in DELAYED_TOPICS:
                self._waiting.append(run)
            if key in self.lagging:
                continue
            try:
                self._queues.queue(*key).put_run(first, run)
            except (OSError, DamagedQueueError) as error:
                self.lagging[key] = Lag(ENTRY.unpack_from(run)[0], error)
                failed.append((key, error))
        if not self.is_index_lagging:
            self._backlog.add(keyed)
        self.queued_offset = end_offset
        if not self._backlog.count and not self.is_index_lagging:
            self.indexed_offset = end_offset
        return failed

    def take_waiting(self) -> Entries | None:
        """Return the entries of messages that wait for their time, dispatched since the last call.

        None where there are none, as mostly. They come from memory: a queue's file may be slow to
        read, or not readable at all.
        """
        if not self._waiting:
            return None
        taken, self._waiting = self._waiting, []
        return view_entries(b"".join(taken))

    def forget_topic(self, topic: str) -> None:
        """Let a deleted topic's queues lag no more: there is nothing they lack."""
        for key in [key for key in self.lagging if key[0] == topic]:
            del self.lagging[key]

    @property
    def lacking_from(self) -> int:
        """Log offset of the first record that a lagging queue or the lagging index lacks."""
        return min((lag.log_offset for lag in self.lagging.values()), default=self.queued_offset)

    def catch_up(self) -> Iterator[None]:
        """Give lagging projections what they lack, from the log; pauses between stretches of it.

        What comes during a pause is part of it. What still cannot be written goes on lagging.
        """
        failed: dict[Key, Lag] = {}
        position = self.lacking_from
        while position < self.queued_offset and self.lagging.keys() - failed.keys():
            segment = self._log.segment_at(position)
            assert segment is not None  # retention leaves what something lacks
            base, begun = segment.base_offset, position
            stretch = memoryview(segment.buffer)[: self.queued_offset - base]
            for step in walk(stretch, position - base, base):
                if step.columns is not None:
                    self._put_lacking(step.columns, step.topics, base, failed)
                position = segment.end_offset if step.is_full else base + step.end
                yield
            if position == begun:  # a damaged record, which only a start can judge
                return
        for key in list(self.lagging):
            if key in failed:
                # A topic deleted and made anew meanwhile may lag, too: from later on.
                if failed[key].log_offset > self.lagging[key].log_offset:
                    self.lagging[key] = failed[key]
            elif position >= self.queued_offset:
                del self.lagging[key]
        if KEY_INDEX not in self.lagging and not self._backlog.count:
            self.indexed_offset = self.queued_offset

    def bound_backlog(self) -> None:
        """Bring the key index up to date where it is as far behind as it may be.

        Raises:
            OSError: The index could not be written; nothing else is concerned.
        """
        backlog = self._backlog
        if backlog.count >= INDEX_BACKLOG_MAX or backlog.size >= INDEX_BACKLOG_SIZE_MAX:
            self.catch_up_index()

    @property
    def is_index_behind(self) -> bool:
        """Whether records are visible whose keys are not indexed yet."""
        return self._backlog.count > 0

    @property
    def is_index_lagging(self) -> bool:
        """Whether the key index catches up from the log, which :meth:`catch_up` sees to."""
        return KEY_INDEX in self.lagging

    def catch_up_index(self) -> None:
        """Bring the key index up to where the consume queues are.

        Raises:
            OSError: The index could not be written; it stays behind, and the call may be repeated.
        """
        if self.is_index_lagging:
            return
        if self._backlog.count:
            hashes, log_offsets, timestamps = self._backlog.entries()
            first = int(np.searchsorted(log_offsets, self._log.min_offset))  # what retention left
            self._index.put_many(hashes[first:], log_offsets[first:], timestamps[first:])
            self._backlog.clear()
        self.indexed_offset = self.queued_offset

    def let_index_lag(self, error: OSError) -> None:
        """Let the key index, which could not be written, catch up from the log some time."""
        left = max(self.indexed_offset, self._log.min_offset)  # by retention
        self.lagging[KEY_INDEX] = Lag(left, error)
        self._backlog.clear()

    def unindexed(self) -> Iterator[int]:
        """Return the log offsets of the visible records not in the key index yet, descending."""
        return self._backlog.newest_first()

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
        foreign_end = self._foreign_end()
        if is_event.any():
            foreign_end = min(foreign_end, base_offset + int(columns.starts[is_event][0]))
        first = 0
        for row in np.flatnonzero(is_event & (hashes.tag_codes == _DELETED_TAG)).tolist():
            # Queues of a deleted topic must not swallow records of its successor.
            rows = slice(first, row + 1)
            self._put_entries(columns, base_offset, topics, codes, rows, foreign_end=foreign_end)
            self._delete_topic_of(columns, row)
            first = row + 1
        rows = slice(first, None)
        self._put_entries(columns, base_offset, topics, codes, rows, foreign_end=foreign_end)
        self._put_keys(columns, base_offset, topics, hashes)
        end = base_offset + int(columns.starts[-1] + columns.sizes[-1])
        self.queued_offset = self.indexed_offset = end

    def _put_entries(
        self,
        columns: RecordColumns,
        base_offset: int,
        topics: TopicColumn,
        codes: Int64Array,
        rows: slice,
        *,
        foreign_end: int,
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
                key = topics.names[int(topic_numbers[first])], int(queue_ids[first])
                queue, log_offset = self._queues.queue(*key), int(entries["log_offset"][first])
                is_first = not offsets[first] and log_offset < foreign_end
                if is_first and 0 < queue.max_physical_offset <= log_offset:
                    self._queues.delete(*key)
                    queue = self._queues.queue(*key)
                queue.put_run(int(offsets[first]), entries[first:last])

    def _foreign_end(self) -> int:
        """Return the log offset of the first event in the queues: what precedes it RocketMQ wrote.

        In what it wrote a queue may begin anew: that a topic was deleted no record there says.
        """
        events = self._queues.existing(EVENTS_TOPIC, EVENTS_QUEUE_ID)
        if events is None or not events.max_offset:
            return MAX_OFFSET
        return 0 if events.min_offset else events.entry(0).log_offset

    def _put_lacking(
        self, columns: RecordColumns, topics: TopicColumn, base_offset: int, failed: dict[Key, Lag]
    ) -> None:
        """Give each lagging projection what it lacks of *columns*; note in *failed* who cannot."""
        hashes = _hashes_of(columns)
        codes = _with_delivery_times(columns, topics, hashes.tag_codes)
        log_offsets = columns.starts + base_offset
        for key in self.lagging.keys() - failed.keys():
            lag = self.lagging[key]
            try:
                if key == KEY_INDEX:
                    self._put_keys(columns, base_offset, topics, hashes)
                elif key[0] in topics.names:
                    is_its = topics.rows_of(key[0]) & (columns.queue_ids == key[1])
                    is_lacking = is_its & columns.is_queued() & (log_offsets >= lag.log_offset)
                    if is_lacking.any():
                        first = columns.queue_offsets[is_lacking].item(0)
                        entries = build_entries(
                            log_offsets[is_lacking], columns.sizes[is_lacking], codes[is_lacking]
                        )
                        self._queues.queue(*key).put_run(first, entries)
            except (OSError, DamagedQueueError) as error:
                failed[key] = Lag(max(lag.log_offset, log_offsets.item(0)), error)

    def _put_keys(
        self,
        columns: RecordColumns,
        base_offset: int,
        topics: TopicColumn,
        hashes: PropertyHashes,
    ) -> None:
        chosen = columns.is_indexed()[hashes.key_rows]
        rows = hashes.key_rows[chosen]
        prefixes = np.array([prefix_hash(name) for name in topics.names], np.uint32)
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


def _take_each(item: Appended, texts: Sequence[bytes], entries: list[bytes]) -> list[One]:
    """Add a small batch's entries to its queue's; return what the key index needs of it."""
    records: list[One] = []
    topic, stored_at, log_offset = item.batch.topic, item.store_timestamp, item.log_offset
    for text, size in zip(texts, item.batch.sizes, strict=True):
        code = _tag_code(text)
        if topic in DELAYED_TOPICS:
            code = _time_or(code, topic, text, stored_at)
        records.append((topic, stored_at, log_offset, text))
        entries.append(encode_entry(log_offset, size, code))
        log_offset += size
    return records


def _take_all(item: Appended, texts: AlikeTexts | LooseTexts, entries: list[bytes]) -> Many:
    """Add a large batch's entries to its queue's; return what the key index needs of it."""
    batch = item.batch
    if batch.record_size:
        end = item.log_offset + batch.size
        log_offsets = np.arange(item.log_offset, end, batch.record_size)
    else:
        log_offsets = np.asarray(batch.starts) + item.log_offset
    codes: Int64Array | int
    keys: AlikeTexts | PropertyHashes
    if isinstance(texts, LooseTexts):
        keys = hash_properties(batch.buffer, *texts)
        codes = keys.tag_codes
    elif texts.shape is None:
        keys = hash_texts(texts)
        codes = keys.tag_codes
    else:
        keys = texts.copy()  # the batch's buffer is not to be kept
        codes = tag_codes(texts, texts.shape)
    entries.append(build_entries(log_offsets, batch.record_size or batch.sizes, codes).tobytes())
    return Many(batch.topic, item.store_timestamp, log_offsets, keys)


def _tag_code(properties: bytes) -> int:
    found = properties.find(_TAGS)
    if found < 0:
        return 0
    if found == 0 and properties.find(_TAGS, 1) < 0:
        value, _, _ = properties[len(_TAGS) :].partition(b"\x02")  # the last one needs none
        return _code_of(value)
    tag, _ = tag_and_keys(properties)
    return tags_code(tag) if tag else 0


@lru_cache(maxsize=4096)
def _code_of(tag: bytes) -> int:
    return tags_code(tag.decode("utf-8", "replace"))


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


def _time_or(code: int, topic: str, properties: bytes, stored_at_ms: int) -> int:
    time = delivery_time(topic, properties, stored_at_ms)
    return code if time is None else time
