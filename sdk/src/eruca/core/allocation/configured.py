"""Shares by configuration: each member reads its configured queues, whatever the other members.

Nothing checks that the members' lists cover a topic or are disjoint. No member reads a queue that
is in no list. If a queue is in two lists, the member that holds its lock reads it. The lists need
not name the group's retry topic: :func:`eruca.core.consuming.rebalance.share_of` divides it among
all members.

Source: RocketMQ 5.3, ``AllocateMessageQueueByConfig``, which returns the list for every topic the
group subscribes to; :func:`eruca.core.allocation.allocate` keeps the queues of the given topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eruca.core.messages.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class ByConfig:
    """Give this member the configured queues, whatever the lists contain."""

    queues: tuple[MessageQueue, ...] = ()

    @property
    def name(self) -> str:
        """Return the rule's name."""
        return "CONFIG"

    def share(
        self,
        queues: Sequence[MessageQueue],
        members: Sequence[str],
        member: str,
    ) -> list[MessageQueue]:
        """Return the configured queues, including those of other topics."""
        return list(self.queues)
