"""Truncate the log of a closed store at the end of a record, as if the log had ended there.

A replica truncates its log at the end of the part that it has in common with its master's
(:mod:`eruca_broker.core.replication.lineage`). The log is truncated before recovery, which then
finds a shorter log. Recovery truncates the projections, and folds the state again, as after a
crash.

Steps, each durable before the next one::

    1. check        the cut is at the end of a record, not amid a group of records; else nothing
                    has changed
    2. promises     checkpoint, marks and digests promise nothing beyond the cut any more
    3. handover     RocketMQ's files on delayed messages are deleted: their offsets may be assigned
                    to other messages; so is the scrub's progress
    4. segments     those behind the cut are deleted, the last one first
    5. bytes        the rest of the segment is overwritten with zeros, from the cut on

A kill between two steps, or within one, leaves a log that ends at the cut or later, and no promise
about more. A start without a cut makes a sound store of it. A start with the same cut completes it.

The deletion of a topic removes its queues when it is dispatched. If the cut removes such an event,
the queues must come back, so nothing of the projections is trusted then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import structlog

from eruca.contract.names import EVENTS_TOPIC
from eruca_broker.core.log.recovery import Step, walk
from eruca_broker.core.state.events import Event, TopicDeleted, decode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS
from eruca_broker.store.config import handover
from eruca_broker.store.config.projection_digests import take_digests
from eruca_broker.store.config.projection_marks import delete_marks, read_marks
from eruca_broker.store.files.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.scrub_progress import delete_progress

_FIX_DAMAGE: Final = (
    "to truncate the log at the damage and to copy the rest again, start the replica once with "
    "ERUCA_BROKER_CUT_DAMAGE=true"
)

logger = structlog.get_logger(__name__)


class InvalidCutError(ValueError):
    """The log has no end of a record, or of a group of records, at the offset of a cut."""


class DamagedCutError(InvalidCutError):
    """The log is damaged before the offset of a cut; a start may give up what follows."""


class Cut(NamedTuple):
    """The part of a log that was truncated."""

    log_offset: int  # where the log ends now
    byte_count: int
    message_count: int  # without events
    is_counted: bool  # False: a part of it was unreadable, so there were more messages


def cut_log(directory: Path, log: CommitLog, cut_to: int) -> Cut | None:
    """Truncate *log*, that of the store in *directory*, at log offset *cut_to*.

    Return None if nothing is behind it.

    Args:
        directory: The store's directory, which this process has locked and marked as open.
        log: The log, not yet recovered. It is of no use afterwards: open it again.
        cut_to: The log's end from now on.

    Raises:
        InvalidCutError: No record ends there, or it is amid a group; nothing has changed.
        OSError: The disk refuses. Some of the log may be gone, but only behind *cut_to*.
    """
    last_stored_ms = _last_stored_ms(log, cut_to)
    if not log.has_data_from(cut_to):
        return None
    gone = _gone_part(log, cut_to)
    _lower_promises(directory, cut_to, last_stored_ms, are_queues_sound=not gone.has_deletion)
    handover.forget(directory)
    delete_progress(directory)
    log.cut(cut_to)
    cut = Cut(cut_to, gone.end - cut_to, gone.message_count, gone.is_readable)
    logger.warning("the log is truncated", **cut._asdict())
    return cut


class _Gone(NamedTuple):
    """The part behind the cut."""

    end: int  # log offset
    message_count: int
    has_deletion: bool  # of a topic; true also if that is unknown
    is_readable: bool


def _last_stored_ms(log: CommitLog, cut_to: int) -> int:
    """Return the store time of the last record before the cut in ms; 0 without one.

    Raises:
        InvalidCutError: See :func:`cut_log`.
    """
    if not log.segments or not log.min_offset <= cut_to <= log.allocated_offset:
        raise InvalidCutError(
            f"the log cannot end at {cut_to}: its files hold {log.min_offset} to "
            f"{log.allocated_offset}"
        )
    if cut_to == log.min_offset:
        return 0
    [segment] = log.segments_between(cut_to - 1, cut_to)
    base = segment.base_offset
    end, is_full, fault, timestamp, group_end = base, False, None, 0, 0
    for step in walk(memoryview(segment.buffer)[: cut_to - base], 0, base):
        end, is_full, fault = base + step.end, step.is_full, step.fault
        if step.columns is not None:
            timestamp = int(step.columns.store_timestamps.max())
            group_end = max(group_end, _group_end(step, base))
    if end != cut_to and not (is_full and cut_to == segment.end_offset):
        raise (DamagedCutError if fault else InvalidCutError)(
            f"the log cannot end at {cut_to}: expected the end of a record there, found one at "
            f"{end}{f' ({fault}); {_FIX_DAMAGE}' if fault else ''}"
        )
    if group_end > cut_to:
        raise InvalidCutError(
            f"the log cannot end at {cut_to}: a group of records lasts until {group_end}"
        )
    return timestamp


def _group_end(step: Step, base: int) -> int:
    """Return the end of the group whose head is the last event of *step*; 0 if there is none.

    A group contains no event but its head.
    """
    for row, event in _events(step, last_only=True):
        if isinstance(event, GROUP_HEADS):
            assert step.columns is not None
            head_end = int(step.columns.starts[row] + step.columns.sizes[row])
            return base + head_end + event.group_size
    return 0


def _gone_part(log: CommitLog, cut_to: int) -> _Gone:
    """Return what goes with the cut."""
    end, message_count, has_deletion, fault = cut_to, 0, False, None
    for segment in log.segments_between(cut_to, log.allocated_offset):
        base, is_full = segment.base_offset, False
        for step in walk(memoryview(segment.buffer), max(cut_to - base, 0), base):
            end, is_full, fault = base + step.end, step.is_full, step.fault
            if step.columns is not None:
                is_event = step.topics.rows_of(EVENTS_TOPIC)
                message_count += len(is_event) - int(is_event.sum())
                has_deletion |= any(isinstance(event, TopicDeleted) for _, event in _events(step))
        if not is_full:
            break
        end = segment.end_offset
    is_readable = fault is None and not log.has_data_from(end)
    return _Gone(end, message_count, has_deletion or not is_readable, is_readable)


def _events(step: Step, *, last_only: bool = False) -> Iterator[tuple[int, Event]]:
    """Yield the events of a step with their rows."""
    assert step.columns is not None
    columns = step.columns
    view = memoryview(columns.buffer)
    rows = np.flatnonzero(step.topics.rows_of(EVENTS_TOPIC)).tolist()
    for row in rows[-1:] if last_only else rows:
        begin = int(columns.body_starts[row])
        yield row, decode_event(bytes(view[begin : begin + int(columns.body_sizes[row])]))


def _lower_promises(
    directory: Path, cut_to: int, timestamp: int, *, are_queues_sound: bool
) -> None:
    """Withdraw, durably, what is promised beyond the cut.

    Args:
        directory: The store's directory.
        cut_to: Where the log is about to end.
        timestamp: Store time of the last record before, in ms; 0 without one.
        are_queues_sound: Whether the projections have all entries before the cut.
    """
    take_digests(directory)
    marks = read_marks(directory)
    if marks is not None and (marks.log_offset > cut_to or not are_queues_sound):
        delete_marks(directory)
    last = read_checkpoint(directory)
    if last is None:
        return
    flushed = min(last.flushed_offset, cut_to)
    if not are_queues_sound:
        write_checkpoint(directory, Checkpoint(0, 0, 0, 0, flushed))
        return
    lowered = Checkpoint(
        log_timestamp=min(last.log_timestamp, timestamp),
        queues_timestamp=min(last.queues_timestamp, timestamp),
        index_timestamp=0,
        projected_offset=min(last.projected_offset, cut_to),
        flushed_offset=flushed,
    )
    write_checkpoint(directory, lowered)
