"""Traffic by topic and by group: counted per batch and per commit, never per message.

The number of samples is bounded: beyond a thousand topics, or pairs of group and topic, further
ones are counted together under the name ``(others)``. What was deleted has no samples any more, and
makes room.

A pull does not tell its group; see :mod:`eruca_broker.processors.groups.consumption`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

K = TypeVar("K")

TRAFFIC_MAX: Final = 1_000  # topics, and pairs of group and topic
OTHERS: Final = "(others)"


class Flow:
    """Messages and bytes of records."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, messages: int, size: int) -> None:
        """Count one batch."""
        self.messages += messages
        self.bytes += size


class Flows(Generic[K]):
    """The flows by topic, or by another key.

    Args:
        others: The key of the flow that further keys share.
    """

    __slots__ = ("_flows", "_others")

    def __init__(self, others: K) -> None:
        self._flows: dict[K, Flow] = {}
        self._others = others

    def add(self, key: K, messages: int, size: int = 0) -> None:
        """Count one batch."""
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= TRAFFIC_MAX:
                key = self._others
            flow = self._flows.setdefault(key, Flow())
        flow.add(messages, size)

    def get(self, key: K) -> Flow | None:
        """Return the flow of *key*: an empty one for a new key, None if it is in the others'."""
        flow = self._flows.get(key)
        return Flow() if flow is None and len(self._flows) < TRAFFIC_MAX else flow

    def items(self, exists: Callable[[K], bool]) -> Iterable[tuple[K, Flow]]:
        """Return all flows; forget those whose key does not exist any more."""
        gone = [key for key in self._flows if key != self._others and not exists(key)]
        for key in gone:
            del self._flows[key]
        return self._flows.items()


def by_topic() -> Flows[str]:
    """Return flows by topic."""
    return Flows(OTHERS)


def by_group() -> Flows[tuple[str, str]]:
    """Return flows by group and topic."""
    return Flows((OTHERS, OTHERS))
