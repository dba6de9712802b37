"""Control records of what happens to messages later: timers, and dead letters sent on their way.

A timer is a waiting message; its id is the record's log offset. That one was set needs no event,
for the record says it. That it has ended does: it was fired, or recalled.

Some events head a **group**: the records behind them, ``group_size`` bytes of them, were handed to
the disk in the same write and belong to them. A group is whole or it is not there: if a crash of
the machine has torn it, the start cuts the log in front of its event. So "fired" and "delivered"
are one fact, and so are "redriven" and "sent again".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

TIMERS_PER_PART_MAX: Final = 32_768  # in one part of a snapshot: 700 KB of JSON
_TIMER_SIZE: Final = 22  # bytes of JSON for one
_REDRIVEN_SIZE: Final = 40  # … for a redriven dead letter

TimerRows: TypeAlias = NDArray[np.int64]
"""Timers as rows: delivery time in ms since the epoch, id."""


class TimersFired(msgspec.Struct, frozen=True, tag="timers_fired", tag_field="event"):
    """These timers have ended: what they held back follows, delivered.

    Or carried forward: delivered to the timer topic again, with the same time, before retention
    deletes the segment it was in. Or nothing follows of it, where its topic has been deleted.
    """

    timers: list[int]
    group_size: int  # bytes


class TimersCancelled(msgspec.Struct, frozen=True, tag="timers_cancelled", tag_field="event"):
    """These timers have ended: what they held back was recalled."""

    timers: list[int]


class DeadLettersRedriven(
    msgspec.Struct, frozen=True, tag="dead_letters_redriven", tag_field="event"
):
    """Dead letters of a group follow, sent to their topics of origin again."""

    group: str
    dead_letters: list[int]  # offsets in the dead-letter topic's queue
    redriven_at: int  # ms since the epoch
    group_size: int  # bytes


class Redriven(msgspec.Struct, frozen=True, array_like=True):
    """Which dead letters of a group were redriven, in a snapshot."""

    group: str
    dead_letters: list[int]
    redriven_at: list[int]


class TimersSnapshot(msgspec.Struct, frozen=True, tag="timers_snapshot", tag_field="event"):
    """One part of what was pending when part 1 was written.

    The parts stand directly in front of the snapshot of the state, which makes them valid. Timers
    stored at log offset ``since`` or later are not among them: the consume queues have those.
    """

    part: int  # 1 … parts
    parts: int
    since: int
    timers: bytes = b""  # rows of two little-endian 64-bit numbers: delivery time, id
    redriven: list[Redriven] = []


TimerEvent: TypeAlias = TimersFired | TimersCancelled | DeadLettersRedriven | TimersSnapshot
GROUP_HEADS: Final = (TimersFired, DeadLettersRedriven)
"""Events that head a group."""


def split_timers(
    rows: TimerRows, since: int, redriven: Sequence[Redriven], *, part_size_max: int
) -> list[TimersSnapshot]:
    """Return the parts of a snapshot of *rows*, each of about *part_size_max* bytes of JSON."""
    count_max = max(min(part_size_max // _TIMER_SIZE, TIMERS_PER_PART_MAX), 1)
    contents: list[tuple[bytes, list[Redriven]]] = [
        (rows[first : first + count_max].astype("<i8").tobytes(), [])
        for first in range(0, len(rows), count_max)
    ]
    contents += [(b"", [some]) for some in _pieces(redriven, part_size_max // _REDRIVEN_SIZE)]
    return [
        TimersSnapshot(number, len(contents) or 1, since, timers, some)
        for number, (timers, some) in enumerate(contents or [(b"", [])], 1)
    ]


def rows_of(part: TimersSnapshot) -> TimerRows:
    """Return the timers in one part of a snapshot."""
    return np.frombuffer(part.timers, "<i8").reshape(-1, 2).astype(np.int64)


def _pieces(redriven: Sequence[Redriven], count_max: int) -> Iterator[Redriven]:
    step = max(count_max, 1)
    for item in redriven:
        for first in range(0, len(item.dead_letters), step):
            yield Redriven(
                item.group,
                item.dead_letters[first : first + step],
                item.redriven_at[first : first + step],
            )
