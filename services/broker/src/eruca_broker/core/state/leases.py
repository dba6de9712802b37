"""Leases: the messages that a group has received and not finished; a fold over control records.

Deliveries read a queue from its **position** on. Everything before the position has been handed
out, passed over, or overtaken. The part of it that is not finished is **unfinished**.
:data:`DELIVERY` is the table of a message's states.

An unfinished message has one record. It contains the attempt: how often it has been handed out. It
contains the fence: the log offset of the event that leased it last, 0 while nobody has it. It
contains the time from which it may be handed out again. A lease ends by time without an event.

The **committed offset** is the first unfinished message, or the position if there is none. The rest
of the broker sees only the committed offset, so lag, resets and other kinds of consumers agree. A
queue without unfinished messages has no record here: its committed offset is enough. A reset moves
the committed offset, and a member with a lock takes the queue. Both end all leases of the queue.
Their handles are stale from then on.

Invariants: a message has at most one valid handle. The committed offset passes nothing unfinished.
Unfinished messages are kept in ascending order of offset, so the first one has the least offset.

Source: RocketMQ 5.3, ``PopMessageProcessor``, ``PopReviveService``, ``ConsumerOrderInfoManager``.
There a message that is not acknowledged is stored again in a retry topic, behind newer ones; here
it stays in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NamedTuple, TypeAlias

from eruca_broker.core.state.group_events import (
    GroupDeleted,
    GroupEvent,
    LocksGranted,
    LocksReleased,
    OffsetsCommitted,
    OffsetsReset,
)
from eruca_broker.core.state.lease_events import (
    DeliveriesAcked,
    DeliveriesExtended,
    DeliveriesLeased,
    DeliveriesNacked,
    HeldLease,
    LeaseEvent,
    NackedLease,
    SnapshotLeases,
    UnfinishedMessage,
)
from eruca_chassis.machines import Machine

Queue: TypeAlias = tuple[str, int]  # topic, queue id
Positions: TypeAlias = dict[Queue, int]  # a group's committed offsets, by queue


class Delivery(StrEnum):
    """The state of a message in its queue, for one group."""

    AHEAD = "ahead"  # at or behind the position
    OVERTAKEN = "overtaken"  # by a later message, and never handed out
    LEASED = "leased"  # a client has a handle to it, which may have expired
    WAITING = "waiting"  # handed out before, and returned
    FINISHED = "finished"  # there is no record of it any more


class Move(StrEnum):
    """The effect of an event on a message."""

    LEASED = "leased"  # attempt + 1, and another fence
    OVERTAKEN = "overtaken"
    PASSED = "passed over"  # the filter holds it back
    EXTENDED = "extended"
    ACKED = "acknowledged"
    NACKED = "nacked"
    RETURNED_LAST = "nacked for the last time"  # a dead letter follows
    DROPPED = "dropped"  # retention deleted it, or its last attempt timed out: a dead letter


DELIVERY: Final = Machine(
    (Delivery.AHEAD, Move.LEASED, Delivery.LEASED),
    (Delivery.AHEAD, Move.OVERTAKEN, Delivery.OVERTAKEN),
    (Delivery.AHEAD, Move.PASSED, Delivery.FINISHED),
    (Delivery.OVERTAKEN, Move.LEASED, Delivery.LEASED),
    (Delivery.OVERTAKEN, Move.DROPPED, Delivery.FINISHED),
    (Delivery.LEASED, Move.LEASED, Delivery.LEASED),  # once its time is over
    (Delivery.LEASED, Move.EXTENDED, Delivery.LEASED),
    (Delivery.LEASED, Move.ACKED, Delivery.FINISHED),
    (Delivery.LEASED, Move.NACKED, Delivery.WAITING),
    (Delivery.LEASED, Move.RETURNED_LAST, Delivery.FINISHED),
    (Delivery.LEASED, Move.DROPPED, Delivery.FINISHED),
    (Delivery.WAITING, Move.LEASED, Delivery.LEASED),
    (Delivery.WAITING, Move.DROPPED, Delivery.FINISHED),
)


class Unfinished(NamedTuple):
    """A message before its queue's position that is not finished."""

    attempt: int  # how often it has been handed out; 0: overtaken
    fence: int  # of the last lease; 0: nobody has it
    due_at: int  # ms since the epoch: from then on it may be handed out (again)

    @property
    def state(self) -> Delivery:
        """The state, as the table names it."""
        if self.fence > 0:
            return Delivery.LEASED
        return Delivery.WAITING if self.attempt > 0 else Delivery.OVERTAKEN


class HandleState(Enum):
    """The validity of a handle."""

    VALID = "valid"
    EXPIRED = "expired"  # its time is over, and the message has not been handed out since
    STALE = "stale"  # the message is finished, or leased by another client


@dataclass(slots=True)
class QueueLeases:
    """One queue's position, and the unfinished messages before it."""

    position: int
    unfinished: dict[int, Unfinished] = field(default_factory=dict)  # by offset, ascending

    @property
    def committed_offset(self) -> int:
        """Return the first offset that is not finished."""
        return next(iter(self.unfinished), self.position)

    def state_of(self, offset: int) -> Delivery:
        """Return the state of the message at *offset*."""
        record = self.unfinished.get(offset)
        if record is not None:
            return record.state
        return Delivery.AHEAD if offset >= self.position else Delivery.FINISHED

    def judge(self, offset: int, fence: int, now_ms: int) -> HandleState:
        """Return the validity of a handle with this offset and fence."""
        lease = self.unfinished.get(offset)
        if lease is None or fence <= 0 or lease.fence != fence:
            return HandleState.STALE
        return HandleState.VALID if now_ms < lease.due_at else HandleState.EXPIRED

    def next_due_at(self, after_ms: int) -> int | None:
        """Return when the next unfinished message becomes due that is not due at *after_ms*."""
        return min(
            (u.due_at for u in self.unfinished.values() if u.due_at > after_ms), default=None
        )

    def held_until(self, now_ms: int) -> int | None:
        """Return the latest end of the leases that last at *now_ms*; None if there are none."""
        held = (u.due_at for u in self.unfinished.values() if u.fence > 0 and u.due_at > now_ms)
        return max(held, default=None)

    def copy(self) -> QueueLeases:
        """Return an independent copy."""
        return QueueLeases(self.position, dict(self.unfinished))


_Named: TypeAlias = Sequence[tuple[str, int, HeldLease]] | Sequence[tuple[str, int, NackedLease]]


class Leases:
    """The leases of all groups; only the fold changes them."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[Queue, QueueLeases]] = {}
        self.unfinished_count = 0  # of all queues together

    def of_queue(self, group: str, queue: Queue) -> QueueLeases | None:
        """Return the unfinished messages of a queue, or None if there are none."""
        return self._queues.get(group, {}).get(queue)

    def of_group(self, group: str) -> Collection[tuple[Queue, QueueLeases]]:
        """Return the queues of a group that have unfinished messages."""
        return self._queues.get(group, {}).items()

    # --- The fold ---------------------------------------------------------------------------------

    def apply(
        self, event: LeaseEvent, log_offset: int, positions: Positions, locked: Container[Queue]
    ) -> bool:
        """Fold the event recorded at *log_offset*; return False if it was no longer valid.

        Args:
            event: Of one group.
            log_offset: Its log offset.
            positions: The group's committed offsets, which are updated.
            locked: The group's queues that members have locked: no message of them is handed out.
        """
        match event:
            case DeliveriesLeased():
                if (event.topic, event.queue_id) in locked:
                    return False
                return self.lease(event, log_offset, positions)
            case DeliveriesAcked():
                return self.ack(event, positions)
            case DeliveriesNacked():
                return self.nack(event, positions)
            case DeliveriesExtended():
                return self.extend(event)

    def lease(self, event: DeliveriesLeased, fence: int, positions: Positions) -> bool:
        """Hand messages out, update *positions*; return False if the event was no longer valid."""
        assert fence > 0, "0 says that nobody has the message"
        queue = (event.topic, event.queue_id)
        known = self.of_queue(event.group, queue)
        if known is None:
            if positions.get(queue, event.from_position) != event.from_position:
                return False
            known = QueueLeases(event.from_position)
        if not _is_still_so(known, event):
            return False
        before = len(known.unfinished)
        for offset in event.finished:
            del known.unfinished[offset]
        fresh = dict.fromkeys(event.overtaken, Unfinished(0, 0, 0))
        for message in event.leased:
            target = known.unfinished if message.offset in known.unfinished else fresh
            target[message.offset] = Unfinished(message.attempt, fence, event.visible_at)
        for offset in sorted(fresh):
            known.unfinished[offset] = fresh[offset]
        known.position = event.position
        self.unfinished_count += len(known.unfinished) - before
        self._queues.setdefault(event.group, {})[queue] = known
        self._settle(event.group, queue, positions)
        return True

    def ack(self, event: DeliveriesAcked, positions: Positions) -> bool:
        """Finish messages; return False, without a change, if a lease was no longer held."""
        acked = [
            (part.topic, part.queue_id, lease) for part in event.queues for lease in part.leases
        ]
        if not self._are_held(event.group, (acked, Move.ACKED)):
            return False
        for topic, queue_id, lease in acked:
            self._finish(event.group, (topic, queue_id), lease.offset, positions)
        return True

    def extend(self, event: DeliveriesExtended) -> bool:
        """Set the ends of leases; return False, without a change, if one was no longer held."""
        extended = [
            (part.topic, part.queue_id, lease) for part in event.queues for lease in part.leases
        ]
        if not self._are_held(event.group, (extended, Move.EXTENDED)):
            return False
        for topic, queue_id, lease in extended:
            unfinished = self._queues[event.group][topic, queue_id].unfinished
            held = unfinished[lease.offset]
            unfinished[lease.offset] = held._replace(due_at=event.visible_at)
        return True

    def nack(self, event: DeliveriesNacked, positions: Positions) -> bool:
        """Return messages; return False, without a change, if a lease was no longer held."""
        returned = [
            (part.topic, part.queue_id, one) for part in event.queues for one in part.leases
        ]
        finished = [
            (part.topic, part.queue_id, one) for part in event.queues for one in part.finished
        ]
        if not self._are_held(event.group, (returned, Move.NACKED), (finished, Move.RETURNED_LAST)):
            return False
        for topic, queue_id, nack in returned:
            unfinished = self._queues[event.group][topic, queue_id].unfinished
            held = unfinished[nack.offset]
            unfinished[nack.offset] = Unfinished(held.attempt, 0, nack.due_at)
        for topic, queue_id, lease in finished:
            self._finish(event.group, (topic, queue_id), lease.offset, positions)
        return True

    def give_way(self, event: GroupEvent) -> None:
        """End the leases in queues for which *event* sets the group's position, or the reader."""
        match event:
            case OffsetsCommitted() | OffsetsReset() | LocksReleased():
                moved = [(commit.topic, commit.queue_id) for commit in event.offsets]
            case LocksGranted():
                moved = [(queue.topic, queue.queue_id) for queue in event.queues]
            case GroupDeleted():
                moved = [queue for queue, _ in self.of_group(event.group)]
            case _:
                moved = []
        for queue in moved:
            self.forget_queue(event.group, queue)

    def forget_queue(self, group: str, queue: Queue) -> None:
        """End all leases in a queue."""
        queues = self._queues.get(group)
        if queues is None:
            return
        known = queues.pop(queue, None)
        if known is not None:
            self.unfinished_count -= len(known.unfinished)
            assert self.unfinished_count >= 0
        if not queues:
            del self._queues[group]

    def forget_topic(self, topic: str) -> None:
        """End all leases in a topic, which is deleted."""
        for group, queues in list(self._queues.items()):
            for queue in [queue for queue in queues if queue[0] == topic]:
                self.forget_queue(group, queue)

    # --- Copies -----------------------------------------------------------------------------------

    def copy(self) -> Leases:
        """Return an independent copy."""
        copied = Leases()
        copied.unfinished_count = self.unfinished_count
        for group, queues in self._queues.items():
            copied._queues[group] = {queue: known.copy() for queue, known in queues.items()}
        return copied

    def snapshot(self) -> Iterator[SnapshotLeases]:
        """Yield everything, in the form of a snapshot."""
        for group, queues in self._queues.items():
            for (topic, queue_id), known in queues.items():
                yield SnapshotLeases(
                    group,
                    topic,
                    queue_id,
                    known.position,
                    [UnfinishedMessage(offset, *one) for offset, one in known.unfinished.items()],
                )

    def restore(self, piece: SnapshotLeases) -> None:
        """Add the data of a part of a snapshot; a queue's pieces come in order."""
        queues = self._queues.setdefault(piece.group, {})
        known = queues.setdefault((piece.topic, piece.queue_id), QueueLeases(piece.position))
        assert known.position == piece.position, "pieces of two snapshots"
        for one in piece.unfinished:
            known.unfinished[one.offset] = Unfinished(one.attempt, one.fence, one.due_at)
        self.unfinished_count += len(piece.unfinished)

    # --- Inside -----------------------------------------------------------------------------------

    def _are_held(self, group: str, *moved: tuple[_Named, Move]) -> bool:
        """Tell whether each lease is its message's latest, and its transition is possible."""
        distinct: set[tuple[str, int, int]] = set()
        for named, move in moved:
            for topic, queue_id, lease in named:
                known = self.of_queue(group, (topic, queue_id))
                if known is None or DELIVERY.after(known.state_of(lease.offset), move) is None:
                    return False
                if known.unfinished[lease.offset].fence != lease.fence:
                    return False
                distinct.add((topic, queue_id, lease.offset))
        return len(distinct) == sum(len(named) for named, _ in moved)

    def _finish(self, group: str, queue: Queue, offset: int, positions: Positions) -> None:
        known = self._queues[group][queue]
        del known.unfinished[offset]
        self.unfinished_count -= 1
        self._settle(group, queue, positions)

    def _settle(self, group: str, queue: Queue, positions: Positions) -> None:
        """Record the group's position; a queue without unfinished messages needs no record."""
        queues = self._queues[group]
        known = queues[queue]
        committed_offset = known.committed_offset
        last = next(reversed(known.unfinished), None)
        assert last is None or committed_offset <= last < known.position, "not in order of offset"
        assert positions.get(queue, 0) <= committed_offset, "a delivery must not move a group back"
        assert self.unfinished_count >= len(known.unfinished)
        positions[queue] = committed_offset
        if not known.unfinished:
            del queues[queue]
            if not queues:
                del self._queues[group]


def _is_still_so(known: QueueLeases, event: DeliveriesLeased) -> bool:
    """Tell whether *event* was decided for the *known* state."""
    if known.position != event.from_position or event.position < known.position:
        return False
    leased = [message.offset for message in event.leased]
    again = [message for message in event.leased if message.offset in known.unfinished]
    moved = [*leased, *event.overtaken, *event.finished]
    return (
        _can(known, leased, Move.LEASED)
        and _can(known, event.overtaken, Move.OVERTAKEN)
        and _can(known, event.finished, Move.DROPPED)
        and all(known.unfinished[m.offset].attempt == m.attempt - 1 for m in again)
        and all(offset < event.position for offset in (*leased, *event.overtaken))
        and len(set(moved)) == len(moved)
    )


def _can(known: QueueLeases, offsets: Sequence[int], move: Move) -> bool:
    return all(DELIVERY.after(known.state_of(offset), move) for offset in offsets)
