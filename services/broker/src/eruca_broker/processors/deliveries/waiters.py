"""Requests for deliveries that wait: for messages to arrive, and for anything in their group.

A place is registered twice: with the group's watchers, who wake it when a queue of the group comes
free or a lease ends, and here, by queue, for arrivals. To be woken means to look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from eruca_broker.core.group_state import Queue
from eruca_broker.processors.group_watchers import MEMBERS, GroupWatchers
from eruca_chassis.held import HeldPlace


class DeliveryWaiters:
    """Who waits for messages in which queues."""

    def __init__(self, watchers: GroupWatchers) -> None:
        self._watchers = watchers
        self._places: dict[Queue, dict[HeldPlace, None]] = {}  # in order of arrival

    @contextmanager
    def waiting(self, group: str, queues: Sequence[Queue]) -> Iterator[HeldPlace]:
        """Have a place that is woken by arrivals in *queues*, and by what happens in *group*.

        Raises:
            OverloadedError: As many requests as are allowed are being held.
        """
        with self._watchers.watching(group, [*queues, MEMBERS]) as place:
            for queue in queues:
                self._places.setdefault(queue, {})[place] = None
            try:
                yield place
            finally:
                for queue in queues:
                    places = self._places[queue]
                    del places[place]
                    if not places:
                        del self._places[queue]

    def arrived(self, queues: Iterable[Queue]) -> None:
        """Wake whoever waits for messages in one of *queues*."""
        if self._places:
            for queue in queues:
                for place in self._places.get(queue, ()):
                    place.wake()
