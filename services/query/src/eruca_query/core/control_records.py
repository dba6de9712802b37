"""The part of the broker's control records that the query service reads.

Control records are messages of the events topic: the tag names the kind, the body is JSON. Only the
kinds and fields in use are declared here. Other fields, and unknown kinds, are ignored.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from eruca.contract.transaction_events import (
    TransactionChecked,
    TransactionDecided,
    TransactionParked,
)


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A group's next offset in a queue."""

    topic: str
    queue_id: int
    offset: int


class OffsetsCommitted(msgspec.Struct, frozen=True):
    """A group stored its positions."""

    group: str
    offsets: list[Position]


class OffsetsReset(msgspec.Struct, frozen=True):
    """Positions were set from outside."""

    group: str
    offsets: list[Position]


class LocksReleased(msgspec.Struct, frozen=True):
    """Queues were unlocked; their reader committed these positions with it."""

    group: str
    offsets: list[Position] = []


class Start(msgspec.Struct, frozen=True, array_like=True):
    """The initial offset of a group in a queue."""

    queue_id: int
    offset: int
    reason: str


class Starts(msgspec.Struct, frozen=True, array_like=True):
    """The initial offsets of a group in queues of a topic."""

    topic: str
    starts: list[Start]


class StartsResolved(msgspec.Struct, frozen=True):
    """A group used topics for the first time."""

    group: str
    topics: list[Starts]


class Subscribed(msgspec.Struct, frozen=True, array_like=True):
    """A topic, and the filter for its messages."""

    topic: str
    filter: str
    filter_type: str


class GroupSubscribed(msgspec.Struct, frozen=True):
    """A group's subscriptions were replaced."""

    group: str
    subscriptions: list[Subscribed]


class GroupDeleted(msgspec.Struct, frozen=True):
    """A group was deleted."""

    group: str


class TopicDeleted(msgspec.Struct, frozen=True):
    """A topic was deleted; a topic of that name created later starts empty."""

    topic: str


class Leased(msgspec.Struct, frozen=True, array_like=True):
    """A leased message, and the number of this delivery."""

    offset: int
    attempt: int


class DeliveriesLeased(msgspec.Struct, frozen=True):
    """Messages of one queue were leased."""

    group: str
    topic: str
    queue_id: int
    position: int
    visible_at: int  # ms since the epoch
    leased: list[Leased] = []
    finished: list[int] = []  # offsets with an expired lease that are not delivered again


class HeldLease(msgspec.Struct, frozen=True, array_like=True):
    """A message that was leased."""

    offset: int
    fence: int


class QueueLeases(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a queue that were leased."""

    topic: str
    queue_id: int
    leases: list[HeldLease]


class DeliveriesAcked(msgspec.Struct, frozen=True):
    """Messages were acknowledged."""

    group: str
    queues: list[QueueLeases]


class DeliveriesExtended(msgspec.Struct, frozen=True):
    """Leases were extended."""

    group: str
    visible_at: int
    queues: list[QueueLeases]


class NackedLease(msgspec.Struct, frozen=True, array_like=True):
    """A nacked message, and when it may be delivered again."""

    offset: int
    fence: int
    due_at: int


class QueueNacks(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a queue that were nacked."""

    topic: str
    queue_id: int
    leases: list[NackedLease]
    finished: list[HeldLease] = []


class DeliveriesNacked(msgspec.Struct, frozen=True):
    """Messages were nacked; they are redelivered, or are dead letters."""

    group: str
    queues: list[QueueNacks]


class TimersCancelled(msgspec.Struct, frozen=True):
    """Delayed messages were cancelled; each timer is the log offset of the delayed message."""

    timers: list[int]


class DeadLettersRedriven(msgspec.Struct, frozen=True):
    """Dead letters were sent to their original topics again."""

    group: str
    dead_letters: list[int]  # offsets in the dead-letter topic's queue


class SnapshotSubscription(msgspec.Struct, frozen=True, array_like=True):
    """One of a group's subscriptions."""

    group: str
    subscription: Subscribed


class GroupOffsets(msgspec.Struct, frozen=True, array_like=True):
    """Positions of a group."""

    group: str
    offsets: list[Position]


class Snapshot(msgspec.Struct, frozen=True):
    """A part of the broker's whole state."""

    groups: list[GroupOffsets] = []
    subscriptions: list[SnapshotSubscription] = []


Control: TypeAlias = (
    OffsetsCommitted
    | OffsetsReset
    | LocksReleased
    | StartsResolved
    | GroupSubscribed
    | GroupDeleted
    | TopicDeleted
    | DeliveriesLeased
    | DeliveriesAcked
    | DeliveriesExtended
    | DeliveriesNacked
    | TimersCancelled
    | DeadLettersRedriven
    | Snapshot
    | TransactionChecked
    | TransactionDecided
    | TransactionParked
)

_KINDS: Final[dict[str, type[Control]]] = {
    "offsets_committed": OffsetsCommitted,
    "offsets_reset": OffsetsReset,
    "locks_released": LocksReleased,
    "starts_resolved": StartsResolved,
    "group_subscribed": GroupSubscribed,
    "group_deleted": GroupDeleted,
    "topic_deleted": TopicDeleted,
    "deliveries_leased": DeliveriesLeased,
    "deliveries_acked": DeliveriesAcked,
    "deliveries_extended": DeliveriesExtended,
    "deliveries_nacked": DeliveriesNacked,
    "timers_cancelled": TimersCancelled,
    "dead_letters_redriven": DeadLettersRedriven,
    "snapshot": Snapshot,
    "transaction_checked": TransactionChecked,
    "transaction_decided": TransactionDecided,
    "transaction_parked": TransactionParked,
}
_DECODERS: Final = {tag: msgspec.json.Decoder(kind) for tag, kind in _KINDS.items()}


def decode_control(tag: str, body: bytes) -> Control | None:
    """Decode a control record; return None if its kind is not in use here.

    Raises:
        ValueError: The body is not valid for that kind; perhaps a newer broker wrote it.
    """
    decoder = _DECODERS.get(tag)
    if decoder is None:
        return None
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"unreadable control record {tag}: {error}") from error
