"""Shares by consistent hashing: few queues move when a member joins or leaves.

The ring has 32-bit positions. A hash places each queue on it once and each member
``virtual_nodes`` times. A queue belongs to the first member at or after its position; past the end,
to the first member of all. A leaving member's queues go to its neighbours; no others move. The cost
is uneven shares: with ten nodes per member, one member may get three times as many queues as
another, or none.

Source: RocketMQ 5.3, ``AllocateMessageQueueConsistentHash``, ``ConsistentHashRouter``. What is
hashed and how is RocketMQ's, so Java members of a group would agree with ours.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from eruca.core.allocation.strategy import (
    AllocationError,
    AllocationFault,
    divided,
    is_to_share,
)
from eruca.core.messages.message_queue import MessageQueue

VIRTUAL_NODES: Final = 10  # RocketMQ's: more nodes, evener shares, slower ring
_POSITION_BYTES: Final = 4


def md5_position(key: str) -> int:
    """Return the ring position of *key*: the first four bytes of its MD5, big-endian."""
    # Not hash(): Python salts it per process, so no two members would build the same ring.
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:_POSITION_BYTES])


def queue_key(queue: MessageQueue) -> str:
    """Return the text to hash for *queue*: Java's ``toString`` of it."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Give each queue to the member that follows it on the ring.

    ``position`` may be any function that is the same in every member.
    """

    virtual_nodes: int = VIRTUAL_NODES
    position: Callable[[str], int] = md5_position

    def __post_init__(self) -> None:
        """Refuse a negative number of virtual nodes; with 0, all shares are empty."""
        if self.virtual_nodes < 0:
            raise AllocationError(
                AllocationFault.VIRTUAL_NODES_NEGATIVE,
                f"virtual_nodes: expected 0 or more, found {self.virtual_nodes}",
            )

    @property
    def name(self) -> str:
        """Return the rule's name."""
        return "CONSISTENT_HASH"

    def ring(self, members: Sequence[str]) -> list[tuple[int, str, str]]:
        """Return (position, node key, member), by position.

        If two nodes have one position, the later one stays. A member listed twice has twice as many
        nodes, with consecutive numbers.
        """
        nodes: dict[int, tuple[int, str, str]] = {}
        placed: Counter[str] = Counter()
        for member in members:
            for number in range(placed[member], placed[member] + self.virtual_nodes):
                key = f"{member}-{number}"
                position = self.position(key)
                nodes[position] = position, key, member
            placed[member] += self.virtual_nodes
        return sorted(nodes.values())

    def share(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        """Return the queues whose next node on the ring is *member*'s."""
        if not is_to_share(queues, members, member):
            return []
        ring = self.ring(members)
        if not ring:
            return []
        positions = [node[0] for node in ring]

        def owner(queue: MessageQueue) -> str:
            index = bisect_left(positions, self.position(queue_key(queue)))
            return ring[index % len(ring)][2]

        return divided(queues, [queue for queue in queues if owner(queue) == member])
