"""Find the messages that wait for their time or for a decision, in segments without a store.

A segment begins with a snapshot of the state. So the control records of a log's last segments tell
which earlier messages are still needed, before those are here.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import decode_record
from eruca_broker.core.log.recovery import walk
from eruca_broker.core.state.events import EVENTS_QUEUE_ID, Event, StateSnapshot, decode_event
from eruca_broker.core.state.state import BrokerState
from eruca_broker.store.state.timers_fold import TimersFold


class Waiting(NamedTuple):
    """The messages that still wait at the end of some segments."""

    offsets: list[int]  # log offsets of those before the first segment, in order


def waiting_before(segments: list[tuple[Path, int]]) -> Waiting | None:
    """Return the messages before *segments* that wait; None: the segments have no whole snapshot.

    Args:
        segments: The files of consecutive segments with their log offsets, oldest first; their
            records are verified.

    Raises:
        OSError: A file cannot be read.
        UnknownEventError: A later version of the broker has written it.
    """
    state, timers = BrokerState(), TimersFold()
    has_begun = is_known = False
    for path, base in segments:
        for event, log_offset in _events(path, base):
            if isinstance(event, StateSnapshot):
                has_begun |= event.part == 1
                is_known |= has_begun and event.part == event.parts
            if has_begun:  # what is before the first snapshot is in it
                state.apply(event, log_offset)
                timers.apply(event, log_offset)
    begin = segments[0][1]
    undecided = [live.offset for live in state.transactions.before(begin)]
    return Waiting(sorted([*timers.before(begin), *undecided])) if is_known else None


def _events(path: Path, base: int) -> Iterator[tuple[Event, int]]:
    with path.open("rb") as file:
        # Closed once nothing refers to it: the columns of the walk are views of it.
        segment = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    for step in walk(segment, 0, base):
        if step.columns is None:
            continue
        is_event = step.topics.rows_of(EVENTS_TOPIC) & (step.columns.queue_ids == EVENTS_QUEUE_ID)
        for start in step.columns.starts[np.flatnonzero(is_event)].tolist():
            yield decode_event(decode_record(memoryview(segment), start).body), base + start
