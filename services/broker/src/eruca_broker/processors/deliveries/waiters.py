"""Held requests for deliveries: they wait for arrivals, and for changes of their group.

A place is registered twice. The group's watchers wake it when a queue of the group is released or a
lease ends. This module wakes it, by topic, for arrivals, also in a queue that the topic gets
meanwhile. A woken request looks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from eruca_broker.core.state.group_state import Queue
from eruca_broker.processors.groups.watchers import MEMBERS, GroupWatchers
from eruca_chassis.admission.held import HeldPlace


class DeliveryWaiters:
    """Requests that wait for messages, by topic."""

    def __init__(self, watchers: GroupWatchers) -> None:
        self._watchers = watchers
        self._places: dict[str, dict[HeldPlace, None]] = {}  # by topic; in order of arrival

    @contextmanager
    def waiting(self, group: str, topic: str, queue_count: int) -> Iterator[HeldPlace]:
        """Have a place that arrivals in *topic* and changes of *group* wake.

        Raises:
            OverloadedError: The maximum of held requests is reached.
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
        """Wake all requests that wait for messages in one of *queues*."""
        if self._places:
            for topic in dict.fromkeys(topic for topic, _ in queues):
                for place in self._places.get(topic, ()):
                    place.wake()
