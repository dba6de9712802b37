"""Even shares: no two members' shares differ by more than one queue.

If the number of queues or members changes by one, most queues can move; see
:mod:`eruca.core.allocation.ring` for the opposite choice.

Source: RocketMQ 5.3, ``AllocateMessageQueueAveragely``, ``AllocateMessageQueueAveragelyByCircle``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eruca.core.allocation.strategy import divided, is_to_share
from eruca.core.messages.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class Averagely:
    """Give each member one run of adjacent queues; the first members get one queue more."""

    @property
    def name(self) -> str:
        """Return the rule's name."""
        return "AVG"

    def share(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        """Return *member*'s run of *queues*, by its place in *members*."""
        if not is_to_share(queues, members, member):
            return []
        size, remainder = divmod(len(queues), len(members))
        index = members.index(member)
        start = index * size + min(index, remainder)
        return divided(queues, list(queues[start : start + size + (index < remainder)]))


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Deal the queues out in turn, which spreads each broker's queues over the members."""

    @property
    def name(self) -> str:
        """Return the rule's name."""
        return "AVG_BY_CIRCLE"

    def share(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        """Return every queue that *member*'s turn falls on."""
        if not is_to_share(queues, members, member):
            return []
        return divided(queues, list(queues[members.index(member) :: len(members)]))
