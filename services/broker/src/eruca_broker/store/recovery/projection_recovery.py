"""Recovery's part for the projections: which files can be believed, and the walk that mends them.

After an orderly stop files are compared with their digests; after a crash they are cut back to
where they were durable. What is damaged is deleted, and the walk of the log puts it again: every
record is proved and dispatched, and known entries change nothing. While anything is being rebuilt
nothing is promised, so that a kill leads to a whole rebuild.
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
from eruca_broker.store.dispatcher import Dispatcher, keyed_offsets
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
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues, DamagedQueue
from eruca_broker.store.queues.queue_files import MisplacedRecordError
from eruca_broker.store.settings import StoreSettings

logger = structlog.get_logger(__name__)


class Walked(NamedTuple):
    """The result of a walk through the log."""

    end: int  # log offset behind the last sound record
    timestamp: int  # its store time in ms; 0 where there was none
    is_full: bool  # whether the last segment is


@dataclass(frozen=True, slots=True)
class Walker:
    """Proves the records of the log and dispatches them."""

    log: CommitLog
    queues: ConsumeQueues
    dispatcher: Dispatcher
    durable_offset: int  # behind it a record may be torn

    def walk(self, start: int, limit: int = MAX_OFFSET) -> Walked:
        """Go from log offset *start*, where a record begins, to the end of the log, or to *limit*.

        Raises:
            DamagedQueueError: A queue's entries and the records do not follow one another.
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
        return Walked(end, timestamp, is_full)

    def rebuild(self) -> Walked:
        """Make all consume queues anew, from the log alone: up to where its records contradict."""
        limit = MAX_OFFSET
        self.dispatcher.known_to = 0
        while True:
            for key in self.queues:
                self.queues.delete(*key)
            try:
                return self.walk(self.log.min_offset, limit)
            except MisplacedRecordError as error:
                logger.error("records of the log contradict each other", fault=str(error))
                # Queues are put one after the other: the next walk may find one in front of it.
                limit = error.log_offset


def lacks(queues: ConsumeQueues, key: tuple[str, int], end: int) -> bool:
    """Tell whether a queue has fewer entries than the state says."""
    return key not in queues or queues.end_of(*key) < end


def lacks_begin(queues: ConsumeQueues, key: tuple[str, int]) -> bool:
    """Tell whether a queue that a walk of the log's end has begun may have had entries before."""
    return queues.queue(*key).min_offset > 0


class Opened(NamedTuple):
    """The projections, and from where on they lack something."""

    queues: ConsumeQueues
    key_index: KeyIndex
    start: int  # log offset from which the log must be walked
    known_to: int  # … before which all queues are known to lack nothing; 0: none is


def open_projections(
    directory: Path,
    settings: StoreSettings,
    log: CommitLog,
    promises: Checkpoint,
    noted: Digests | Marks | None,
) -> Opened:
    """Open queues and index, without what cannot be believed; tell where the walk must start.

    Args:
        directory: The store's.
        settings: Their sizes.
        log: The log, whose end is not known yet.
        promises: What the last checkpoint says.
        noted: Digests of the files after an orderly stop, else their marks at a checkpoint; None
            where there are neither.
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
        start = trusted = log.segment_start(max(known_to - 1, 0))  # proved once more
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
    """Promise nothing of the projections: a kill amid a rebuild must lead to a whole one.

    How far the log is flushed stays so; where no checkpoint says it, none is made that would.
    """
    delete_marks(directory)
    promises = read_checkpoint(directory)
    if promises is not None:
        try:
            write_checkpoint(directory, Checkpoint(0, 0, 0, *promises[3:]))
        except OSError as error:
            if not is_scarcity(error):
                raise
            delete_checkpoint(directory)  # which takes no room


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

    A checkpoint that has been retracted has no time for them.
    """
    if not promises.queues_timestamp:
        return log.min_offset
    return log.segment_start(promises.projected_offset - 1)


def _check_after_crash(
    queues: ConsumeQueues, limit: int, min_log_offset: int
) -> list[DamagedQueue]:
    """Cut every queue back to what was durable; return those whose rest makes no sense."""
    damaged = {(queue.topic, queue.queue_id): queue for queue in queues.recover_all(limit)}
    for queue in queues.verify(None, log_end=limit):
        damaged.setdefault((queue.topic, queue.queue_id), queue)
    for key in queues:
        if key not in damaged and _may_lack_its_begin(queues.queue(*key), min_log_offset):
            damaged[key] = DamagedQueue(*key, "its first entries are missing")
    queues.note_files()
    return list(damaged.values())


def _may_lack_its_begin(queue: ConsumeQueue, min_log_offset: int) -> bool:
    """Tell whether a file with live entries may be missing in front.

    Retention deletes a file when all its entries have expired, and with it hardly ever all that
    expire: the next file begins with expired ones.
    """
    first = queue.files.first * queue.files.entries_per_file
    if not 0 < first < queue.max_offset:
        return False
    entry = queue.entry(first)
    return not entry.is_filler and entry.log_offset >= min_log_offset


def _first_unindexed(log: CommitLog, index: KeyIndex) -> int | None:
    """Return the first record whose keys should be in front of an index file, and are not.

    Nothing but records without keys lies between the last record of a file and the first of the
    next, so this looks at very few of them, unless a file is missing.
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
