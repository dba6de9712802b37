"""RocketMQ's own files on delayed messages, kept up to date in case it opens the store next.

RocketMQ does not read Eruca's events. It keeps its delivery progress in files of its own:

- ``config/delayOffset.json``: for each delay level, the offset of the first message to deliver;
- ``config/timercheck``: the same for the timer topic;
- ``timerlog/``: the messages before that offset that are still to be delivered.

The first two are written at each checkpoint. RocketMQ would then deliver again each ended message
that lies after a pending one of its queue. An orderly close therefore writes the timer log as well,
if there is such a message. Then no message of the timer topic is delivered again. In a delay level,
a recalled message after a pending one still is: RocketMQ cannot skip it.

The files are never ahead of the log. Offsets are taken before the log is flushed, and written
after it; they stop at the first message whose timer is unknown. Eruca reads none of these files.

The timer log, and the wheel that RocketMQ derives from it, are correct until the next timer ends.
So opening the store deletes them, once a checkpoint that is correct without them is written.

Source: RocketMQ 5.3, ``ScheduleMessageService``, ``TimerMessageStore``.
"""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import structlog

from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.core.messages.delay_levels import level_of_queue
from eruca.core.messages.record_columns import Int64Array
from eruca_broker.core.consume_queue_entry import ENTRY_DTYPE, Entries
from eruca_broker.core.records.scheduled import DELAYED_TOPICS
from eruca_broker.core.state.timer_log import FILE_SIZE, timer_checkpoint, timer_log
from eruca_broker.core.state.timers import PendingTimers
from eruca_broker.core.state.timers_events import TimerRows
from eruca_broker.store.config.config_snapshots import DELAY_OFFSETS, DIRECTORY, MARK
from eruca_broker.store.config.delay_offsets import first_since, steps
from eruca_broker.store.files.small_files import replace_files
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_chassis.clock import Clock
from eruca_chassis.files.directories import make_directory, private, sync_directory
from eruca_chassis.finishing import finished_in_thread

TIMER_CHECKPOINT: Final = "timercheck"
TIMER_LOG: Final = "timerlog"
TIMER_WHEEL: Final = "timerwheel"
_LOOKED_AT_FIRST: Final = 256  # entries; if no timer has ended, the first entry is the answer
_LOOKED_AT_MAX: Final = 65_536

logger = structlog.get_logger(__name__)


def forget(directory: Path) -> None:
    """Delete the files: their offsets may be assigned to other messages from now on."""
    for name in (DELAY_OFFSETS, TIMER_CHECKPOINT):
        (directory / DIRECTORY / name).unlink(missing_ok=True)
    _delete_timer_log(directory)


class Progress(NamedTuple):
    """Progress of delayed messages."""

    pending: TimerRows
    known_to: int  # log offset; of later messages it is unknown whether they are pending
    ends: int  # the number of ended timers
    first: dict[tuple[str, int], int]  # by queue: offset of the first message to deliver


class Handover:
    """Writes the files for the store in *directory*, with these *queues* and *timers*."""

    def __init__(
        self, directory: Path, queues: ConsumeQueues, timers: PendingTimers, clock: Clock
    ) -> None:
        self._directory = directory
        self._queues = queues
        self._timers = timers
        self._clock = clock
        self._first: dict[tuple[str, int], int] = {}  # no earlier message becomes pending again
        self._ends = 0  # the number of ended timers
        self._noted_ends = -1  # … in the files

    def note_end(self) -> None:
        """Record that timers have ended: the files are outdated."""
        self._ends += 1

    async def begin(self, known_to: int) -> None:
        """Write the progress when the store opens; each checkpoint retries what fails.

        Args:
            known_to: Log offset up to which the timers are complete.
        """
        progress = await finished_in_thread(partial(self.progress, known_to))
        if progress is not None:
            try:
                await self.save(progress)
            except OSError as error:
                _say_stale(error)

    def progress(self, known_to: int) -> Progress | None:
        """Return the progress of each queue; None if the files are up to date, or must stay stale.

        Args:
            known_to: Log offset up to which the timers are complete.
        """
        if self._ends == self._noted_ends:
            return None
        try:
            return self._progress(known_to)
        except (OSError, DamagedQueueError) as error:
            _say_stale(error)  # an unreadable queue must not prevent a checkpoint
            return None

    def _progress(self, known_to: int) -> Progress:
        pending = self._timers.rows()
        oldest = int(pending[:, 1].min()) if len(pending) else known_to
        for topic, queue_id in self._queues:
            if topic in DELAYED_TOPICS:
                queue = self._queues.queue(topic, queue_id)
                known = self._first.get((topic, queue_id))
                first = first_since(queue, oldest) if known is None else known
                self._first[topic, queue_id] = _first_pending(
                    queue, pending[:, 1], max(first, queue.min_offset), known_to
                )
        return Progress(pending, known_to, self._ends, dict(self._first))

    async def save(self, progress: Progress) -> None:
        """Write the progress of each queue; the ends of timers in it must be durable.

        Raises:
            OSError: It could not be written. With the old files more is delivered again.
        """
        await finished_in_thread(partial(self._save, progress, self._clock.now_ms()))

    def _save(self, progress: Progress, now_ms: int) -> None:
        config = self._directory / DIRECTORY
        levels, timed = {}, None
        for (topic, queue_id), first in progress.first.items():
            if topic == SCHEDULE_TOPIC:
                levels[str(level_of_queue(queue_id))] = first
            elif (topic, queue_id) == (TIMER_TOPIC, 0):
                timed = first
        contents = {}
        if levels or (config / DELAY_OFFSETS).exists():
            contents[DELAY_OFFSETS] = json.dumps({**MARK, "offsetTable": levels}).encode()
        if timed is not None or (config / TIMER_CHECKPOINT).exists():
            contents[TIMER_CHECKPOINT] = timer_checkpoint(timed or 0, now_ms)
        replace_files(config, contents)
        _delete_timer_log(self._directory)
        self._noted_ends = progress.ends

    async def complete(self, known_to: int) -> None:
        """Write the exact pending messages of the timer topic; the store is being closed.

        Args:
            known_to: Log offset up to which the timers are complete.

        Raises:
            DamagedQueueError, OSError: This failed; the files of :meth:`save` remain.
        """
        self.note_end()  # for the timer log, although the other files may be up to date
        if (progress := self.progress(known_to)) is not None:
            complete = partial(self._complete, progress, self._clock.now_ms())
            await finished_in_thread(complete)

    def _complete(self, progress: Progress, now_ms: int) -> None:
        pending = progress.pending
        if (first := progress.first.get((TIMER_TOPIC, 0))) is not None:
            self._complete_timed(progress, first, now_ms)
        repeated = sum(
            self._ended_behind(pending, queue_id, first)
            for (topic, queue_id), first in progress.first.items()
            if topic == SCHEDULE_TOPIC
        )
        if repeated:
            logger.warning(
                "RocketMQ would deliver recalled messages of delay levels if it opened the store: "
                "they lie after messages that are pending",
                count=repeated,
            )

    def _complete_timed(self, progress: Progress, first: int, now_ms: int) -> None:
        pending = progress.pending
        queue = self._queues.queue(TIMER_TOPIC, 0)
        entries = np.concatenate([np.zeros(0, ENTRY_DTYPE), *steps(queue, first)])
        is_pending = np.isin(_offsets(entries), pending[:, 1])
        if is_pending.all() or _offsets(entries)[-1] >= progress.known_to:
            return  # RocketMQ reads all of them from the queue
        rows = pending[np.argsort(pending[:, 1])]
        is_named = is_pending.copy()
        is_named[-1] = True  # RocketMQ continues after the last one
        named = entries[is_named]
        # Not from the entries: in those that RocketMQ has written this field is a tag's hash.
        due_ms = rows[np.searchsorted(rows[:, 1], _offsets(named)).clip(max=len(rows) - 1), 0]
        files = timer_log(
            due_ms,
            _offsets(named),
            named["size"].astype(np.int64),
            is_last_pending=bool(is_pending[-1]),
            now_ms=now_ms,
        )
        directory = self._directory / TIMER_LOG
        make_directory(directory)
        for number, content in enumerate(files):
            path = directory / f"{number * FILE_SIZE:020}"
            with open(path, "wb", opener=private) as file:
                file.write(content)
                file.truncate(FILE_SIZE)  # sparse
                os.fsync(file.fileno())
        sync_directory(directory)
        checkpoint = timer_checkpoint(queue.max_offset, now_ms)
        replace_files(self._directory / DIRECTORY, {TIMER_CHECKPOINT: checkpoint})

    def _ended_behind(self, pending: TimerRows, queue_id: int, first: int) -> int:
        queue = self._queues.queue(SCHEDULE_TOPIC, queue_id)
        return sum(
            int(np.count_nonzero(~np.isin(_offsets(entries), pending[:, 1])))
            for entries in steps(queue, first)
        )


def _say_stale(error: OSError | DamagedQueueError) -> None:
    logger.warning("RocketMQ's notes on delayed messages are stale", reason=str(error))


def _delete_timer_log(directory: Path) -> None:
    log, wheel = directory / TIMER_LOG, directory / TIMER_WHEEL
    if log.is_dir() or wheel.is_file():
        wheel.unlink(missing_ok=True)
        if log.is_dir():
            shutil.rmtree(log)
        sync_directory(directory)


def _first_pending(queue: ConsumeQueue, ids: Int64Array, first: int, known_to: int) -> int:
    count = _LOOKED_AT_FIRST
    while first < queue.max_offset:
        entries = queue.entries(first, count)
        offsets = _offsets(entries)
        near = ids[(ids >= offsets[0]) & (ids <= offsets[-1])]
        stops = np.isin(offsets, near) | (offsets >= known_to)
        if stops.any():
            return first + int(stops.argmax())
        first += len(entries)
        count = min(4 * count, _LOOKED_AT_MAX)
    return first


def _offsets(entries: Entries) -> Int64Array:
    offsets: Int64Array = entries["log_offset"].astype(np.int64)
    return offsets
