"""Requests that wait for changes of a group: of its members, or of its queues' locks.

Each waits for some of its group's queues, or for the pseudo-queue that represents its members. A
woken request looks again, and waits again if it finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from eruca_broker.core.state.group_state import Queue
from eruca_chassis.admission.held import HeldPlace, HeldPlaces

MEMBERS: Final[Queue] = ("", 0)  # no topic has an empty name: stands for the members


class GroupWatchers:
    """Requests that wait for queues of a group."""

    def __init__(self, held: HeldPlaces) -> None:
        self._held = held
        self._places: dict[str, dict[Queue, dict[HeldPlace, None]]] = {}  # in order of arrival

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._held)

    @contextmanager
    def watching(self, group: str, queues: Sequence[Queue]) -> Iterator[HeldPlace]:
        """Have a place that changes of *queues* in *group* wake.

        Raises:
            OverloadedError: The maximum of held requests is reached.
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
        """Return the maximum number of waiting requests."""
        return self._held.maximum

    def release_all(self) -> None:
        """Wake all requests, and hold no more: the broker is stopping."""
        self._held.release_all()

    def wake(self, group: str, queues: Iterable[Queue]) -> None:
        """Wake all requests that wait for one of *queues* in *group*."""
        by_queue = self._places.get(group)
        if by_queue:
            for queue in queues:
                for place in by_queue.get(queue, ()):
                    place.wake()

    def wake_group(self, group: str) -> None:
        """Wake all requests that wait for anything in *group*."""
        self.wake(group, list(self._places.get(group, ())))

    def wake_topic(self, topic: str) -> None:
        """Wake all requests that wait for a queue of *topic*, in any group."""
        for by_queue in self._places.values():
            for queue, places in by_queue.items():
                if queue[0] == topic:
                    for place in places:
                        place.wake()
