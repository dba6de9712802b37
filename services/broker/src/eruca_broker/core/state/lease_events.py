"""Control records of deliveries: leases, and their ends.

There is one record for each request. Each is conditional. It names the facts on which it was
decided: the queue's position, the attempt, the fence of the lease. If a fact has changed, the
record changes nothing. So anything may come between a decision and its record, for example a reset,
and the fold is correct without locks.

Dead letters that such a record causes follow it in the same write; see
:mod:`eruca_broker.core.state.record_groups`.

The end of a lease by time is not an event: the record contains the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec


class LeasedMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message that was handed out, and its attempt."""

    offset: int
    attempt: int  # from 1


class DeliveriesLeased(msgspec.Struct, frozen=True, tag="deliveries_leased", tag_field="event"):
    """Messages of one queue were handed out, or passed over; its log offset is their fence.

    It is valid only while the queue is at *from_position* and each redelivered message has had one
    attempt less. Otherwise it changes nothing at all.
    """

    group: str
    topic: str
    queue_id: int
    from_position: int
    position: int  # all before it is leased, overtaken, unfinished from before, or finished
    visible_at: int  # ms since the epoch: from then on they may be handed out again
    leased: list[LeasedMessage] = []
    # Offsets of those that must wait for an earlier message of their key; stored as "parked".
    overtaken: list[int] = msgspec.field(name="parked", default_factory=list)
    # Unfinished ones that nobody will receive: deleted, or dead letters now.
    finished: list[int] = []
    group_size: int = 0  # bytes of the dead letters that follow


class HeldLease(msgspec.Struct, frozen=True, array_like=True):
    """A lease, as its handle names it."""

    offset: int
    fence: int  # log offset of the event that made it


class QueueLeaseRefs(msgspec.Struct, frozen=True, array_like=True):
    """Leases in one queue."""

    topic: str
    queue_id: int
    leases: list[HeldLease]


class DeliveriesAcked(msgspec.Struct, frozen=True, tag="deliveries_acked", tag_field="event"):
    """Messages are finished: acknowledged, or dead letters now. All of them, or none."""

    group: str
    queues: list[QueueLeaseRefs]


class DeliveriesExtended(msgspec.Struct, frozen=True, tag="deliveries_extended", tag_field="event"):
    """Leases last until *visible_at*; their fences stay. All of them, or none."""

    group: str
    visible_at: int
    queues: list[QueueLeaseRefs]


class NackedLease(msgspec.Struct, frozen=True, array_like=True):
    """A rejected lease (nack), and the time from which its message may be handed out again."""

    offset: int
    fence: int
    due_at: int  # ms since the epoch


class QueueNacks(msgspec.Struct, frozen=True, array_like=True):
    """Leases in one queue that were rejected."""

    topic: str
    queue_id: int
    leases: list[NackedLease]
    finished: list[HeldLease] = []  # those that became dead letters instead


class DeliveriesNacked(msgspec.Struct, frozen=True, tag="deliveries_nacked", tag_field="event"):
    """Leases were rejected; their messages are redelivered, or are dead letters. All, or none."""

    group: str
    queues: list[QueueNacks]
    group_size: int = 0  # bytes of the dead letters that follow


LeaseEvent: TypeAlias = DeliveriesLeased | DeliveriesAcked | DeliveriesExtended | DeliveriesNacked


class UnfinishedMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message before its queue's position that is not finished, in a snapshot."""

    offset: int
    attempt: int
    fence: int
    due_at: int


class SnapshotLeases(msgspec.Struct, frozen=True, array_like=True):
    """The unfinished messages in one queue of a group, or a part of them if there are many."""

    group: str
    topic: str
    queue_id: int
    position: int
    unfinished: list[UnfinishedMessage]


def split_leases(pieces: Iterable[SnapshotLeases], *, items_max: int) -> list[SnapshotLeases]:
    """Return *pieces*, each of at most *items_max* messages."""
    return [
        msgspec.structs.replace(piece, unfinished=piece.unfinished[first : first + items_max])
        for piece in pieces
        for first in range(0, len(piece.unfinished), items_max)
    ]
