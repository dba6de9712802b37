"""The life line of a message: its events as bars on one scale of time.

An event lasts until the next event of the same actor: of the same group, or of the message itself.
The last event of an actor is a point, and so are events after which the actor waits for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from eruca.contract.queries import LifeEvent, LifeEventKind

_POINTS: Final = frozenset(
    {
        LifeEventKind.ACKED,
        LifeEventKind.DEAD_LETTER,
        LifeEventKind.DECIDED,
        LifeEventKind.PARKED,
        LifeEventKind.RECALLED,
        LifeEventKind.REDRIVEN,
    }
)
_TROUBLE: Final = frozenset(
    {
        LifeEventKind.DEAD_LETTER,
        LifeEventKind.LEASE_EXPIRED,
        LifeEventKind.NACKED,
        LifeEventKind.PARKED,
        LifeEventKind.SENT_BACK,
    }
)


@dataclass(frozen=True, slots=True)
class LifeSpan:
    """One event of a life line.

    Attributes:
        event: The event.
        group: The group that it concerns; empty: the message itself.
        since_first_ms: Milliseconds since the first event.
        lasts_ms: Milliseconds until the next event of the same actor; None: a point.
        begin: Its beginning on the scale, from 0 to 100.
        width: Its length on the scale; 0: a point.
        is_trouble: Whether something went wrong.
    """

    event: LifeEvent
    group: str
    since_first_ms: int
    lasts_ms: int | None
    begin: float
    width: float
    is_trouble: bool


def life_line(events: Sequence[LifeEvent]) -> list[LifeSpan]:
    """Return the spans of *events*, which are in the order of their times."""
    if not events:
        return []
    first = events[0].at
    total_ms = max(_ms(events[-1].at - first), 1)
    spans: list[LifeSpan] = []
    for number, event in enumerate(events):
        group = _group_of(event)
        following = (one for one in events[number + 1 :] if _group_of(one) == group)
        next_event = None if event.kind in _POINTS else next(following, None)
        since = _ms(event.at - first)
        # Clocks of two brokers differ: an event may seem to begin before the first one.
        begin = min(max(since / total_ms, 0), 1) * 100
        lasts = None if next_event is None else max(_ms(next_event.at - event.at), 0)
        width = 0.0 if lasts is None else min(lasts / total_ms * 100, 100 - begin)
        spans.append(LifeSpan(event, group, since, lasts, begin, width, event.kind in _TROUBLE))
    return spans


def _group_of(event: LifeEvent) -> str:
    return str(event.detail.get("group") or "")


def _ms(span: timedelta) -> int:
    return round(span / timedelta(milliseconds=1))
