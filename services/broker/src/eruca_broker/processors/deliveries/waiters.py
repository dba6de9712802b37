"""Requests for deliveries that wait: for messages to arrive, and for anything in their group.

A place is registered twice: with the group's watchers, who wake it when a queue of the group comes
free or a lease ends, and here, by topic, for arrivals: a queue that the topic is given meanwhile
counts, too. To be woken means to look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from eruca_broker.core.state.group_state import Queue
from eruca_broker.processors.groups.watchers import MEMBERS, GroupWatchers
from eruca_chassis.held import HeldPlace


class DeliveryWaiters:
    """Requests that wait for messages, by topic."""

    def __init__(self, watchers: GroupWatchers) -> None:
        self._watchers = watchers
        self._places: dict[str, dict[HeldPlace, None]] = {}  # by topic; in order of arrival

    @contextmanager
    def waiting(self, group: str, topic: str, queue_count: int) -> Iterator[HeldPlace]:
        """Have a place that is woken by arrivals in *topic*, and by what happens in *group*.

        Raises:
            OverloadedError: As many requests as are allowed are being held.
        """
        queues = [(topic, queue_id) for queue_id in range(queue_count)]
        with self._watchers.watching(group, [*queues, MEMBERS]) as place:
            places = self._places.setdefault(topic, {})
            places[place] = None
            try:
                yield place
            finally:
                del places[place]
                if not places:
                    del self._places[topic]

    def arrived(self, queues: Iterable[Queue]) -> None:
        """Wake whoever waits for messages in one of *queues*."""
        if self._places:
            for topic in dict.fromkeys(topic for topic, _ in queues):
                for place in self._places.get(topic, ()):
                    place.wake()
