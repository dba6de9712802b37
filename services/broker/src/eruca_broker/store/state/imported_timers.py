"""Import the timers that RocketMQ has left in a store.

For a delay level, ``config/delayOffset.json`` holds the delivery progress
(:mod:`..config.delay_offsets`). For the timer topic no file has it exactly: ``timercheck`` lags
behind the deliveries, and a message that arrives late is delivered regardless of it. But the log
has it:

- *delivered*: the message is in its real topic, after the timer, with the timer's unique id and
  time. While the timer is in the log, so are all later records. A message that was due and is
  missing there was held up, and is delivered now;
- *rolled*: a message that waits longer than one turn of the wheel is stored again on the way, with
  the same unique id, topic and time, and a count of the copies; its latest copy counts;
- *recalled*: another message names its unique id, with the same topic and time. That message is
  not a timer itself.

A message without a unique id, which no client of RocketMQ sends, counts as delivered once it was
due.

A store of Eruca may never have been used by RocketMQ: the names that show its deliveries may come
from a client, too. So each timer there ends only by evidence about that timer itself.

Source: RocketMQ 5.3, ``TimerMessageStore``, ``RecallMessageProcessor``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import structlog

from eruca.contract import properties as names
from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.core.messages.delay_levels import level_of_queue
from eruca.core.messages.record_columns import Int64Array
from eruca_broker.core.state.timers import NO_TIMERS
from eruca_broker.core.state.timers_events import TimerRows
from eruca_broker.store.config import delay_offsets
from eruca_broker.store.config.delay_offsets import steps
from eruca_broker.store.index.key_index import TIMESTAMP_MAX
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.reading.log_reader import LogReader
from eruca_broker.store.state.timers_fold import delayed_queues, rows_of_entries

_COPIES_MAX: Final = 1_000  # records of one unique id in one topic: more than any group retries
_STEP: Final = 16 * 1024 * 1024  # bytes of the log that are searched in one go
# RocketMQ's deliveries carry the first property, its recalls the second; Eruca writes neither.
_TRACE: Final = re.compile(rb"TIMER_DE(?:QUEUE_MS|L_UNIQKEY)")
_TRACE_SIZE_MAX: Final = len(b"TIMER_DEL_UNIQKEY")
_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"  # a property of rolled messages

logger = structlog.get_logger(__name__)


class _Identity(NamedTuple):
    """The fields that all copies of a delayed message share."""

    topic: str  # the real one
    unique_id: str
    due_ms: int


def has_let_go(log: CommitLog, first: int) -> bool:
    """Tell whether RocketMQ has delivered, rolled or recalled timers from log offset *first* on."""
    for segment in log.segments_between(first, log.end_offset):
        low = max(first - segment.base_offset, 0)
        end = min(segment.size, log.end_offset - segment.base_offset)
        view = memoryview(segment.buffer)
        for begin in range(low, end, _STEP):
            if _TRACE.search(view, begin, min(begin + _STEP + _TRACE_SIZE_MAX, end)) is not None:
                return True
    return False


def imported(
    directory: Path, queues: ConsumeQueues, reader: LogReader, min_offset: int, last_stored_ms: int
) -> TimerRows:
    """Return the timers that RocketMQ has left pending in the store in *directory*.

    Args:
        directory: The store's directory; Eruca has never used the store.
        queues: Its consume queues.
        reader: Reads its records; the key index must be complete.
        min_offset: The beginning of its log.
        last_stored_ms: Store time of the log's last record.

    Raises:
        RecordNotFoundError: A message of the timer topic is damaged.
    """
    parts = [NO_TIMERS]
    delivered = delay_offsets.load(directory)
    for queue_id, queue in delayed_queues(queues, SCHEDULE_TOPIC):
        first = delivered.get(level_of_queue(queue_id), queue.min_offset)
        parts += [rows_of_entries(some) for some in steps(queue, max(first, queue.min_offset))]
    rows = np.concatenate(parts)
    rows = rows[rows[:, 1] >= min_offset]
    ids = _timer_ids(queues)
    timed = _still_waiting(
        ids[ids >= min_offset].tolist(), reader, last_stored_ms, are_unnamed_delivered=True
    )
    if found := len(rows) + len(timed):
        logger.info("delayed messages imported", count=found)
    return np.concatenate([rows, timed])


def take_over(
    pending: TimerRows, queues: ConsumeQueues, reader: LogReader, last_stored_ms: int
) -> TimerRows:
    """Return those of Eruca's *pending* timers that RocketMQ has left pending, and its own.

    Args:
        pending: According to the events, including everything stored since.
        queues: The store's queues.
        reader: Reads its records; the key index must be complete.
        last_stored_ms: Store time of the log's last record.

    Raises:
        RecordNotFoundError: A message of the timer topic is damaged.
    """
    is_timed = np.isin(pending[:, 1], _timer_ids(queues))
    ids = np.sort(pending[is_timed, 1]).tolist()
    waiting = _still_waiting(ids, reader, last_stored_ms, are_unnamed_delivered=False)
    left = np.concatenate([pending[~is_timed], waiting])
    logger.info("delayed messages changed by RocketMQ", ended=len(pending) - len(left))
    return left


def _timer_ids(queues: ConsumeQueues) -> Int64Array:
    """Return the log offsets of the timer topic's messages."""
    parts = [np.zeros(0, np.int64)]
    for _, queue in delayed_queues(queues, TIMER_TOPIC):
        parts += [rows_of_entries(some)[:, 1] for some in steps(queue, queue.min_offset)]
    return np.concatenate(parts)


def _still_waiting(
    log_offsets: Iterable[int],
    reader: LogReader,
    last_stored_ms: int,
    *,
    are_unnamed_delivered: bool,
) -> TimerRows:
    """Return the timers of those messages of the timer topic, in log order, that still wait.

    Args:
        log_offsets: The messages' log offsets.
        reader: Reads their records.
        last_stored_ms: Store time of the log's last record.
        are_unnamed_delivered: Whether messages without a unique id that were due by then are over.
    """
    waiting: defaultdict[_Identity, list[int]] = defaultdict(list)
    recalled: set[_Identity] = set()
    found: list[tuple[int, int]] = []
    for log_offset in log_offsets:
        properties = reader.record(log_offset).property_map()
        identity = _identity_of(properties.get(names.REAL_TOPIC, ""), properties)
        if identity is None:
            continue
        if names.TIMER_DELETE_UNIQ_KEY in properties:
            recalled.add(identity)
        elif identity.unique_id:
            if _ROLL_TIMES in properties:
                waiting[identity].clear()
            waiting[identity].append(log_offset)
        elif identity.due_ms > last_stored_ms or not are_unnamed_delivered:
            found.append((identity.due_ms, log_offset))
    for identity, copies in waiting.items():
        if identity in recalled:
            continue
        may_be_delivered = identity.due_ms <= last_stored_ms
        delivered = _delivered_count(identity, copies[0], reader) if may_be_delivered else 0
        found += [(identity.due_ms, log_offset) for log_offset in copies[delivered:]]
    return np.array(found, np.int64).reshape(-1, 2)


def _delivered_count(identity: _Identity, log_offset: int, reader: LogReader) -> int:
    """Return how often the message that waits at *log_offset* is in its real topic, too."""
    records = reader.by_key(
        identity.topic,
        identity.unique_id,
        count_max=_COPIES_MAX,
        begin_ms=0,
        end_ms=TIMESTAMP_MAX,
        since_offset=log_offset + 1,
    )
    return sum(_identity_of(record.topic, record.property_map()) == identity for record in records)


def _identity_of(topic: str, properties: Mapping[str, str]) -> _Identity | None:
    """Return the identity of a message that waits, waited or is recalled; None without a time."""
    due = properties.get(names.TIMER_OUT_MS, "")
    if not (due.isascii() and due.isdigit()) or len(due) >= 19:
        return None
    unique_id = properties.get(names.UNIQ_KEY, "")
    recalled = properties.get(names.TIMER_DELETE_UNIQ_KEY)
    if recalled is not None:  # later releases of RocketMQ prefix it with the topic
        unique_id = recalled.removeprefix(f"{topic}+")
    return _Identity(topic, unique_id, int(due))
