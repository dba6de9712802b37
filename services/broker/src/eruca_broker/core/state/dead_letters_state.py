"""Redriven dead letters, with the time of each redrive: part of the broker's state.

A redriven dead letter stays in its topic, because the log is never changed. An event records the
redrive. Dead letters that retention has deleted are dropped with the next snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from eruca.contract.names import DEAD_LETTER_TOPIC_PREFIX
from eruca_broker.core.state.timers_events import DeadLettersRedriven

REDRIVEN_PER_ITEM: Final = 25  # of a snapshot: this many take the room of an ordinary item


class RedrivenPiece(msgspec.Struct, frozen=True, array_like=True):
    """Redriven dead letters of a group, in a snapshot."""

    group: str
    dead_letters: list[int]
    redriven_at: list[int]  # ms since the epoch


class RedrivenLetters:
    """For each group, the offsets of redriven dead letters, with the time."""

    def __init__(self) -> None:
        self._times: dict[str, dict[int, int]] = {}

    def apply(self, event: DeadLettersRedriven) -> None:
        """Fold an event."""
        times = self._times.setdefault(event.group, {})
        times.update(dict.fromkeys(event.dead_letters, event.redriven_at))

    def redriven_at(self, group: str, dead_letter: int) -> int | None:
        """Return when a dead letter was redriven last, in ms since the epoch; None: never."""
        return self._times.get(group, {}).get(dead_letter)

    def forget_topic(self, topic: str) -> None:
        """Forget everything about the dead letters of a topic that was deleted."""
        if topic.startswith(DEAD_LETTER_TOPIC_PREFIX):
            self._times.pop(topic.removeprefix(DEAD_LETTER_TOPIC_PREFIX), None)

    def forget_before(self, first_of: Callable[[str], int]) -> None:
        """Forget dead letters that retention has deleted; *first_of* a group is still stored."""
        for group, times in list(self._times.items()):
            lowest = first_of(group)
            kept = {offset: at for offset, at in times.items() if offset >= lowest}
            if kept:
                self._times[group] = kept
            else:
                del self._times[group]

    def copy(self) -> RedrivenLetters:
        """Return an independent copy."""
        copied = RedrivenLetters()
        copied._times = {group: dict(times) for group, times in self._times.items()}
        return copied

    def pieces(self, items_max: int) -> Iterator[tuple[RedrivenPiece, int]]:
        """Yield everything for a snapshot, each piece with its weight."""
        size = items_max * REDRIVEN_PER_ITEM
        for group, times in self._times.items():
            offsets = list(times)
            for first in range(0, len(offsets), size):
                some = offsets[first : first + size]
                piece = RedrivenPiece(group, some, [times[offset] for offset in some])
                yield piece, max(len(some) // REDRIVEN_PER_ITEM, 1)

    def load(self, piece: RedrivenPiece) -> None:
        """Add a piece of a snapshot."""
        times = self._times.setdefault(piece.group, {})
        times.update(zip(piece.dead_letters, piece.redriven_at, strict=True))
