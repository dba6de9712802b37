"""Open a store: find the end of the log and the valid projections, and fold the state.

Steps, in order::

    0. a cut                  if the settings ask for one, the log is truncated there
                                                             store/recovery/cut.py
    1. the log's files        must form a log, or nothing is changed
    2. the projections        invalid ones are truncated or deleted, which determines
                              the start of the walk          store/recovery/projection_recovery.py
    3. the walk               from the oldest offset that a projection lacks, and after a crash at
                              least through the last segment that was flushed: every record is
                              verified and dispatched; known entries change nothing
    4. the end                a torn tail is cut off, with the group of records it belongs to;
                              damage before the flushed offset is refused; the rest is flushed
    5. the state              folded from the latest whole snapshot on; the pending timers come
                              from there and from the queues of delayed messages
                                                             store/state/state_fold.py

After an orderly stop hardly any record is walked, so the fold may be the first to find a damaged
one. Then recovery starts again as after a crash, and the walk reaches that record.

The last segment must begin with a snapshot, or the log could lack one after retention. If a crash
left it incomplete, ``needs_snapshot`` requests another. So it does if RocketMQ has written the
store, or has used it since.

Source: RocketMQ 5.3, ``DefaultMessageStore.load``, ``CommitLog.recoverAbnormally``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from eruca.contract.errors import RecordNotFoundError
from eruca.contract.records import DamagedRecordError
from eruca_broker.core.log.recovery import goes_on_behind
from eruca_broker.core.state.state import BrokerState
from eruca_broker.core.state.timers import PendingTimers
from eruca_broker.store.config import config_snapshots, delay_offsets, handover
from eruca_broker.store.config.projection_digests import take_digests
from eruca_broker.store.config.projection_marks import Marks, delete_marks, read_marks
from eruca_broker.store.files.checkpoint import (
    CHECKPOINT_NAME,
    Checkpoint,
    delete_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from eruca_broker.store.files.refusals import is_scarcity
from eruca_broker.store.identity import doubt_identity
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.commit_log import CommitLog, CorruptLogError, LostRecordsError
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.reading.record_groups import group_across
from eruca_broker.store.recovery.cut import Cut, cut_log
from eruca_broker.store.recovery.projection_recovery import (
    Walked,
    Walker,
    lacks,
    lacks_begin,
    open_projections,
    retract,
)
from eruca_broker.store.settings import FlushMode, StoreSettings
from eruca_broker.store.state.state_fold import Folded, fold

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class Recovered:
    """The parts of an open store."""

    log: CommitLog
    queues: ConsumeQueues
    index: KeyIndex
    dispatcher: Dispatcher
    state: BrokerState
    timers: PendingTimers
    last_store_timestamp: int
    snapshot_offset: int  # the beginning of the latest whole snapshot
    needs_snapshot: bool
    is_imported: bool  # a part of the state is in RocketMQ's files, and in no event of the log
    shortage: OSError | None  # the shortage that left writes undone
    doubted_from: int | None  # log offset from which the log could not be written again
    cut: Cut | None = None  # the part that the settings wanted to be truncated, if there was any


def recover(directory: Path, settings: StoreSettings, *, stopped_cleanly: bool) -> Recovered:
    """Open the store in *directory*.

    Raises:
        InvalidCutError: The log cannot end where the settings say; nothing has been changed.
        CorruptLogError: Durable records are damaged; the log has not been changed.
        UnreadableConfigError: ``config/`` is damaged, and its content exists nowhere else.
        OSError: The disk refuses.
    """
    cut = None
    if settings.cut_to is not None:
        with closing(_open_log(directory, settings, stopped_cleanly=stopped_cleanly)) as log:
            cut = cut_log(directory, log, settings.cut_to)
    recovered = _recover_or_retry(directory, settings, stopped_cleanly=stopped_cleanly)
    recovered.cut = cut
    return recovered


def _recover_or_retry(
    directory: Path, settings: StoreSettings, *, stopped_cleanly: bool
) -> Recovered:
    """Open the store as :func:`recover` does, without the cut."""
    try:
        with ExitStack() as opened:
            recovered = _recover(directory, settings, opened, stopped_cleanly=stopped_cleanly)
            opened.pop_all()
            return recovered
    except (RecordNotFoundError, DamagedRecordError) as error:
        if not stopped_cleanly:
            raise CorruptLogError(
                f"the log in {directory} is damaged in a record of the broker's state: {error}. "
                "Restore the file from a backup"
            ) from error
        logger.warning("the state cannot be read; the log's end is verified", fault=str(error))
    return _recover_or_retry(directory, settings, stopped_cleanly=False)


def _recover(
    directory: Path, settings: StoreSettings, opened: ExitStack, *, stopped_cleanly: bool
) -> Recovered:
    """Open the store as :func:`recover` does; *opened* closes everything that is open.

    Raises:
        RecordNotFoundError: A record of the state is damaged.
        DamagedRecordError: The last record is damaged.
    """
    log = _open_log(directory, settings, stopped_cleanly=stopped_cleanly)
    opened.callback(log.close)
    log.is_warming = settings.is_log_warmed
    checkpoint, was_rocketmqs = _take_checkpoint(directory)
    promises = checkpoint or Checkpoint(0, 0, 0, 0, 0)
    flushed = promises.flushed_offset
    is_orderly = stopped_cleanly and checkpoint is not None and flushed <= log.allocated_offset
    found = take_digests(directory)
    digests = found if is_orderly else None
    marks = _marks_of(directory, log, checkpoint, settings) if digests is None else None
    queues, index, start, known_to = open_projections(
        directory, settings, log, promises, digests or marks
    )
    opened.callback(queues.close)
    opened.callback(index.close)
    dispatcher = Dispatcher(log, queues, index)
    dispatcher.trust_queues(known_to, start)
    walker = Walker(log, queues, dispatcher, flushed if checkpoint else log.allocated_offset)
    known = {key for key in queues if digests is None and queues.end_of(*key)}
    durable = max(flushed, known_to) if checkpoint else _surely_durable(log)
    walked = _walked(directory, walker, start)
    if walked.end < durable:
        _give_up(directory, walked.end, durable, is_damage_cut=settings.is_damage_cut)
    elif settings.flush_mode is FlushMode.ASYNC and _lacks_written(log, walked.end):
        logger.warning(
            "a record that was not flushed is damaged, and records behind it are lost with it",
            log_offset=walked.end,
        )
        doubt_identity(directory)  # else it would still count as a holder of all it acknowledged
    end = _settle_end(log, queues, walked, flushed, is_orderly=is_orderly)
    doubted_from = _flush_end(directory, log, end, checkpoint)
    index.truncate(end)
    if marks is None:  # else each queue is truncated when it is opened
        for _ in queues.delete_expired(log.min_offset):
            pass
    index.delete_expired(log.min_offset)
    last_store_timestamp = max(walked.timestamp, promises.log_timestamp)
    folded_state = partial(
        fold,
        *(directory, log, queues, index, last_store_timestamp),
        may_be_foreign=not is_orderly,
        was_rocketmqs=was_rocketmqs,
    )
    try:
        folded = folded_state()
    except DamagedQueueError as error:
        logger.warning("the state's queues are damaged and are rebuilt", reason=str(error))
        folded = _rebuild_queues(directory, walker, end, folded_state)
    ends = folded.state.queue_ends.items()
    begun = (key for key in queues if key not in known)
    if digests is None and (
        any(lacks(queues, *place) for place in ends)
        or (start > log.min_offset and any(lacks_begin(queues, key) for key in begun))
    ):
        # Files of queues are missing, and only the state still knew of them, or of the offsets of
        # records after those in the files.
        folded = _rebuild_queues(directory, walker, end, folded_state)
    if settings.cut_to is not None:
        _delete_empty(queues)
    dispatcher.end_start(end)
    queues.held.is_allowed = False
    logger.info(
        "store opened",
        directory=str(directory),
        stopped_cleanly=stopped_cleanly,
        log_start=log.min_offset,
        log_end=end,
        walked_from=start,
        topics=len(folded.state.topics),
        timers=len(folded.timers),
    )
    return Recovered(
        log,
        queues,
        index,
        dispatcher,
        folded.state,
        folded.timers,
        last_store_timestamp,
        folded.snapshot_offset,
        folded.needs_snapshot,
        folded.is_imported,
        queues.held.error or dispatcher.shortage,
        doubted_from,
    )


def _open_log(directory: Path, settings: StoreSettings, *, stopped_cleanly: bool) -> CommitLog:
    """Return the log, whose end is still unknown."""
    return CommitLog.open(
        directory / "commitlog", settings.segment_bytes, stopped_cleanly=stopped_cleanly
    )


def _delete_empty(queues: ConsumeQueues) -> None:
    """Delete the queues that have never had a message: all of theirs were truncated."""
    for key in queues:
        if not queues.end_of(*key):
            queues.delete(*key)


def _take_checkpoint(directory: Path) -> tuple[Checkpoint | None, bool]:
    """Return the existing checkpoint, and whether RocketMQ has used the store since Eruca did.

    If RocketMQ takes over, it must not trust files that are being rebuilt: clear its timestamp.

    Raises:
        UnreadableConfigError: It has, and ``config/`` is damaged.
    """
    checkpoint = read_checkpoint(directory)
    if checkpoint is not None:
        with _room_or_not("the checkpoint"):
            write_checkpoint(directory, checkpoint._replace(index_timestamp=0))
        return checkpoint, False
    has_one = (directory / CHECKPOINT_NAME).exists()
    was_rocketmqs = has_one and config_snapshots.has_rocketmqs(directory)
    if was_rocketmqs:  # check now: without the checkpoint the next start would not
        config_snapshots.load_changes(directory, {}, was_rocketmqs=True)
        delay_offsets.load(directory)
    delete_checkpoint(directory)  # a checkpoint that reports nothing flushed must go as well
    return None, was_rocketmqs


def _marks_of(
    directory: Path, log: CommitLog, checkpoint: Checkpoint | None, settings: StoreSettings
) -> Marks | None:
    """Return the last checkpoint's marks of the projections' files; None without valid ones.

    Delete invalid ones, since files may be truncated further.
    """
    if checkpoint is not None and checkpoint.queues_timestamp and not settings.is_damage_cut:
        marks = read_marks(directory)
        if marks is not None and log.min_offset <= marks.log_offset <= log.allocated_offset:
            return marks
    delete_marks(directory)
    return None


def _flush_end(
    directory: Path, log: CommitLog, end: int, checkpoint: Checkpoint | None
) -> int | None:
    """Make the log durable up to its end, and record that; return the offset of the first doubt.

    Return None if all of it is durable. On a disk without room it is left to the next writer.
    """
    flushed = 0 if checkpoint is None else checkpoint.flushed_offset
    if flushed < end:
        try:
            make_durable(log, flushed, end)
        except OSError as error:
            if not is_scarcity(error):
                raise
            return flushed
    if end != flushed or checkpoint is None:
        # A checkpoint that promises too much must not stay.
        with _room_or_not("the checkpoint") if flushed <= end else nullcontext():
            _note_end(directory, end)
    return None


def _rebuild_queues(
    directory: Path, walker: Walker, end: int, folded_state: Callable[[], Folded]
) -> Folded:
    """Rebuild all consume queues; return the state folded from them."""
    logger.warning("consume queues are missing and are rebuilt from the log")
    retract(directory)
    if (rebuilt := walker.rebuild()).end < end:
        # Not now: the next start, which finds all queues retracted, may cut it.
        _give_up(directory, rebuilt.end, end, is_damage_cut=False)
    folded = folded_state()
    for place, queue_end in folded.state.queue_ends.items():
        if lacks(walker.queues, place, queue_end):  # all its records have expired
            walker.queues.queue(*place).begin(queue_end)  # else every start would rebuild it again
    return folded


def _walked(directory: Path, walker: Walker, start: int) -> Walked:
    """Walk the log from *start* on, or all of it if the queues contradict it."""
    try:
        return walker.walk(start)
    except DamagedQueueError as error:
        logger.warning("consume queues do not fit the log and are rebuilt", reason=str(error))
        retract(directory)
        return walker.rebuild()


def _surely_durable(log: CommitLog) -> int:
    """Return the log offset before which no record of a log without a checkpoint can be torn.

    Flushes are frequent enough that unflushed data never reaches back further.
    """
    return log.segments[-2:][0].base_offset if log.segments else 0


def _give_up(directory: Path, end: int, flushed: int, *, is_damage_cut: bool) -> None:
    """Refuse a log that lacks durable records, unless their loss was accepted."""
    if not is_damage_cut:
        raise LostRecordsError(
            f"the log in {directory} is valid up to {end} but was durable up to {flushed}: "
            f"{flushed - end} bytes of acknowledged messages are damaged. Restore the file from a "
            "backup; to accept their loss, start once with ERUCA_BROKER_CUT_DAMAGE=true"
        )
    doubt_identity(directory)
    handover.forget(directory)


def _lacks_written(log: CommitLog, end: int) -> bool:
    """Tell whether records are about to go that a process had written as a whole.

    In sync mode it had acknowledged none of them: it acknowledges what is flushed.
    """
    for segment in log.segments_between(end, end + 1):
        return goes_on_behind(memoryview(segment.buffer)[end - segment.base_offset :])
    return False


def _settle_end(
    log: CommitLog, queues: ConsumeQueues, walked: Walked, flushed: int, *, is_orderly: bool
) -> int:
    """Cut off the torn part, make the rest durable; return the end of the log."""
    end = walked.end
    queues.truncate(end)
    if (torn := group_across(log, queues, end)) is not None:  # nothing follows a torn group
        logger.warning("the log ends in a torn group of records", log_offset=torn.begin)
        end = torn.begin
        queues.truncate(end)
    is_full = walked.is_full and torn is None
    log.set_end(end, is_full=is_full, is_tail_clean=is_orderly and end == flushed)
    return end


@contextmanager
def _room_or_not(what: str) -> Iterator[None]:
    """Continue if there is no room to write *what*."""
    try:
        yield
    except OSError as error:
        if not is_scarcity(error):
            raise
        logger.warning(f"{what} cannot be written", reason=error.strerror)


def _note_end(directory: Path, end: int) -> None:
    """Record that the log is flushed up to its end, and withdraw promises about later offsets.

    Without this, the next start would expect more, or fewer, durable records.
    """
    last = read_checkpoint(directory) or Checkpoint(0, 0, 0, 0, 0)
    projected = min(last.projected_offset, end)
    write_checkpoint(directory, last._replace(projected_offset=projected, flushed_offset=end))


def make_durable(log: CommitLog, first: int, end: int) -> None:
    """Write the log again from *first* to *end* and flush it.

    Its last writer has not flushed it, or its disk has failed.

    Raises:
        OSError: Some of it may not be durable; calling again retries.
    """
    # If the flushed offset is unknown, rewrite only the last segment: the whole log, perhaps
    # RocketMQ's, would take too long.
    doubted = first or log.segment_start(end - 1)
    for segment in log.segments_between(first, end):
        base = segment.base_offset
        segment.rewrite(max(doubted - base, 0), min(end - base, segment.size))
        segment.flush()
