"""Dispatch: from the log to the consume queues and the key index.

Every record passes here once it is visible, and again when a projection is rebuilt, through the
same functions. So a rebuilt projection equals the one it replaces.

Consume queues are updated at once, since pulls wait for them. The key index follows in larger
steps, up to ``INDEX_BACKLOG_MAX`` records behind: adding keys in bulk is cheaper. Until then their
hashes are kept, so that the log need not be read again.

A file that cannot be written delays only itself. Its queue, or the index, is marked as lagging
(:mod:`eruca_broker.store.queues.lagging`) and skipped from then on. It catches up from the log.

Source: RocketMQ 5.3, ``DefaultMessageStore.ReputMessageService``, ``CommitLogDispatcher``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from eruca.contract.hashing import tags_code
from eruca.contract.names import EVENTS_TOPIC, SCHEDULE_TOPIC
from eruca.core.messages.record_columns import Int64Array, RecordColumns, TopicColumn
from eruca_broker.core.consume_queue_entry import (
    ENTRY,
    Entries,
    build_entries,
    log_ends,
    view_entries,
)
from eruca_broker.core.index.backlog import KeyBacklog
from eruca_broker.core.log.recovery import MAX_OFFSET, walk
from eruca_broker.core.native.library import address_of, enter_times
from eruca_broker.core.properties.found import KEY_DTYPE, FoundProperties, Keys, find_properties
from eruca_broker.core.records.scheduled import DELAYED_TOPICS, delivery_time
from eruca_broker.core.state.events import EVENTS_QUEUE_ID, TopicDeleted, decode_event
from eruca_broker.store.files.refusals import is_scarcity
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.queues.consume_queues import ConsumeQueues, QueueEnd
from eruca_broker.store.queues.lagging import KEY_INDEX, Key, Lag, ProjectionError
from eruca_broker.store.queues.queue_files import DamagedQueueError, MisplacedRecordError

INDEX_BACKLOG_MAX: Final = 2_048  # records that the key index may be behind
INDEX_BACKLOG_SIZE_MAX: Final = 2 * 1024 * 1024  # … and bytes of their keys, in memory
_KEPT_RECORDS_MAX: Final = 65_536  # records whose keys a start on a full disk keeps in memory
_DELETED_TAG: Final = tags_code("topic_deleted")


class Dispatcher:
    """Feeds the projections, and knows the progress of each."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, index: KeyIndex) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        # Everything before it is in the consume queues, but for what the lagging ones lack.
        self.queued_offset = log.min_offset
        # Everything before it is in the key index, which never leads the queues.
        self.indexed_offset = log.min_offset
        self.lagging: dict[Key, Lag] = {}  # projections that could not be written; see KEY_INDEX
        self._backlog = KeyBacklog()
        self._trusted_to = 0  # log offset up to which a start takes the queues to be complete
        self._noted_ends: dict[Key, QueueEnd] = {}  # of queues with records walked up to there …
        self._walked_ends: dict[Key, QueueEnd] = {}  # … which the walk must find as well
        self.rebuilding: dict[Key, int] = {}  # damaged queues, and their earlier end offsets
        self.rebuilt_count = 0  # queues whose rebuild has begun since the start
        self.shortage: OSError | None = None  # why keys could not be indexed at the start
        self._kept_to = -1  # log offset of the last record whose keys are therefore kept
        self._waiting: list[bytes] = []  # entries of messages that wait for their time

    def dispatch(
        self, appended: Sequence[Appended], end_offset: int
    ) -> Sequence[tuple[Key, ProjectionError]]:
        """Make *appended*, which fill the log up to *end_offset*, visible.

        Their keys are kept for the index, which may be behind; see :meth:`bound_backlog`.

        Returns:
            The queues that could not be written now, and why; they lag from here on.
        """
        assert self.queued_offset <= appended[0].log_offset < end_offset, "dispatched twice"
        runs: dict[Key, tuple[int, list[bytearray]]] = {}  # by queue
        failed: list[tuple[Key, ProjectionError]] = []
        for item in appended:
            queue = item.batch.topic, item.batch.queue_id
            if queue[0] in DELAYED_TOPICS:
                timed_entries(item)
            if item.is_foreign:
                self._dispatch_foreign(queue, item, failed)
            elif item.entries:
                _, entries = runs.setdefault(queue, (item.queue_offset, []))
                entries.append(item.entries)
            if not self.is_index_lagging:
                self._backlog.add(
                    *(item.batch.count, item.batch.found.keys),
                    *(item.log_offset, item.store_timestamp),
                )
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
        self.queued_offset = end_offset
        if not self._backlog.count and not self.is_index_lagging:
            self.indexed_offset = end_offset
        return failed

    def _dispatch_foreign(
        self, key: Key, item: Appended, failed: list[tuple[Key, ProjectionError]]
    ) -> None:
        """Put RocketMQ's records into their queue as a start does.

        None of them sets a timer: the snapshot behind them knows which messages still wait.
        """
        if not item.entries or key in self.lagging:
            return
        try:
            self._put_run(key, item.queue_offset, view_entries(item.entries), MAX_OFFSET)
        except (OSError, DamagedQueueError) as error:
            self.lagging[key] = Lag(item.log_offset, error)
            failed.append((key, error))

    def take_waiting(self) -> Entries | None:
        """Return the entries of delayed messages dispatched since the last call; None if none.

        They come from memory: a queue's file may be slow to read, or unreadable.
        """
        if not self._waiting:
            return None
        taken, self._waiting = self._waiting, []
        return view_entries(b"".join(taken))

    def forget_topic(self, topic: str) -> None:
        """Stop tracking a deleted topic's lagging queues: they lack nothing any more."""
        for key in [key for key in self.lagging if key[0] == topic]:
            del self.lagging[key]
            self.rebuilding.pop(key, None)

    def rebuild_damaged(self, begin_of: Callable[[str], int]) -> None:
        """Delete the queues found damaged; they lag from their beginning on.

        Args:
            begin_of: Returns the log offset from which a topic's records count.
        """
        for key, fault in list(self._queues.damaged.items()):
            self.rebuilt_count += 1
            self.rebuilding[key] = self._queues.noted_end(*key)
            first = max(begin_of(key[0]), self._log.min_offset)
            self._queues.delete(*key)
            self.lagging[key] = Lag(first, DamagedQueueError(f"it is being rebuilt: {fault}"))

    def rebuild_index(self, name: str) -> None:
        """Let the key index, of which file *name* was dropped, add that file's records again."""
        first = max(self._index.resume_offset or 0, self._log.min_offset)
        lag = self.lagging.get(KEY_INDEX)
        if lag is None or first < lag.log_offset:
            error = OSError(errno.EIO, f"its file {name} is damaged, and is being rebuilt")
            self.lagging[KEY_INDEX] = Lag(first, error)
        self._backlog.clear()

    @property
    def lacking_from(self) -> int:
        """Log offset of the first record that a lagging queue or the lagging index lacks."""
        found = min((lag.log_offset for lag in self.lagging.values()), default=self.queued_offset)
        assert found <= self.queued_offset, "what is not visible cannot be lacking"
        return found

    def catch_up(self) -> Iterator[None]:
        """Add the records that lagging projections lack; pause between stretches of the log.

        Records that arrive during a pause are included. A failed write leaves the lag in place.
        """
        failed: dict[Key, Lag] = {}
        position = self.lacking_from
        while position < self.queued_offset and self.lagging.keys() - failed.keys():
            segment = self._log.segment_at(position)
            assert segment is not None  # retention keeps records that a projection lacks
            base, begun = segment.base_offset, position
            stretch = memoryview(segment.buffer)[: self.queued_offset - base]
            for step in walk(stretch, position - base, base):
                if step.columns is not None:
                    self._put_lacking(step.columns, step.topics, base, failed)
                position = segment.end_offset if step.is_full else base + step.end
                yield
            if position == begun:  # a damaged record, which only a start can handle
                return
        for key in list(self.lagging):
            if key in failed:
                # A topic deleted and created again meanwhile may lag, too, from a later offset.
                if failed[key].log_offset > self.lagging[key].log_offset:
                    self.lagging[key] = failed[key]
            elif position >= self.queued_offset:
                end = self.rebuilding.pop(key, 0)
                queue = self._queues.queue(*key) if end else None
                if queue is not None and queue.max_offset < end:
                    queue.begin(end)  # all its records have expired
                del self.lagging[key]
        if KEY_INDEX not in self.lagging and not self._backlog.count:
            self.indexed_offset = self.queued_offset

    def bound_backlog(self) -> None:
        """Update the key index if it has reached its maximum backlog.

        Raises:
            OSError: The index could not be written; nothing else is affected.
        """
        backlog = self._backlog
        if backlog.count >= INDEX_BACKLOG_MAX or backlog.size >= INDEX_BACKLOG_SIZE_MAX:
            self.catch_up_index()

    @property
    def is_index_behind(self) -> bool:
        """True while there are visible records whose keys are not indexed yet."""
        return self._backlog.count > 0

    @property
    def is_index_lagging(self) -> bool:
        """True while the key index catches up from the log, by :meth:`catch_up`."""
        return KEY_INDEX in self.lagging

    def catch_up_index(self) -> None:
        """Update the key index up to the offset of the consume queues.

        Raises:
            OSError: The index could not be written; it stays behind, and the call may be repeated.
        """
        if self.is_index_lagging:
            return
        if self._backlog.count:
            hashes, log_offsets, timestamps = self._backlog.entries()
            first = int(np.searchsorted(log_offsets, self._log.min_offset))  # not deleted yet
            self._index.put_many(hashes[first:], log_offsets[first:], timestamps[first:])
            self._backlog.clear()
        self.indexed_offset = self.queued_offset

    def let_index_lag(self, error: OSError) -> None:
        """Let the key index, which could not be written, catch up from the log later."""
        left = max(self.indexed_offset, self._log.min_offset)  # the rest is deleted
        self.lagging[KEY_INDEX] = Lag(left, error)
        self._backlog.clear()

    def unindexed(self) -> Iterator[int]:
        """Return the log offsets of the visible records not in the key index yet, descending."""
        return self._backlog.newest_first()

    def trust_queues(self, trusted_to: int, walked_from: int) -> None:
        """Take the queues to be complete up to log offset *trusted_to*, as their marks say.

        The walk, which begins at *walked_from*, adds none of these records to them, and compares
        the queues' ends with the marks once: see :meth:`end_trust`. 0 trusts no queue.
        """
        self._trusted_to = trusted_to
        self._noted_ends = self._queues.noted_ends(walked_from) if trusted_to else {}
        self._walked_ends = {}

    def end_trust(self) -> None:
        """Compare the ends of the trusted queues with the records that were walked.

        Raises:
            DamagedQueueError: They differ: the marks are not those of this log.
        """
        walked, noted = self._walked_ends, self._noted_ends
        self.trust_queues(0, 0)
        for key in walked.keys() | noted.keys():
            if walked.get(key) != noted.get(key):
                raise DamagedQueueError(
                    f"{key[0]}/{key[1]}: expected the end {noted.get(key)} of the last checkpoint,"
                    f" found {walked.get(key)} in the log"
                )

    def rebuild(self, columns: RecordColumns, topics: TopicColumn, base_offset: int) -> None:
        """Put records found by recovery into the projections; known records change nothing.

        Args:
            columns: Records of one segment, in log order.
            topics: Their topics.
            base_offset: Log offset of the segment's first byte.

        Raises:
            DamagedQueueError: A queue and the records contradict each other.
        """
        found = _found_in(columns, topics)
        tag_codes = found.tag_codes
        codes = _with_delivery_times(columns, topics, tag_codes)
        is_event = topics.rows_of(EVENTS_TOPIC)
        foreign_end = self._foreign_end()
        if is_event.any():
            foreign_end = min(foreign_end, base_offset + int(columns.starts[is_event][0]))
        trusted = int(np.searchsorted(columns.starts, self._trusted_to - base_offset))
        is_queued = columns.is_queued()
        # A deleted topic's queues must not take records of its successor.
        ends = set((np.flatnonzero(is_event & (tag_codes == _DELETED_TAG)) + 1).tolist())
        bounds = sorted({0, trusted, len(columns.starts), *ends})
        for first, last in pairwise(bounds):
            if first == trusted and self._trusted_to:
                self.end_trust()
            rows = np.flatnonzero(is_queued[first:last]) + first
            for key, queue_offset, entries, _ in _runs(columns, base_offset, topics, codes, rows):
                if last <= trusted:
                    self._note_walked(key, queue_offset, entries)
                else:
                    self._put_run(key, queue_offset, entries, foreign_end)
            if last in ends:
                self._delete_topic_of(columns, last - 1, is_trusted=last <= trusted)
        end = base_offset + int(columns.starts[-1] + columns.sizes[-1])
        if not self.is_index_lagging:
            try:
                self.catch_up_index()
                self._put_keys(columns, base_offset, found)
                self.indexed_offset = end
            except OSError as error:
                if not is_scarcity(error):
                    raise
                self._keep_keys(columns, base_offset, found, error)
        self.queued_offset = end

    def end_start(self, end_offset: int) -> None:
        """Record that the log ends at *end_offset*, and that the queues have all of it."""
        self.queued_offset = end_offset
        if not self.is_index_behind and not self.is_index_lagging:
            self.indexed_offset = end_offset
            return
        self.indexed_offset = min(self.indexed_offset, end_offset)
        lag = self.lagging.get(KEY_INDEX)
        if self._backlog.last_offset >= end_offset or (lag and lag.log_offset > end_offset):
            # A torn group was cut off, after keys of its records had been kept.
            assert self.shortage is not None, "only a start on a full disk keeps keys"
            self.let_index_lag(self.shortage)

    def _put_run(self, key: Key, first: int, entries: Entries, foreign_end: int) -> None:
        """Put *entries* of consecutive queue offsets from *first* on into a queue."""
        queue, log_offset = self._queues.queue(*key), int(entries["log_offset"][0])
        is_foreign = log_offset < foreign_end
        if not first and is_foreign and 0 < queue.max_physical_offset <= log_offset:
            self._queues.delete(*key)
            queue = self._queues.queue(*key)
        queue.put_run(first, entries, may_repeat=is_foreign)

    def _note_walked(self, key: Key, first: int, entries: Entries) -> None:
        """Note the end of a trusted queue, to which *entries* belong.

        Raises:
            MisplacedRecordError: They do not follow each other.
        """
        known = self._walked_ends.get(key)
        if first and known is not None and known.max_offset != first:  # RocketMQ begins again at 0
            log_offset = int(entries["log_offset"][0])
            raise MisplacedRecordError(
                f"{key[0]}/{key[1]}: expected queue offset {known.max_offset}, found {first} in the"
                f" record at {log_offset}",
                log_offset,
            )
        self._walked_ends[key] = QueueEnd(first + len(entries), int(log_ends(entries[-1:])[0]))

    def _foreign_end(self) -> int:
        """Return the log offset of the first event in the queues; RocketMQ wrote all before it.

        There a queue may start again at a lower offset: no record reports a topic's deletion.
        """
        events = self._queues.existing(EVENTS_TOPIC, EVENTS_QUEUE_ID)
        if events is None or not events.max_offset:
            return MAX_OFFSET
        return 0 if events.min_offset else events.entry(0).log_offset

    def _put_lacking(
        self, columns: RecordColumns, topics: TopicColumn, base_offset: int, failed: dict[Key, Lag]
    ) -> None:
        """Add to each lagging projection what it lacks of *columns*; put failures in *failed*."""
        found = _found_in(columns, topics)
        codes = _with_delivery_times(columns, topics, found.tag_codes)
        log_offsets = columns.starts + base_offset
        for key in self.lagging.keys() - failed.keys():
            lag = self.lagging[key]
            try:
                if key == KEY_INDEX:
                    self._put_keys(columns, base_offset, found)
                elif key[0] in topics.names:
                    is_its = topics.rows_of(key[0]) & (columns.queue_ids == key[1])
                    is_lacking = is_its & columns.is_queued() & (log_offsets >= lag.log_offset)
                    rows = np.flatnonzero(is_lacking)
                    for run in _runs(columns, base_offset, topics, codes, rows):
                        self._put_run(run.key, run.first, run.entries, self._foreign_end())
            except (OSError, DamagedQueueError) as error:
                failed[key] = Lag(max(lag.log_offset, log_offsets.item(0)), error)

    def _put_keys(self, columns: RecordColumns, base_offset: int, found: FoundProperties) -> None:
        keys = _indexed_keys(columns, found)
        rows = keys["record"]
        self._index.put_many(
            keys["hash"].astype(np.int32),
            columns.starts[rows] + base_offset,
            columns.store_timestamps[rows],
        )

    def _keep_keys(
        self, columns: RecordColumns, base_offset: int, found: FoundProperties, error: OSError
    ) -> None:
        """Keep keys of a start on a full disk in memory, up to a bound; leave others in the log."""
        self.shortage = error.with_traceback(None)
        keys = _indexed_keys(columns, found)
        known_to = max(self._index.end_offset, self._kept_to)  # a log may be walked twice
        keys = keys[columns.starts[keys["record"]] + base_offset > known_to]
        rows, firsts = np.unique(keys["record"], return_index=True)
        if self._backlog.count + len(rows) > _KEPT_RECORDS_MAX:
            self.let_index_lag(error)
            return
        for row, its in zip(rows.tolist(), np.split(keys, firsts[1:]), strict=False):
            of_one = its.copy()
            of_one["record"] = 0  # the record's position relative to itself
            place = base_offset + int(columns.starts[row])
            self._backlog.add(1, of_one.tobytes(), place, int(columns.store_timestamps[row]))
            self._kept_to = place

    def _delete_topic_of(self, columns: RecordColumns, row: int, *, is_trusted: bool) -> None:
        """Delete the queues of the topic whose deletion is in *row*.

        A trusted queue is its successor's, or does not exist: only what was walked is forgotten.
        """
        start = int(columns.body_starts[row])
        event = decode_event(
            bytes(memoryview(columns.buffer)[start : start + int(columns.body_sizes[row])])
        )
        if not isinstance(event, TopicDeleted):
            return
        if is_trusted:
            for key in [key for key in self._walked_ends if key[0] == event.topic]:
                del self._walked_ends[key]
        else:
            self._queues.delete_topic(event.topic)


class QueueRun(NamedTuple):
    """Messages of one queue with consecutive offsets, in log order."""

    key: Key
    first: int  # queue offset of the first one
    entries: Entries
    rows: Int64Array  # of the columns


def queue_runs(columns: RecordColumns, topics: TopicColumn, base_offset: int) -> Iterator[QueueRun]:
    """Yield the entries that a dispatch of these records puts into the consume queues."""
    codes = _with_delivery_times(columns, topics, _found_in(columns, topics).tag_codes)
    yield from _runs(columns, base_offset, topics, codes, np.flatnonzero(columns.is_queued()))


def _runs(
    columns: RecordColumns,
    base_offset: int,
    topics: TopicColumn,
    codes: Int64Array,
    rows: Int64Array,
) -> Iterator[QueueRun]:
    """Yield the entries of *rows* as runs: neighbours in one queue with consecutive offsets."""
    places = topics.numbers[rows] << 32 | columns.queue_ids[rows]
    order = rows[np.argsort(places, kind="stable")]
    offsets = columns.queue_offsets[order]
    entries = build_entries(columns.starts[order] + base_offset, columns.sizes[order], codes[order])
    topic_numbers, queue_ids = topics.numbers[order], columns.queue_ids[order]
    breaks = np.flatnonzero(
        (np.diff(topic_numbers) != 0) | (np.diff(queue_ids) != 0) | (np.diff(offsets) != 1)
    )
    for first, last in pairwise([0, *(breaks + 1).tolist(), len(order)]):
        if first < last:
            key = topics.names[int(topic_numbers[first])], int(queue_ids[first])
            yield QueueRun(key, int(offsets[first]), entries[first:last], order[first:last])


def _found_in(columns: RecordColumns, topics: TopicColumn) -> FoundProperties:
    """Return the records' tag codes and keys; keys belong to rows."""
    return find_properties(
        columns.buffer, columns.properties_starts, columns.properties_sizes, topics
    )


def _indexed_keys(columns: RecordColumns, found: FoundProperties) -> Keys:
    keys: Keys = np.frombuffer(found.keys, KEY_DTYPE)
    indexed: Keys = keys[columns.is_indexed()[keys["record"]]]
    return indexed


def indexed_keys(columns: RecordColumns, topics: TopicColumn) -> Keys:
    """Return the keys that the key index gets of these records."""
    return _indexed_keys(columns, _found_in(columns, topics))


def keyed_offsets(columns: RecordColumns, topics: TopicColumn, base_offset: int) -> list[int]:
    """Return the log offsets of the records that have keys to be indexed, ascending."""
    rows = np.unique(indexed_keys(columns, topics)["record"])
    offsets: list[int] = (columns.starts[rows] + base_offset).tolist()
    return offsets


def timed_entries(item: Appended) -> Entries:
    """Return the entries of a batch of delayed messages: with delivery times, not tag codes.

    They are written into the batch; doing it again changes nothing.
    """
    batch, entries = item.batch, view_entries(item.entries)
    rows = iter(range(batch.count)) if batch.topic == SCHEDULE_TOPIC else _untimed_rows(item)
    for row in rows:
        code = entries["tags_code"].item(row)
        entries["tags_code"][row] = _time_or(
            code, batch.topic, batch.properties_of(row), item.store_timestamp
        )
    return entries


def _untimed_rows(item: Appended) -> Iterator[int]:
    """Enter the delivery times of messages in the timer topic; yield those left to Python."""
    batch = item.batch
    found, at = batch.found, address_of(item.entries)
    row = 0
    while (row := enter_times(batch.at, row, batch.count, found.at, at)) < batch.count:
        yield row
        row += 1


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
