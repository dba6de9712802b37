"""Control records of later deliveries: the ends of timers, and redriven dead letters.

A timer is a waiting message; its id is the record's log offset. Setting one needs no event, because
the record is enough. Its end is an event: it was fired, or recalled.

The records behind an event with a ``group_size`` belong to it: see
:mod:`eruca_broker.core.state.record_groups`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from eruca.contract.records import BLANK_SIZE_MIN
from eruca_broker.core.records.scheduled import CARRIED_SIZE_MAX

TIMERS_PER_ITEM: Final = 40  # of a snapshot: this many take the room of an ordinary item
_TIMERS_PER_PIECE_MAX: Final = 32_768  # 700 KB of JSON
_FIRED_SIZE_MAX: Final = 256  # bytes of the record that ends a single timer

TimerRows: TypeAlias = NDArray[np.int64]
"""Timers as rows: delivery time in ms since the epoch, id."""


class TimersFired(msgspec.Struct, frozen=True, tag="timers_fired", tag_field="event"):
    """These timers have ended: their messages follow, delivered.

    Or they were carried forward: delivered to the timer topic again, with the same time, before
    retention deletes their segment. Or nothing follows, because their topic was deleted.
    """

    timers: list[int]
    group_size: int  # bytes


class TimersCancelled(msgspec.Struct, frozen=True, tag="timers_cancelled", tag_field="event"):
    """These timers have ended: their messages were recalled."""

    timers: list[int]


class DeadLettersRedriven(
    msgspec.Struct, frozen=True, tag="dead_letters_redriven", tag_field="event"
):
    """Dead letters of a group follow, sent to their topics of origin again."""

    group: str
    dead_letters: list[int]  # offsets in the dead-letter topic's queue
    redriven_at: int  # ms since the epoch
    group_size: int  # bytes


TimerEvent: TypeAlias = TimersFired | TimersCancelled | DeadLettersRedriven


def fired_record_size_max(segment_bytes: int) -> int:
    """Return the size of the largest record that fits into a segment behind its own event."""
    return segment_bytes - BLANK_SIZE_MIN - _FIRED_SIZE_MAX


def waiting_record_size_max(segment_bytes: int) -> int:
    """Return the maximum size of a waiting record: it may have to be carried forward too."""
    return fired_record_size_max(segment_bytes) - CARRIED_SIZE_MAX


class TimersPiece(msgspec.Struct, frozen=True, array_like=True):
    """Some of the pending timers, in a snapshot.

    Timers stored at log offset ``since`` or later are not among them: they are in consume queues.
    """

    since: int
    rows: bytes  # pairs of little-endian 64-bit numbers: delivery time, id


def timer_pieces(rows: TimerRows, since: int, items_max: int) -> Iterator[tuple[TimersPiece, int]]:
    """Yield *rows* for a snapshot, in pieces of at most *items_max* items, each with its weight."""
    size = min(items_max * TIMERS_PER_ITEM, _TIMERS_PER_PIECE_MAX)
    for first in range(0, max(len(rows), 1), size):
        some = rows[first : first + size]
        weight = max(len(some) // TIMERS_PER_ITEM, 1)
        yield TimersPiece(since, some.astype("<i8").tobytes()), weight


def rows_of(piece: TimersPiece) -> TimerRows:
    """Return the timers in a piece of a snapshot."""
    return np.frombuffer(piece.rows, "<i8").reshape(-1, 2).astype(np.int64)
