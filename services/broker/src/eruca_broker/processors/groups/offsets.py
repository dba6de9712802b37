"""Groups' positions: lag, commits, resets.

A member commits with its locks' tokens. Any other client commits unconditionally, except while a
live member reads the queue, whose next commit would undo it. In that case a reset is needed, which
also affects the member.

Source: RocketMQ 5.3, ``ConsumerManageProcessor``, ``AdminBrokerProcessor``. Unlike there, a group
that never committed has no position (null), not 0. A commit by a client that lost the queue is
refused. So is one beyond the queue's end: messages stored up to there later would be skipped
unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

from eruca.contract.errors import (
    ConflictError,
    QueueNotFoundError,
    TopicNotFoundError,
    UnavailableError,
    ValidationError,
)
from eruca.contract.groups import (
    CommittedOffset,
    GroupLagTotal,
    GroupOffsets,
    GroupTraffic,
    OffsetCommit,
    OffsetCommits,
    OffsetReset,
    QueueReset,
    ResetAnswer,
    ResetToOffset,
)
from eruca_broker.core.records.times import moment, ms_not_before
from eruca_broker.core.state import group_events as events
from eruca_broker.core.state.group_state import Group, Queue
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.queue_locks import HeldQueue, QueueLocks, check_ends
from eruca_broker.processors.groups.views import start_position
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.pacing import Pace
from eruca_broker.processors.standings import position_of, queues_of, standing, unread_count
from eruca_broker.processors.store_times import StoreTimes
from eruca_broker.processors.topics import Topics


class PositionsOfGroups:
    """Offsets of groups in this broker's queues."""

    def __init__(self, work: GroupWork, topics: Topics, groups: Groups, locks: QueueLocks) -> None:
        self._work = work
        self._store = work.store
        self._topics = topics
        self._groups = groups
        self._locks = locks

    async def of_group(self, name: str, topic: str | None) -> GroupOffsets:
        """Return a group's positions: in every queue of *topic*, or in all queues that it has any.

        A time in the tier that cannot be read now is unknown.

        Raises:
            TopicNotFoundError: *topic* is given, and there is none of this name.
        """
        await self._work.consumption.refresh()
        find = partial(self._of_group, name, topic)
        return await StoreTimes(self._store, f"group {name}").listed(find)

    def _of_group(self, name: str, topic: str | None, times: StoreTimes) -> GroupOffsets:
        group = self._store.state.groups.get(name) or Group(name)
        if topic is not None:
            queue_count = self._topics.get(topic).read_queue_count
            queues = [(topic, queue_id) for queue_id in range(queue_count)]
            queues += [  # removed queues with messages that the group has not read
                queue
                for queue in queues_of(group)
                if queue[0] == topic
                and queue[1] >= queue_count
                and unread_count(self._store, group, queue)
            ]
        else:
            queues = queues_of(group)
        offsets = [self._position(group, queue, times) for queue in queues]
        oldest = [o.oldest_unconsumed_at for o in offsets if o.oldest_unconsumed_at is not None]
        # A deleted queue has nothing to consume, and does not hide the others.
        lags = [o.lag for o in offsets if o.max_offset is not None]
        known = [lag for lag in lags if lag is not None]
        return GroupOffsets(
            group=name,
            offsets=offsets,
            lag=sum(known) if lags and len(known) == len(lags) else None,
            oldest_unconsumed_at=min(oldest, default=None) if times.is_complete else None,
            traffic=self._traffic(name, {queue_topic for queue_topic, _ in queues}),
            traffic_since=moment(self._work.consumption.began_at_ms),
        )

    async def totals(self, names: Iterable[str]) -> list[GroupLagTotal]:
        """Return the lag of each group, in turns with other work.

        That of a group with a queue that cannot be read now is unknown.
        """
        found: list[GroupLagTotal] = []
        pace, times = Pace(), StoreTimes(self._store, "lags of groups")
        for name in names:
            try:
                total = await times.listed(partial(self._total, name))
            except UnavailableError:  # the other groups are known
                total = GroupLagTotal(
                    group=name, queue_count=None, lag=None, oldest_unconsumed_at=None
                )
            found.append(total)
            await pace.step()
        return found

    async def commit(self, name: str, commits: OffsetCommits) -> None:
        """Store a group's positions, all or none; durable on return.

        A position may be anywhere up to the queue's end, also before the last one. A member may
        commit as long as it holds the queue, even if the topic has fewer queues by now.

        Raises:
            TopicNotFoundError, QueueNotFoundError: The client is not a member, and one of the
                queues is not on this broker.
            GroupNotFoundError: There is no such group, and committing does not create it.
            StaleLockError: A member commits, and does not hold one of the queues by its token.
            ConflictError: The client is not a member, and a live member reads one of the queues; or
                the group is new, and the maximum of groups is reached.
            ValidationError: An offset is beyond its queue's end; ``errors`` points at each such
                offset.
        """
        async with self._work.changes.turn(name):
            if commits.client_id is None or commits.incarnation is None:
                self._check_queues(commits.offsets)
                check_ends(self._store, commits.offsets, pointer="/body/offsets")
                group = await self._groups.created(name)
                self._refuse_locked(group, commits.offsets)
            else:
                held = [HeldQueue(o.topic, o.queue_id, o.token or 0) for o in commits.offsets]
                self._locks.check(
                    self._groups.get(name),
                    commits.client_id,
                    commits.incarnation,
                    held,
                    pointer="/body/offsets",
                )
                check_ends(self._store, commits.offsets, pointer="/body/offsets")
            group = self._groups.get(name)
            moved = {(commit.topic, commit.queue_id): commit.offset for commit in commits.offsets}
            before = {queue: position_of(group, queue) for queue in moved}
            await self._work.changes.record(
                events.OffsetsCommitted(
                    name,
                    [
                        events.CommittedOffset(commit.topic, commit.queue_id, commit.offset)
                        for commit in commits.offsets
                    ],
                )
            )
            for queue, offset in moved.items():
                self._work.consumption.committed(name, queue, before[queue], offset)
            if commits.client_id is None:  # else members read them, and nothing is handed out
                self._work.watchers.wake(name, list(moved))

    async def reset(self, name: str, reset: OffsetReset) -> ResetAnswer:
        """Set a group's offset in a topic; members that read it now must lock it again.

        Raises:
            GroupNotFoundError, TopicNotFoundError, QueueNotFoundError: It does not exist.
            ValidationError: The offset is not in the queue's range.
        """
        topic = self._topics.get(reset.topic)
        chosen = reset.queue_ids or range(topic.read_queue_count)
        for index, queue_id in enumerate(chosen):
            try:
                self._topics.check_queue(topic, queue_id)
            except QueueNotFoundError as error:
                pointer = f"/body/queue_ids/{index}"
                error.errors = [{"pointer": pointer, "detail": error.detail}]
                raise
        if isinstance(reset.to, datetime):  # what the search needs is in memory before the turn
            ms = ms_not_before(reset.to)
            for queue_id in dict.fromkeys(chosen):
                find = partial(self._store.places.offset_by_time, reset.topic, queue_id, ms)
                await self._store.cold.read(f"group {name}", find)
        async with self._work.changes.turn(name):
            group = self._groups.get(name)
            queues = [
                self._reset(group, (reset.topic, queue_id), reset.to)
                for queue_id in dict.fromkeys(chosen)
            ]
            if not reset.dry_run:
                await self._work.changes.record(
                    events.OffsetsReset(
                        name,
                        [
                            events.CommittedOffset(reset.topic, q.queue_id, q.to_offset)
                            for q in queues
                        ],
                    )
                )
                self._work.changed(name)
                # Leased messages no longer block a member.
                self._work.watchers.wake(name, [(reset.topic, q.queue_id) for q in queues])
        return ResetAnswer(group=name, topic=reset.topic, dry_run=reset.dry_run, queues=queues)

    def _total(self, name: str, times: StoreTimes) -> GroupLagTotal:
        group = self._store.state.groups.get(name) or Group(name)
        stands = {
            queue: found
            for queue in queues_of(group)
            if (found := standing(self._store, group, queue)) is not None
        }
        known = [one.lag for one in stands.values() if one.lag is not None]
        oldest = [
            times.stored_at_ms(queue, one.end - one.lag) for queue, one in stands.items() if one.lag
        ]
        known_oldest = [time for time in oldest if time is not None] if times.is_complete else []
        return GroupLagTotal(
            group=name,
            queue_count=len(stands),
            lag=sum(known) if stands and len(known) == len(stands) else None,
            oldest_unconsumed_at=moment(min(known_oldest)) if known_oldest else None,
        )

    def _traffic(self, name: str, topics: Iterable[str]) -> list[GroupTraffic]:
        flows = {topic: self._work.consumption.of(name, topic) for topic in sorted(topics)}
        return [
            GroupTraffic(
                topic=topic,
                message_count=None if flow is None else flow.messages,
                size_bytes=None if flow is None else flow.bytes,
            )
            for topic, flow in flows.items()
        ]

    def _check_queues(self, commits: Sequence[OffsetCommit]) -> None:
        for index, commit in enumerate(commits):
            try:
                self._topics.check_queue(self._topics.get(commit.topic), commit.queue_id)
            except (TopicNotFoundError, QueueNotFoundError) as error:
                pointer = f"/body/offsets/{index}"
                error.errors = [{"pointer": pointer, "detail": error.detail}]
                raise

    def _refuse_locked(self, group: Group, commits: Sequence[OffsetCommit]) -> None:
        read = [
            {
                "pointer": f"/body/offsets/{index}",
                "detail": f"queue {commit.queue_id} of {commit.topic!r} is read by {owner!r}",
            }
            for index, commit in enumerate(commits)
            if (owner := self._locks.live_owner(group, (commit.topic, commit.queue_id)))
        ]
        if read:
            raise ConflictError(
                f"{read[0]['detail']}, whose next commit would undo this",
                errors=read,
                fix=f"reset: POST /v1/groups/{group.name}/offsets:reset",
            )

    def _reset(
        self,
        group: Group,
        queue: Queue,
        to: Literal["earliest", "latest"] | ResetToOffset | datetime,
    ) -> QueueReset:
        first, end = self._store.queues.range(*queue)
        match to:
            case "earliest":
                target = first
            case "latest":
                target = end
            case ResetToOffset(offset=target):
                if not first <= target <= end:
                    detail = (
                        f"expected an offset from {first} to {end} in queue {queue[1]} of "
                        f"{queue[0]!r}, found {target}"
                    )
                    raise ValidationError(
                        detail, errors=[{"pointer": "/body/to/offset", "detail": detail}]
                    )
            case datetime():
                target = self._store.places.offset_by_time(*queue, ms_not_before(to))
        return QueueReset(
            queue_id=queue[1],
            from_offset=group.position(queue),
            to_offset=target,
            min_offset=first,
            max_offset=end,
        )

    def _position(self, group: Group, queue: Queue, times: StoreTimes) -> CommittedOffset:
        name, queue_id = queue
        stands = standing(self._store, group, queue)
        lag: int | None = None
        oldest: int | None = None
        if stands is not None and (lag := stands.lag):
            oldest = times.stored_at_ms(queue, stands.end - lag)
        return CommittedOffset(
            topic=name,
            queue_id=queue_id,
            committed_offset=group.offsets.get(queue),
            min_offset=None if stands is None else stands.first,
            max_offset=None if stands is None else stands.end,
            lag=lag,
            oldest_unconsumed_at=None if oldest is None else moment(oldest),
            started=start_position(group.starts.get(queue)),
            owner=self._locks.live_owner(group, queue),
        )
