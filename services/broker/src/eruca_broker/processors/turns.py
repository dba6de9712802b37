"""Turns: actions on one thing happen one after another, without a task or a lock.

A look and its change are separate in time, because an event takes effect only once it is in the
log. Other actions on the same thing wait meanwhile, and then look again.
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
        """Tell whether an action is in progress."""
        return name in self._waiting

    def wait(self, name: str, step: Callable[[], None], failed: Failed) -> None:
        """Call *step* when a taken turn is over; *failed* gets the error that it raises.

        A waiting step must not stop those behind it, so *failed* itself must not raise.
        """
        self._waiting[name].append((step, failed))

    def take(self, name: str) -> None:
        """Begin a turn that nobody holds."""
        assert name not in self._waiting
        self._waiting[name] = []

    def give(self, name: str) -> None:
        """End a turn; waiting steps continue, in order, until one takes the next turn."""
        waiting = self._waiting.pop(name)
        for number, (step, failed) in enumerate(waiting):
            try:
                step()
            except Exception as error:  # the outermost frame of the waiting steps
                failed(error)
            if name in self._waiting:
                self._waiting[name] += waiting[number + 1 :]
                return
