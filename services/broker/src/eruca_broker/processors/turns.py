"""Turns: what is done about one thing is done one after another, without a task or a lock.

Looking and changing lie apart, for an event takes effect only once it is in the log. Meanwhile
whoever wants to do something about the same thing waits, and then looks anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Failed: TypeAlias = Callable[[Exception], None]
_Waiting: TypeAlias = tuple[Callable[[], None], Failed]


class Turns:
    """Turns by name: one holder at a time."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[_Waiting]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def is_taken(self, name: str) -> bool:
        """Tell whether something is being done."""
        return name in self._waiting

    def wait(self, name: str, step: Callable[[], None], failed: Failed) -> None:
        """Let *step* be called when a turn that is taken is over; what it raises *failed* is told.

        One that waits must not stop those behind it; so *failed* itself must not raise.
        """
        self._waiting[name].append((step, failed))

    def take(self, name: str) -> None:
        """Begin a turn, which nobody has."""
        assert name not in self._waiting
        self._waiting[name] = []

    def give(self, name: str) -> None:
        """End a turn; whoever waited goes on, in order, until one takes the next."""
        waiting = self._waiting.pop(name)
        for number, (step, failed) in enumerate(waiting):
            try:
                step()
            except Exception as error:  # the outermost frame of what waited
                failed(error)
            if name in self._waiting:
                self._waiting[name] += waiting[number + 1 :]
                return
