"""Recovery's part for the projections: find valid files, and walk the log to repair the others.

After an orderly stop files are compared with their digests; after a crash they are truncated to
their durable part. Damaged ones are deleted, and the walk of the log adds their entries again:
every record is verified and dispatched, and known entries change nothing. During a rebuild the
checkpoint promises nothing, so that a kill leads to a complete rebuild.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from eruca_broker.core.log.recovery import MAX_OFFSET, walk
from eruca_broker.store.config.projection_digests import Digests
from eruca_broker.store.config.projection_marks import Marks, delete_marks
from eruca_broker.store.files.checkpoint import (
    Checkpoint,
    delete_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from eruca_broker.store.files.refusals import is_scarcity
from eruca_broker.store.index.index_file import IndexMark
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.projecting.dispatcher import Dispatcher, keyed_offsets
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues, DamagedQueue
from eruca_broker.store.queues.queue_files import MisplacedRecordError
from eruca_broker.store.settings import StoreSettings

logger = structlog.get_logger(__name__)


class Walked(NamedTuple):
    """The result of a walk through the log."""

    end: int  # log offset after the last valid record
    timestamp: int  # its store time in ms; 0 if there was none
    is_full: bool  # whether the last segment is full


@dataclass(frozen=True, slots=True)
class Walker:
    """Verifies the records of the log and dispatches them."""

    log: CommitLog
    queues: ConsumeQueues
    dispatcher: Dispatcher
    durable_offset: int  # later records may be torn

    def walk(self, start: int, limit: int = MAX_OFFSET) -> Walked:
        """Walk from log offset *start*, where a record begins, to the end of the log or *limit*.

        Raises:
            DamagedQueueError: A queue's entries and the records contradict each other.
        """
        end, timestamp, is_full = start, 0, False
        for segment in self.log.segments:
            base = segment.base_offset
            if segment.end_offset <= start:
                continue
            assert end >= base or start > base
            stretch = memoryview(segment.buffer)[: limit - base]
            steps = walk(stretch, max(start - base, 0), base, durable_offset=self.durable_offset)
            for step in steps:
                if step.columns is not None:
                    self.dispatcher.rebuild(step.columns, step.topics, base)
                    timestamp = max(timestamp, int(step.columns.store_timestamps.max()))
                end, is_full = base + step.end, step.is_full
                if step.fault:
                    logger.warning(
                        "the log ends in a torn record", log_offset=end, fault=step.fault
                    )
            if not is_full:
                break
            end = segment.end_offset
        self.dispatcher.end_trust()
        return Walked(end, timestamp, is_full)

    def rebuild(self) -> Walked:
        """Rebuild all consume queues from the log alone, up to where its records contradict."""
        limit = MAX_OFFSET
        self.dispatcher.trust_queues(0, 0)
        while True:
            for key in self.queues:
                self.queues.delete(*key)
            try:
                return self.walk(self.log.min_offset, limit)
            except MisplacedRecordError as error:
                logger.error("records of the log contradict each other", fault=str(error))
                # Queues are put one by one: the next walk may find an earlier contradiction.
                limit = error.log_offset


def lacks(queues: ConsumeQueues, key: tuple[str, int], end: int) -> bool:
    """Tell whether a queue has fewer entries than the state requires."""
    return key not in queues or queues.end_of(*key) < end


def lacks_begin(queues: ConsumeQueues, key: tuple[str, int]) -> bool:
    """Tell whether a queue that a walk of the log's end has begun may lack earlier entries."""
    return queues.queue(*key).min_offset > 0


class Opened(NamedTuple):
    """The projections, and the log offset from which they are incomplete."""

    queues: ConsumeQueues
    key_index: KeyIndex
    start: int  # log offset from which the log must be walked
    known_to: int  # … up to which all queues are known to be complete; 0: none is


def open_projections(
    directory: Path,
    settings: StoreSettings,
    log: CommitLog,
    promises: Checkpoint,
    noted: Digests | Marks | None,
) -> Opened:
    """Open queues and index, without invalid files; return the start of the walk.

    Args:
        directory: The store's directory.
        settings: Their sizes.
        log: The log, whose end is still unknown.
        promises: The last checkpoint.
        noted: Digests of the files after an orderly stop, else their marks at a checkpoint; None
            if there are neither.
    """
    queues = ConsumeQueues(
        directory / "consumequeue",
        entries_per_file=settings.queue_file_entries,
        open_files_max=settings.open_files_max,
    )
    queues.held.is_allowed = True
    damaged: list[DamagedQueue] = []
    known_to = 0
    if isinstance(noted, Digests):
        start = trusted = promises.projected_offset
        damaged = queues.verify(noted.queues, log_end=trusted)
        index = _open_index(directory, settings, digests=noted.index)
    elif noted is not None:
        known_to = noted.log_offset
        start = trusted = log.segment_start(max(known_to - 1, 0))  # verified once more
        damaged = queues.trust(noted.queues, known_to, log.min_offset)
        index = _open_index(directory, settings, limit=known_to, marks=noted.index)
    else:
        start = trusted = _trusted_offset(log, promises)
        damaged = _check_after_crash(queues, trusted, log.min_offset)
        index = _open_index(directory, settings, limit=trusted)
        if (lacking := _first_unindexed(log, index)) is not None:
            logger.warning("key index lacks a file and is rebuilt from there", log_offset=lacking)
            index.truncate(lacking)
        start = min(start, log.segment_start(index.end_offset))
    if damaged or not len(queues):
        start, known_to = log.min_offset, 0
    elif index.resume_offset is not None:
        start = min(start, log.segment_start(index.resume_offset))
    if start < trusted:
        retract(directory)
    for queue in damaged:
        logger.warning("consume queue is rebuilt from the log", **queue._asdict())
        queues.delete(queue.topic, queue.queue_id)
    return Opened(queues, index, start, known_to)


def retract(directory: Path) -> None:
    """Withdraw all promises about the projections, so that a kill leads to a complete rebuild.

    The flushed offset of the log stays. If there is no checkpoint, none is created.
    """
    delete_marks(directory)
    promises = read_checkpoint(directory)
    if promises is not None:
        try:
            write_checkpoint(directory, Checkpoint(0, 0, 0, *promises[3:]))
        except OSError as error:
            if not is_scarcity(error):
                raise
            delete_checkpoint(directory)  # which needs no room


def _open_index(
    directory: Path,
    settings: StoreSettings,
    *,
    limit: int | None = None,
    digests: Mapping[str, int] | None = None,
    marks: Mapping[str, IndexMark] | None = None,
) -> KeyIndex:
    index = KeyIndex.open(
        directory / "index",
        hash_slots=settings.index_slots,
        max_entries=settings.index_entries,
        limit=limit,
        digests=digests,
        marks=marks,
    )
    for file in index.damaged:
        logger.warning("key index file is rebuilt from the log", **file._asdict())
    return index


def _trusted_offset(log: CommitLog, promises: Checkpoint) -> int:
    """Return the start of the segment up to whose records all projections were durable.

    A retracted checkpoint has no time for them.
    """
    if not promises.queues_timestamp:
        return log.min_offset
    return log.segment_start(promises.projected_offset - 1)


def _check_after_crash(
    queues: ConsumeQueues, limit: int, min_log_offset: int
) -> list[DamagedQueue]:
    """Truncate every queue to its durable part; return those whose rest is implausible."""
    damaged = {(queue.topic, queue.queue_id): queue for queue in queues.recover_all(limit)}
    for queue in queues.verify(None, log_end=limit):
        damaged.setdefault((queue.topic, queue.queue_id), queue)
    for key in queues:
        if key not in damaged and _may_lack_its_begin(queues.queue(*key), min_log_offset):
            damaged[key] = DamagedQueue(*key, "its first entries are missing")
    queues.note_files()
    return list(damaged.values())


def _may_lack_its_begin(queue: ConsumeQueue, min_log_offset: int) -> bool:
    """Tell whether a file with present entries may be missing at the beginning.

    Retention deletes a file when all its entries have expired. The next file then almost always
    begins with expired entries, too.
    """
    first = queue.files.first * queue.files.entries_per_file
    if not 0 < first < queue.max_offset:
        return False
    entry = queue.entry(first)
    return not entry.is_filler and entry.log_offset >= min_log_offset


def _first_unindexed(log: CommitLog, index: KeyIndex) -> int | None:
    """Return the first record whose keys should precede an index file, but do not.

    Between the last record of one file and the first of the next there are only records without
    keys. So this reads very few records, unless a file is missing.
    """
    behind = -1  # log offset of the last record in the files so far
    for begin, end in index.extents():
        first = max(behind, log.min_offset)
        for segment in log.segments_between(first, begin):
            base = segment.base_offset
            before = memoryview(segment.buffer)[: begin - base]
            for step in walk(before, max(first - base, 0), base):
                if step.columns is None:
                    continue
                keyed = keyed_offsets(step.columns, step.topics, base)
                if lacking := [offset for offset in keyed if offset > behind]:
                    return lacking[0]
        behind = end
    return None
