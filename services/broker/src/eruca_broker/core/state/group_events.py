"""Control records of consumer groups: settings, subscriptions, starts, locks and offsets.

Members are not among them: they are soft state, renewed by heartbeats
(:mod:`eruca_broker.core.consuming.membership`). Locks must outlive the process, or two members
could read one queue after a restart. So must positions.

Each of these events is decided before it is recorded, one at a time per group, and always takes
effect.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

SubscriptionMode = Literal["shared", "per_member"]
StartReason = Literal["earliest", "latest", "time", "added", "since"]


class CustomizedDelays(msgspec.Struct, frozen=True, tag="customized", tag_field="kind"):
    """Delays before the first, second … retry; the last one applies to all further retries."""

    delays_seconds: tuple[float, ...]


class ExponentialDelays(msgspec.Struct, frozen=True, tag="exponential", tag_field="kind"):
    """A delay that grows with each retry."""

    initial_seconds: float
    multiplier: float
    seconds_max: float = msgspec.field(name="seconds_max")  # as older records have it


class GroupSettings(msgspec.Struct, frozen=True):
    """A user's settings of a group; see :class:`eruca.contract.groups.GroupSettings`."""

    start: str | int = "latest"  # or "earliest", or ms since the epoch
    # Older records name it so.
    retries_max: int = msgspec.field(default=16, name="retries_max")
    retry_policy: CustomizedDelays | ExponentialDelays | None = None
    ordered: bool = False
    consume_enabled: bool = True
    broadcast_enabled: bool = True
    subscription_mode: SubscriptionMode = "shared"


class GroupPut(msgspec.Struct, frozen=True, tag="group_put", tag_field="event"):
    """A group was created or its settings were replaced."""

    group: str
    settings: GroupSettings
    at: int  # ms since the epoch


class GroupDeleted(msgspec.Struct, frozen=True, tag="group_deleted", tag_field="event"):
    """A group was deleted, with its subscriptions, starts, locks and offsets."""

    group: str


class Subscribed(msgspec.Struct, frozen=True, array_like=True):
    """A topic, and the messages of it that are selected."""

    topic: str
    filter: str
    filter_type: str


class GroupSubscribed(msgspec.Struct, frozen=True, tag="group_subscribed", tag_field="event"):
    """The group's subscriptions were replaced; their version grows by one."""

    group: str
    subscriptions: tuple[Subscribed, ...]


class QueueStart(msgspec.Struct, frozen=True, array_like=True):
    """The initial offset of a group in one queue."""

    queue_id: int
    offset: int
    reason: StartReason


class TopicStarts(msgspec.Struct, frozen=True, array_like=True):
    """The initial offsets of a group in queues of one topic; empty if it does not exist yet."""

    topic: str
    starts: list[QueueStart]


class StartsResolved(msgspec.Struct, frozen=True, tag="starts_resolved", tag_field="event"):
    """A group met topics, or queues that were added to them; its start there is settled."""

    group: str
    topics: list[TopicStarts]
    at: int  # ms since the epoch


class QueueKey(msgspec.Struct, frozen=True, array_like=True):
    """A queue of this broker."""

    topic: str
    queue_id: int


class LocksGranted(msgspec.Struct, frozen=True, tag="locks_granted", tag_field="event"):
    """Queues are read by this member from now on; the record's log offset is their token."""

    group: str
    client_id: str
    incarnation: str
    session_seconds: float
    queues: list[QueueKey]


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """A group's position in one queue: the next offset it will read."""

    topic: str
    queue_id: int
    offset: int


class LocksReleased(msgspec.Struct, frozen=True, tag="locks_released", tag_field="event"):
    """Queues are free again; *offsets* are the offsets that their reader committed with it."""

    group: str
    queues: list[QueueKey]
    reason: Literal["released", "left", "expired"]
    offsets: list[CommittedOffset] = []


class MemberReplaced(msgspec.Struct, frozen=True, tag="member_replaced", tag_field="event"):
    """A static member's place was taken by a later process with the same client id.

    The locks pass to it with new tokens, and the earlier process is not admitted again.
    """

    group: str
    client_id: str
    incarnation: str  # of the one that is excluded
    successor: str
    session_seconds: float


class OffsetsCommitted(msgspec.Struct, frozen=True, tag="offsets_committed", tag_field="event"):
    """A group stored its positions; they may go backwards."""

    group: str
    offsets: list[CommittedOffset]


class OffsetsReset(msgspec.Struct, frozen=True, tag="offsets_reset", tag_field="event"):
    """Positions were set from outside; locks on these queues stay and get new tokens."""

    group: str
    offsets: list[CommittedOffset]


class MembershipBegan(msgspec.Struct, frozen=True, tag="membership_began", tag_field="event"):
    """A group changes for the first time since the broker's start; generations count from here."""


GroupEvent: TypeAlias = (
    GroupPut
    | GroupDeleted
    | GroupSubscribed
    | StartsResolved
    | LocksGranted
    | LocksReleased
    | MemberReplaced
    | OffsetsCommitted
    | OffsetsReset
)


# --- In snapshots ---------------------------------------------------------------------------------


class SnapshotGroup(msgspec.Struct, frozen=True):
    """A group in a snapshot, without its long lists."""

    group: str
    settings: GroupSettings
    created_at: int | None
    subscription_version: int


class SnapshotSubscription(msgspec.Struct, frozen=True, array_like=True):
    """One of a group's subscriptions."""

    group: str
    subscription: Subscribed


class MetTopic(msgspec.Struct, frozen=True, array_like=True):
    """A topic that a group has met, and the time."""

    topic: str
    at: int


class SnapshotStart(msgspec.Struct, frozen=True, array_like=True):
    """The initial offset of a group in one queue, in a snapshot."""

    topic: str
    queue_id: int
    offset: int
    reason: StartReason
    at: int


class SnapshotLock(msgspec.Struct, frozen=True, array_like=True):
    """A lock of a group."""

    topic: str
    queue_id: int
    client_id: str
    incarnation: str
    session_seconds: float
    token: int


class OutMember(msgspec.Struct, frozen=True, array_like=True):
    """A process that has been replaced for good."""

    client_id: str
    incarnation: str


class GroupPieces(msgspec.Struct, frozen=True):
    """The long lists of a group, or a piece of them if they are too long."""

    group: str
    met: list[MetTopic] = []
    starts: list[SnapshotStart] = []
    locks: list[SnapshotLock] = []
    replaced: list[OutMember] = []


class GroupOffsets(msgspec.Struct, frozen=True, array_like=True):
    """All positions of a group, or some of them if they fill several parts."""

    group: str
    offsets: list[CommittedOffset]
