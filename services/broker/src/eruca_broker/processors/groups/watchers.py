"""Requests that wait for something in a group: for its members to change, for a queue to be free.

Each waits for some of its group's queues, or for the pseudo-queue that stands for its members. To
be woken means to look again; who finds nothing waits on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from eruca_broker.core.state.group_state import Queue
from eruca_chassis.held import HeldPlace, HeldPlaces

MEMBERS: Final[Queue] = ("", 0)  # no topic has an empty name: who waits for the members to change


class GroupWatchers:
    """Requests that wait for queues of a group."""

    def __init__(self, held: HeldPlaces) -> None:
        self._held = held
        self._places: dict[str, dict[Queue, dict[HeldPlace, None]]] = {}  # in order of arrival

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._held)

    @contextmanager
    def watching(self, group: str, queues: Sequence[Queue]) -> Iterator[HeldPlace]:
        """Have a place that is woken by anything about *queues* in *group*.

        Raises:
            OverloadedError: As many requests as are allowed are being held.
        """
        with self._held.place() as place:
            by_queue = self._places.setdefault(group, {})
            for queue in queues:
                by_queue.setdefault(queue, {})[place] = None
            try:
                yield place
            finally:
                for queue in queues:
                    del by_queue[queue][place]
                    if not by_queue[queue]:
                        del by_queue[queue]
                if not by_queue and self._places.get(group) is by_queue:
                    del self._places[group]

    @property
    def size_max(self) -> int:
        """The maximum number of waiting requests."""
        return self._held.maximum

    def release_all(self) -> None:
        """Let everyone go, and hold nobody any more: the broker is stopping."""
        self._held.release_all()

    def wake(self, group: str, queues: Iterable[Queue]) -> None:
        """Wake whoever waits for one of *queues* in *group*."""
        by_queue = self._places.get(group)
        if by_queue:
            for queue in queues:
                for place in by_queue.get(queue, ()):
                    place.wake()

    def wake_group(self, group: str) -> None:
        """Wake whoever waits for anything in *group*."""
        self.wake(group, list(self._places.get(group, ())))

    def wake_topic(self, topic: str) -> None:
        """Wake whoever waits for a queue of *topic*, in any group."""
        for by_queue in self._places.values():
            for queue, places in by_queue.items():
                if queue[0] == topic:
                    for place in places:
                        place.wake()
