"""Shares by configuration: each member reads the queues it was told to, whoever else is there.

Nothing checks that the members' lists cover a topic or stay apart. A queue that is in no list is
read by nobody; one that is in two is read by whichever member locked it. The group's retry topic
needs no mention: :func:`eruca.core.consuming.rebalance.share_of` has all members share it.

Source: RocketMQ 5.3, ``AllocateMessageQueueByConfig``, which returns the list for every topic the
group subscribes to; :func:`eruca.core.allocation.allocate` keeps what belongs to the topic at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eruca.core.messages.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class ByConfig:
    """Give this member the same queues whatever the lists hold."""

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
        """Return the configured queues, those of other topics too."""
        return list(self.queues)
