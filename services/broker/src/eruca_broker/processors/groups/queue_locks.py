"""Queue locks: the member that reads a queue, its initial offset, and the end of its lock.

A queue has at most one owner. A lock is recorded before the answer, so it outlives the broker. It
is valid as long as its owner's session lasts. Every request of the owner contains the lock's
**token**. A token that is not the queue's latest changes nothing.

Source: RocketMQ 5.3, ``RebalanceLockManager``. There locks are in memory, and only ordered groups
have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eruca.contract.errors import (
    ConflictError,
    NotReadyError,
    PermissionDeniedError,
    StaleLockError,
    ValidationError,
    errors_at,
)
from eruca.contract.groups import (
    GrantedLock,
    LockAnswer,
    LockRelease,
    LockRequest,
    OffsetCommit,
    QueueRelease,
    RefusedLock,
)
from eruca_broker.core.consuming.membership import Session
from eruca_broker.core.state.events import Event
from eruca_broker.core.state.group_events import (
    CommittedOffset,
    LocksGranted,
    LocksReleased,
    QueueKey,
)
from eruca_broker.core.state.group_state import (
    QUEUE_LOCK,
    Group,
    Hold,
    Lock,
    LockChange,
    Queue,
    hold_of,
)
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.members import Members
from eruca_broker.processors.groups.starts import Starts
from eruca_broker.processors.groups.views import start_position
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.standings import position_of
from eruca_broker.processors.topics import Topics
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.admission.held import Release
from eruca_chassis.asgi import ClientGoneError, Receive

_NAMED_QUEUES_MAX: Final = 3  # queues that an error names in its detail; its list has all


class HeldQueue(NamedTuple):
    """A queue, and its owner's token."""

    topic: str
    queue_id: int
    token: int


@dataclass(slots=True)
class _Shares:
    """The requested queues, by availability."""

    free: list[Queue] = field(default_factory=list)
    held: list[Queue] = field(default_factory=list)  # by the client of the request
    refused: dict[Queue, RefusedLock] = field(default_factory=dict)


class QueueLocks:
    """The locks of all groups."""

    def __init__(
        self,
        work: GroupWork,
        topics: Topics,
        groups: Groups,
        members: Members,
    ) -> None:
        self._work = work
        self._topics = topics
        self._groups = groups
        self._members = members
        self._starts = Starts(work.store)
        self.stale_count = 0  # requests refused for a stale token since the start

    async def lock(self, name: str, wanted: LockRequest, receive: Receive) -> LockAnswer:
        """Give a member the queues that are free; if none is free, wait for the first.

        A queue that it holds already is granted again, with the same token.

        Raises:
            GroupNotFoundError, MemberNotFoundError: The client is not a member.
            ClientIdInUseError: Another process has the client id.
            TopicNotFoundError, QueueNotFoundError, PermissionDeniedError: A queue cannot be read,
                and ``errors`` points at each such queue; or the group's consumption is disabled.
            ConflictError: The group is broadcasting.
            OverloadedError: The maximum of held requests is reached.
            NotReadyError: The broker stops while the request is held.
        """
        answer = await self._try(name, wanted)
        if answer.locks or wanted.wait_seconds <= 0:
            return answer
        deadline = self._work.clock.monotonic() + wanted.wait_seconds
        queues = [(queue.topic, queue.queue_id) for queue in wanted.queues]
        with self._work.watchers.watching(name, queues) as place:
            while True:
                answer = await self._try(name, wanted)  # queues released before the watch began
                left = deadline - self._work.clock.monotonic()
                if answer.locks or left <= 0:
                    return answer
                released = await place.wait(left, receive)
                if released is Release.CLIENT_GONE:
                    raise ClientGoneError
                if released is Release.STOPPING:
                    raise NotReadyError("the broker is stopping", retry_after_seconds=1)
                if released is Release.EXPIRED:
                    return await self._try(name, wanted)  # leases expire without an event

    async def release(self, name: str, release: LockRelease) -> None:
        """Store final offsets and release the queues, as one change; durable on return.

        Raises:
            GroupNotFoundError: There is no such group.
            StaleLockError: One of the queues is not held by its token; nothing has changed.
            ValidationError: An offset is beyond its queue's end; nothing has changed.
        """
        async with self._work.changes.turn(name):
            group = self._groups.get(name)
            held = [HeldQueue(q.topic, q.queue_id, q.token) for q in release.queues]
            self.check(group, release.client_id, release.incarnation, held, pointer="/body/queues")
            check_ends(self._work.store, release.queues, pointer="/body/queues")
            final = [
                CommittedOffset(queue.topic, queue.queue_id, queue.offset)
                for queue in release.queues
                if queue.offset is not None
            ]
            queues = [(offset.topic, offset.queue_id) for offset in final]
            before = [position_of(group, queue) for queue in queues]
            await self._work.changes.record(
                LocksReleased(
                    name,
                    [QueueKey(queue.topic, queue.queue_id) for queue in release.queues],
                    "released",
                    final,
                )
            )
            for queue, position, offset in zip(queues, before, final, strict=True):
                self._work.consumption.committed(name, queue, position, offset.offset)
            self._work.watchers.wake(name, [(queue.topic, queue.queue_id) for queue in held])

    def check(
        self,
        group: Group,
        client_id: str,
        incarnation: str,
        held: Sequence[HeldQueue],
        *,
        pointer: str,
    ) -> None:
        """Raise StaleLockError unless this process holds all these queues by these tokens.

        To be called in the group's turn, before an action of the owner is recorded. *pointer* is
        the path of the request's list, whose entries are those of *held*.
        """
        now = self._work.clock.monotonic()
        stale: dict[int, str] = {}
        for index, queue in enumerate(held):
            fault = self._fault(group, client_id, incarnation, queue, now)
            if fault is not None:
                stale[index] = f"queue {queue.queue_id} of {queue.topic!r} {fault}"
        if stale:
            self.stale_count += 1
            shown = "; ".join(list(stale.values())[:_NAMED_QUEUES_MAX])
            more = len(stale) - _NAMED_QUEUES_MAX
            raise StaleLockError(
                shown + (f"; and {more} more" if more > 0 else ""),
                errors=errors_at(pointer, stale),
            )

    def live_owner(self, group: Group, queue: Queue) -> str | None:
        """Return the client id of the member that reads a queue, or None."""
        lock = group.locks.get(queue)
        if lock is None or self._hold(group, lock) is not Hold.HELD:
            return None
        return lock.owner.client_id

    async def _try(self, name: str, wanted: LockRequest) -> LockAnswer:
        async with self._work.changes.turn(name):
            await self._members.free_over(name)
            group = self._groups.get(name)
            session = self._members.session(name, wanted.client_id, wanted.incarnation)
            self._check_may_lock(group, session)
            self._topics.check_for_pulling(wanted.queues)
            queues = [(queue.topic, queue.queue_id) for queue in wanted.queues]
            shares = self._shares(group, session, queues)
            events: list[Event] = []
            got = [*shares.held, *shares.free]
            if any(group.position(queue) is None for queue in got):
                topics = dict.fromkeys(topic for topic, _ in got)
                met = self._starts.of_topics(group, topics, {}, now_ms=self._work.clock.now_ms())
                if met is not None:
                    events.append(met)
            if shares.free:
                events.append(
                    LocksGranted(
                        name,
                        session.client_id,
                        session.incarnation,
                        session.session_seconds,
                        [QueueKey(*queue) for queue in shares.free],
                    )
                )
            if events:
                await self._work.changes.record(*events)
            return self._answer(self._groups.get(name), queues, shares)

    def _check_may_lock(self, group: Group, session: Session) -> None:
        if not group.settings.consume_enabled:
            raise PermissionDeniedError(
                f"group {group.name!r} must not consume: its consume_enabled is false"
            )
        if session.beat is not None and session.beat.message_model == "broadcasting":
            raise ConflictError(
                f"group {group.name!r} is broadcasting: each member reads every queue",
                fix="read without locks",
            )

    def _shares(self, group: Group, session: Session, queues: Iterable[Queue]) -> _Shares:
        shares = _Shares()
        now = self._work.clock.monotonic()
        for queue in queues:
            lock = group.locks.get(queue)
            if QUEUE_LOCK.after(self._hold(group, lock), LockChange.GRANTED) is None:
                assert lock is not None
                owner = self._work.membership.session(group.name, lock.owner.client_id, now)
                assert owner is not None
                if owner.client_id == session.client_id:
                    shares.held.append(queue)
                else:
                    shares.refused[queue] = _refused(queue, owner.client_id, owner.deadline - now)
            elif (seconds := self._delivered_for(group, queue)) is not None:
                shares.refused[queue] = _refused(queue, None, seconds)
            else:
                shares.free.append(queue)
        return shares

    def _answer(self, group: Group, queues: Iterable[Queue], shares: _Shares) -> LockAnswer:
        # If the topic was deleted while its lock was recorded, the queue is in neither list; the
        # next request gets the error.
        return LockAnswer(
            locks=[
                _granted(group, queue, self._work.store)
                for queue in queues
                if queue not in shares.refused and queue in group.locks
            ],
            refused=list(shares.refused.values()),
        )

    def _delivered_for(self, group: Group, queue: Queue) -> float | None:
        """Return the time for which messages of a queue are leased as deliveries; None: none is."""
        leases = self._work.store.state.leases.of_queue(group.name, queue)
        now_ms = self._work.clock.now_ms()
        until = None if leases is None else leases.held_until(now_ms)
        return None if until is None else (until - now_ms) / 1_000

    def _hold(self, group: Group, lock: Lock | None) -> Hold:
        now = self._work.clock.monotonic()
        is_live = lock is not None and self._work.membership.is_live(group.name, lock.owner, now)
        return hold_of(lock, is_live=is_live)

    def _fault(
        self, group: Group, client_id: str, incarnation: str, queue: HeldQueue, now: float
    ) -> str | None:
        lock = group.locks.get((queue.topic, queue.queue_id))
        if lock is None:
            return "is not locked"
        if lock.owner.client_id != client_id:
            return f"is locked by {lock.owner.client_id!r}"
        if lock.owner.incarnation != incarnation:
            return "is locked by a later process of this client id"
        if lock.token != queue.token:
            return f"is locked by a later token, {lock.token}"
        if not self._work.membership.is_live(group.name, lock.owner, now):
            return "was locked by this token, but the session is over"
        return None


def check_ends(
    store: MessageStore, positions: Sequence[OffsetCommit | QueueRelease], *, pointer: str
) -> None:
    """Raise ValidationError if a position is beyond its queue's end.

    The group would skip messages that are stored up to there later. The position may come from a
    miscount, from another topic of that name, or from before a power failure that took the queue's
    end.

    Args:
        store: Knows the ends.
        positions: The new positions of the group.
        pointer: The path of the request's list, whose entries they are.
    """
    behind: dict[int, str] = {}
    for index, place in enumerate(positions):
        if place.offset:
            end = store.queues.local_range(place.topic, place.queue_id)[1]
            if place.offset > end:
                queue = f"queue {place.queue_id} of {place.topic!r}"
                behind[index] = f"{place.offset} is beyond the end of {queue}, which is {end}"
    if behind:
        raise ValidationError(
            next(iter(behind.values())),
            errors=errors_at(pointer, behind, member="/offset"),
            fix="commit the next offset to read, at most the queue's end; a reader beyond it has "
            "read messages that a power failure took, or another topic of that name",
        )


def _refused(queue: Queue, owner: str | None, seconds: float) -> RefusedLock:
    return RefusedLock(
        topic=queue[0], queue_id=queue[1], owner=owner, expires_in_seconds=max(seconds, 0.0)
    )


def _granted(group: Group, queue: Queue, store: MessageStore) -> GrantedLock:
    position = group.position(queue)
    return GrantedLock(
        topic=queue[0],
        queue_id=queue[1],
        token=group.locks[queue].token,
        next_offset=store.queues.range(*queue)[0] if position is None else position,
        committed_offset=group.offsets.get(queue),
        started=start_position(group.starts.get(queue)),
    )
