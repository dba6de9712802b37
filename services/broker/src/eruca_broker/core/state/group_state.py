"""The state of consumer groups: a fold over their control records.

A group exists from the first event that names it until it is deleted. A group that only committed
offsets has the default settings. Locks are here, because they must outlive the process. Whether
their holders are alive is decided elsewhere (:mod:`eruca_broker.core.consuming.membership`).

A lock's token is the log offset of the event that made it. So each token of a queue is greater than
all earlier ones. :data:`QUEUE_LOCK` is the table of a lock's states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from eruca_broker.core.state.group_events import (
    CommittedOffset,
    GroupDeleted,
    GroupEvent,
    GroupOffsets,
    GroupPieces,
    GroupPut,
    GroupSettings,
    GroupSubscribed,
    LocksGranted,
    LocksReleased,
    MemberReplaced,
    MetTopic,
    OffsetsCommitted,
    OffsetsReset,
    OutMember,
    SnapshotGroup,
    SnapshotLock,
    SnapshotStart,
    SnapshotSubscription,
    StartReason,
    StartsResolved,
    Subscribed,
)
from eruca_broker.core.state.snapshots import SnapshotItem, pieces
from eruca_chassis.machines import Machine

Queue: TypeAlias = tuple[str, int]  # topic, queue id
REPLACED_MAX: Final = 64  # the latest replaced processes of a group that are remembered
DEFAULT_SETTINGS: Final = GroupSettings()
_SUBSCRIPTION_SIZE: Final = 512  # this many characters of a filter count as one more snapshot item


class Hold(StrEnum):
    """The state of a queue, for one group."""

    FREE = "free"
    HELD = "held"  # by a process whose session lasts
    ABANDONED = "abandoned"  # its owner's session is over, and the log does not contain that yet


class LockChange(StrEnum):
    """An event that changes the state of a queue; the last two are not in the log."""

    GRANTED = "granted"
    RELEASED = "released"  # by its owner, who may also leave, or because its session was over
    REPLACED = "owner replaced"  # by a later process of the same static member
    RESET = "group reset"
    DELETED = "topic deleted"
    SESSION_OVER = "session over"
    REJOINED = "owner back"  # the same process, before any other got the queue


QUEUE_LOCK: Final = Machine(
    (Hold.FREE, LockChange.GRANTED, Hold.HELD),
    (Hold.HELD, LockChange.RELEASED, Hold.FREE),
    (Hold.HELD, LockChange.REPLACED, Hold.HELD),
    (Hold.HELD, LockChange.RESET, Hold.HELD),
    (Hold.HELD, LockChange.DELETED, Hold.FREE),
    (Hold.HELD, LockChange.SESSION_OVER, Hold.ABANDONED),
    (Hold.ABANDONED, LockChange.GRANTED, Hold.HELD),
    (Hold.ABANDONED, LockChange.RELEASED, Hold.FREE),
    (Hold.ABANDONED, LockChange.REPLACED, Hold.HELD),
    (Hold.ABANDONED, LockChange.RESET, Hold.ABANDONED),
    (Hold.ABANDONED, LockChange.DELETED, Hold.FREE),
    (Hold.ABANDONED, LockChange.REJOINED, Hold.HELD),
)


@dataclass(frozen=True, slots=True)
class Start:
    """The initial offset of a group in a queue, with the reason."""

    offset: int
    reason: StartReason
    at_ms: int


@dataclass(frozen=True, slots=True)
class LockOwner:
    """A process that holds locks."""

    client_id: str
    incarnation: str
    session_seconds: float


@dataclass(frozen=True, slots=True)
class Lock:
    """The holder of a queue."""

    owner: LockOwner
    token: int  # log offset of the event that made it


def hold_of(lock: Lock | None, *, is_live: bool) -> Hold:
    """Return the state of a queue, given its lock and whether the session of its owner lasts."""
    if lock is None:
        return Hold.FREE
    return Hold.HELD if is_live else Hold.ABANDONED


@dataclass(slots=True)
class Group:
    """A group; only :class:`Groups` changes it."""

    name: str
    settings: GroupSettings = DEFAULT_SETTINGS
    created_at_ms: int | None = None  # None: it was never created, only named
    subscription_version: int = 0
    subscriptions: tuple[Subscribed, ...] = ()
    met: dict[str, int] = field(default_factory=dict)  # topic → ms since the epoch
    starts: dict[Queue, Start] = field(default_factory=dict)
    locks: dict[Queue, Lock] = field(default_factory=dict)
    offsets: dict[Queue, int] = field(default_factory=dict)
    replaced: dict[tuple[str, str], None] = field(default_factory=dict)  # client, incarnation

    def position(self, queue: Queue) -> int | None:
        """Return the next offset to read: the committed one, or the group's start, or unknown."""
        committed = self.offsets.get(queue)
        if committed is not None:
            return committed
        start = self.starts.get(queue)
        return None if start is None else start.offset

    def locks_of(self, client_id: str) -> Iterator[Queue]:
        """Yield the queues locked by a client."""
        return (queue for queue, lock in self.locks.items() if lock.owner.client_id == client_id)

    def copy(self) -> Group:
        """Return an independent copy of a group."""
        return Group(
            self.name,
            self.settings,
            self.created_at_ms,
            self.subscription_version,
            self.subscriptions,
            dict(self.met),
            dict(self.starts),
            dict(self.locks),
            dict(self.offsets),
            dict(self.replaced),
        )


class Groups(dict[str, Group]):
    """All groups, by name."""

    def apply(self, event: GroupEvent, log_offset: int) -> None:
        """Fold the event recorded at *log_offset* into the groups."""
        if isinstance(event, GroupDeleted):
            self.pop(event.group, None)
            return
        group = self._named(event.group)
        match event:
            case GroupPut():
                group.settings = event.settings
                if group.created_at_ms is None:
                    group.created_at_ms = event.at
            case GroupSubscribed():
                group.subscriptions = event.subscriptions
                group.subscription_version += 1
            case StartsResolved():
                _start(group, event)
            case LocksGranted():
                owner = LockOwner(event.client_id, event.incarnation, event.session_seconds)
                for queue in event.queues:
                    _lock(group, (queue.topic, queue.queue_id), Lock(owner, log_offset))
            case LocksReleased():
                for queue in event.queues:
                    group.locks.pop((queue.topic, queue.queue_id), None)
                _commit(group, event.offsets)
            case MemberReplaced():
                _replace(group, event, log_offset)
            case OffsetsCommitted():
                _commit(group, event.offsets)
            case OffsetsReset():
                _commit(group, event.offsets)
                _renew(group, event.offsets, log_offset)

    def forget_topic(self, topic: str) -> None:
        """Forget the groups' data in a topic's queues; that they met the topic stays known."""
        for group in self.values():
            for table in (group.starts, group.locks, group.offsets):
                for queue in [queue for queue in table if queue[0] == topic]:
                    del table[queue]

    def copy(self) -> Groups:
        """Return an independent copy."""
        return Groups({name: group.copy() for name, group in self.items()})

    def snapshot_items(self, items_max: int) -> Iterator[SnapshotItem]:
        """Yield all data of all groups."""
        for group in self.values():
            yield from _items(group, items_max)

    def load(
        self,
        settings: Sequence[SnapshotGroup],
        subscriptions: Sequence[SnapshotSubscription],
        parts: Sequence[GroupPieces],
        offsets: Sequence[GroupOffsets],
    ) -> None:
        """Add the data of one part of a snapshot."""
        for known in settings:
            group = self._named(known.group)
            group.settings = known.settings
            group.created_at_ms = known.created_at
            group.subscription_version = known.subscription_version
        for entry in subscriptions:
            group = self._named(entry.group)
            group.subscriptions = (*group.subscriptions, entry.subscription)
        for piece in parts:
            _load_piece(self._named(piece.group), piece)
        for positions in offsets:
            _commit(self._named(positions.group), positions.offsets)

    def _named(self, name: str) -> Group:
        group = self.get(name)
        if group is None:
            group = self[name] = Group(name)
        return group


def _lock(group: Group, queue: Queue, lock: Lock) -> None:
    before = group.locks.get(queue)
    assert before is None or before.token <= lock.token, "an older token would become the latest"
    group.locks[queue] = lock


def _commit(group: Group, commits: Sequence[CommittedOffset]) -> None:
    for commit in commits:
        group.offsets[commit.topic, commit.queue_id] = commit.offset


def _start(group: Group, event: StartsResolved) -> None:
    for topic in event.topics:
        group.met.setdefault(topic.topic, event.at)
        for start in topic.starts:
            group.starts.setdefault(
                (topic.topic, start.queue_id), Start(start.offset, start.reason, event.at)
            )


def _renew(group: Group, commits: Sequence[CommittedOffset], token: int) -> None:
    for commit in commits:
        queue = (commit.topic, commit.queue_id)
        if queue in group.locks:
            _lock(group, queue, Lock(group.locks[queue].owner, token))


def _replace(group: Group, event: MemberReplaced, log_offset: int) -> None:
    owner = LockOwner(event.client_id, event.successor, event.session_seconds)
    for queue in list(group.locks_of(event.client_id)):
        _lock(group, queue, Lock(owner, log_offset))
    group.replaced[event.client_id, event.incarnation] = None
    while len(group.replaced) > REPLACED_MAX:
        del group.replaced[next(iter(group.replaced))]


def _items(group: Group, items_max: int) -> Iterator[SnapshotItem]:
    name = group.name
    yield SnapshotItem(
        "group_settings",
        SnapshotGroup(name, group.settings, group.created_at_ms, group.subscription_version),
        2,  # a retry policy may contain 64 delays
    )
    for entry in group.subscriptions:
        weight = 1 + len(entry.filter) // _SUBSCRIPTION_SIZE
        yield SnapshotItem("subscriptions", SnapshotSubscription(name, entry), weight)
    met = [MetTopic(topic, at) for topic, at in group.met.items()]
    for piece in pieces(met, items_max):
        yield SnapshotItem("group_pieces", GroupPieces(name, met=[*piece]), len(piece))
    starts = [
        SnapshotStart(topic, queue_id, start.offset, start.reason, start.at_ms)
        for (topic, queue_id), start in group.starts.items()
    ]
    for started in pieces(starts, items_max):
        yield SnapshotItem("group_pieces", GroupPieces(name, starts=[*started]), len(started))
    locks = [
        SnapshotLock(
            topic,
            queue_id,
            lock.owner.client_id,
            lock.owner.incarnation,
            lock.owner.session_seconds,
            lock.token,
        )
        for (topic, queue_id), lock in group.locks.items()
    ]
    for held in pieces(locks, items_max):
        yield SnapshotItem("group_pieces", GroupPieces(name, locks=[*held]), len(held))
    out = [OutMember(*process) for process in group.replaced]
    for gone in pieces(out, items_max):
        yield SnapshotItem("group_pieces", GroupPieces(name, replaced=[*gone]), len(gone))
    commits = [CommittedOffset(*queue, offset) for queue, offset in group.offsets.items()]
    for committed in pieces(commits, items_max):
        yield SnapshotItem("groups", GroupOffsets(name, [*committed]), len(committed))


def _load_piece(group: Group, piece: GroupPieces) -> None:
    for met in piece.met:
        group.met[met.topic] = met.at
    for start in piece.starts:
        group.starts[start.topic, start.queue_id] = Start(start.offset, start.reason, start.at)
    for lock in piece.locks:
        owner = LockOwner(lock.client_id, lock.incarnation, lock.session_seconds)
        group.locks[lock.topic, lock.queue_id] = Lock(owner, lock.token)
    for process in piece.replaced:
        group.replaced[process.client_id, process.incarnation] = None
