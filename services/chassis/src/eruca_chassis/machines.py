"""State machines as tables: one row for each transition, and nothing else is possible.

A machine's states and events are two enumerations, its transitions a constant beside the code that
obeys them::

    DOOR: Final = Machine(
        (Door.SHUT, Move.OPENED, Door.OPEN),
        (Door.OPEN, Move.CLOSED, Door.SHUT),
    )

Use :meth:`Machine.after` to decide: None means that the event does not fit the state. Use
:meth:`Machine.step` where that is already decided: an event that does not fit is a defect.

The tables are drawn in each service's DESIGN.md, and ``tests/house/test_machines.py`` compares the
two. Pure: no clock, no I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)


class Machine(Generic[_State, _Event]):
    """A table from state and event to the next state; made of rows ``(state, event, next)``."""

    def __init__(self, *rows: tuple[_State, _Event, _State]) -> None:
        self.rows = rows
        self._next = {(state, event): following for state, event, following in rows}
        assert len(self._next) == len(rows), "two rows of a machine start alike"

    def after(self, state: _State, event: _Event) -> _State | None:
        """Return the state after *event*, or None if it cannot happen in *state*."""
        return self._next.get((state, event))

    def step(self, state: _State, event: _Event) -> _State:
        """Return the state after *event*, which the caller knows to be possible in *state*."""
        following = self._next.get((state, event))
        assert following is not None, f"{event!r} cannot happen in state {state!r}"
        return following
