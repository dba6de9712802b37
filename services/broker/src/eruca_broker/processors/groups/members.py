"""Members of groups: joining, heartbeats, leaving, expiry of sessions, and watching.

A heartbeat without news only renews the session: no turn, no write. Everything else is decided in
the group's turn. A session that is over is removed before anything is written, so a heartbeat that
comes meanwhile joins again. If its locks cannot be released in the log, because the disk is full,
others can acquire them all the same: their owner is not alive. The next look releases them.

Source: RocketMQ 5.3, ``ClientManageProcessor``, ``ConsumerManager``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, TypeAlias

from eruca.contract.errors import (
    ClientIdInUseError,
    ErucaError,
    FilterSyntaxError,
    MemberNotFoundError,
    NotReadyError,
    OverloadedError,
    PermissionDeniedError,
)
from eruca.contract.groups import (
    Heartbeat,
    LockToken,
    MemberAnswer,
    QueueRef,
    Subscription,
)
from eruca.contract.names import retry_topic
from eruca.core.filters.sql92 import compile_sql92
from eruca.core.filters.tag_expression import TagExpressionError, checked_tag_expression
from eruca_broker.core.consuming.membership import Admission, Beat, Session
from eruca_broker.core.records.times import moment, ms_of
from eruca_broker.core.state.events import Event
from eruca_broker.core.state.group_events import (
    GroupSubscribed,
    LocksReleased,
    MemberReplaced,
    QueueKey,
    Subscribed,
)
from eruca_broker.core.state.group_state import Group, LockOwner, Queue
from eruca_broker.core.state.state import Topic
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.member_lists import Listing, MemberLists
from eruca_broker.processors.groups.starts import Starts
from eruca_broker.processors.groups.watchers import MEMBERS
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.topics import Topics
from eruca_chassis.admission.held import Release
from eruca_chassis.asgi import ClientGoneError, Receive

_Reason: TypeAlias = Literal["left", "expired"]


class Members:
    """The members of all groups, as requests see them."""

    def __init__(
        self,
        work: GroupWork,
        topics: Topics,
        groups: Groups,
        *,
        count_max: int,
    ) -> None:
        self._work = work
        self._topics = topics
        self._groups = groups
        self._count_max = count_max
        self._starts = Starts(work.store)
        self._lists = MemberLists(work.membership)
        self._unfreed: set[str] = set()  # groups with locks whose owners are not alive
        self.expiry_count = 0  # sessions that expired since the start

    async def heartbeat(
        self, name: str, client_id: str, heartbeat: Heartbeat, address: str
    ) -> tuple[MemberAnswer, bool]:
        """Let a client join its group, or renew its session; return whether it has joined.

        Raises:
            GroupNotFoundError: There is no such group, and joining does not create it.
            ClientIdInUseError: Another process has the client id.
            SubscriptionConflictError: The group has other subscriptions.
            FilterSyntaxError: A subscription's filter is invalid.
            PermissionDeniedError: The group must not be broadcasting, or is the system's.
            ConflictError: The maximum of groups, of topics or of a group's topics is reached.
            OverloadedError: The maximum of members is reached.
        """
        beat = _beat(client_id, heartbeat, address)
        known = self._work.store.state.groups.get(name)
        now = self._work.clock.monotonic()
        if known is not None and self._work.membership.renews(known, beat, now):
            session = self._heard(name, beat)
            return self._answer(known, session, heartbeat.locks), False
        check_filters(heartbeat.subscriptions)
        async with self._work.changes.turn(name):
            await self.free_over(name)
            group = await self._groups.created(name, heartbeat.start)
            return await self._admit(group, beat, heartbeat)

    async def leave(self, name: str, client_id: str, incarnation: str) -> None:
        """End a member's session and release its locks; durable on return.

        Raises:
            GroupNotFoundError, MemberNotFoundError: It does not exist.
            ClientIdInUseError: Another process has the client id.
        """
        async with self._work.changes.turn(name):
            group = self._groups.get(name)
            self.session(name, client_id, incarnation, as_holder=True)
            await self._free(name, [list(group.locks_of(client_id))], "left")
            self._work.membership.remove(name, client_id)
            self._work.watchers.wake(name, (MEMBERS,))

    def generation(self, name: str) -> int:
        """Return the current generation of a group's members.

        Raises:
            GroupNotFoundError: There is no such group.
        """
        return self._work.membership.generation(self._groups.get(name).name)

    async def listing(
        self, name: str, known: int | None, wait_seconds: float, receive: Receive
    ) -> Listing | None:
        """Return a group's members, once their generation is not *known*.

        None: it still is after the wait.

        Raises:
            GroupNotFoundError: There is no such group.
            OverloadedError: The maximum of held requests is reached.
            NotReadyError: The broker stops while the request is held.
        """
        group = self._groups.get(name)
        generation = partial(self._work.membership.generation, name)
        if generation() != known:
            return self._lists.listing(group)
        if wait_seconds <= 0:
            return None
        deadline = self._work.clock.monotonic() + wait_seconds
        with self._work.watchers.watching(name, (MEMBERS,)) as place:
            released = Release.NEWS
            while released is Release.NEWS and generation() == known:
                left = deadline - self._work.clock.monotonic()
                released = await place.wait(left, receive)
        if released is Release.CLIENT_GONE:
            raise ClientGoneError
        if released is Release.STOPPING:
            raise NotReadyError("the broker is stopping", retry_after_seconds=1)
        group = self._groups.get(name)
        return None if generation() == known else self._lists.listing(group)

    def session(
        self, name: str, client_id: str, incarnation: str, *, as_holder: bool = False
    ) -> Session:
        """Return a member's session; with *as_holder* also that of a holder of locks.

        Raises:
            MemberNotFoundError: The client is not a member.
            ClientIdInUseError: Another process has the client id.
        """
        session = self._work.membership.session(name, client_id, self._work.clock.monotonic())
        if session is not None and session.incarnation != incarnation:
            raise ClientIdInUseError(
                f"client id {client_id!r} of group {name!r} belongs to another process"
            )
        if session is None or (session.beat is None and not as_holder):
            raise MemberNotFoundError(f"{client_id!r} is not a member of group {name!r} here")
        return session

    async def free_over(self, name: str) -> None:
        """End the group's expired sessions; to be called in its turn.

        Raises:
            ErucaError: Their locks could not be released in the log; the sessions have ended.
        """
        over = self._work.membership.over(name, self._work.clock.monotonic())
        for client_id in over:
            self._work.membership.expire(name, client_id)
            self.expiry_count += 1
        if over:
            self._work.watchers.wake(name, (MEMBERS,))
            self._unfreed.add(name)
        if name not in self._unfreed:
            return
        try:
            await self._free(name, self._left_behind(name), "expired")
        except ErucaError:
            if over:  # else the error was raised before, and other work continues
                raise
        else:
            self._unfreed.discard(name)

    async def expiry_step(self) -> None:
        """End every expired session: for the expiry loop.

        Raises:
            ErucaError: Some locks could not be released in the log; all sessions have ended.
        """
        failure: ErucaError | None = None
        for name in dict.fromkeys(
            group for group, _ in self._work.membership.due(self._work.clock.monotonic())
        ):
            async with self._work.changes.turn(name):
                try:
                    await self.free_over(name)
                except ErucaError as error:  # errors of other groups' sessions are raised only once
                    failure = error
        if failure is not None:
            raise failure

    async def _admit(
        self, group: Group, beat: Beat, heartbeat: Heartbeat
    ) -> tuple[MemberAnswer, bool]:
        admission = self._work.membership.admit(group, beat, self._work.clock.monotonic())
        is_clustering = beat.message_model == "clustering"
        if not is_clustering and not group.settings.broadcast_enabled:
            raise PermissionDeniedError(
                f"group {group.name!r} must not be broadcasting: its broadcast_enabled is false"
            )
        if not admission.is_renewal and len(self._work.membership) >= self._count_max:
            raise OverloadedError(
                f"members_max is reached: this broker has {self._count_max} members",
                fix="stop consumers that are not needed, or raise ERUCA_BROKER_MEMBERS_MAX",
                retry_after_seconds=heartbeat.session_seconds,
            )
        if is_clustering:
            await self._topics.created(
                Topic(retry_topic(group.name), 1, 1, "rw"), is_for_group=True
            )
        events = self._events(group, beat, heartbeat, admission)
        await self._work.changes.record(*events)
        group = self._work.store.state.groups[group.name]
        if admission.new_subscriptions is not None and admission.is_renewal:
            self._work.changed(group.name)
        session = self._heard(group.name, beat)
        return self._answer(group, session, heartbeat.locks), not admission.is_renewal

    def _events(
        self, group: Group, beat: Beat, heartbeat: Heartbeat, admission: Admission
    ) -> list[Event]:
        """Return the events to record before the member is admitted."""
        events: list[Event] = []
        if admission.replaces is not None:
            events.append(
                MemberReplaced(
                    group.name,
                    beat.client_id,
                    admission.replaces.incarnation,
                    beat.incarnation,
                    beat.session_seconds,
                )
            )
        if admission.new_subscriptions is not None:
            events.append(GroupSubscribed(group.name, admission.new_subscriptions))
        if beat.message_model == "clustering":
            since = {topic: ms_of(when) for topic, when in heartbeat.topics_since.items()}
            topics = [entry.topic for entry in beat.subscriptions]
            met = self._starts.of_topics(group, topics, since, now_ms=self._work.clock.now_ms())
            if met is not None:
                events.append(met)
        return events

    def _heard(self, name: str, beat: Beat) -> Session:
        before = self._work.membership.generation(name)
        session = self._work.membership.heard(
            name, beat, now=self._work.clock.monotonic(), now_ms=self._work.clock.now_ms()
        )
        if self._work.membership.generation(name) != before:
            self._work.watchers.wake(name, (MEMBERS,))
        return session

    async def _free(self, name: str, locked: Iterable[list[Queue]], reason: _Reason) -> None:
        """Release queues, given by their owners."""
        events = [
            LocksReleased(name, [QueueKey(*queue) for queue in queues], reason)
            for queues in locked
            if queues
        ]
        if events:
            try:
                await self._work.changes.record_each(events)
            finally:
                freed = [(key.topic, key.queue_id) for event in events for key in event.queues]
                self._work.watchers.wake(name, freed)

    def _left_behind(self, name: str) -> Iterable[list[Queue]]:
        """Return the locked queues whose owners are not alive, by owner."""
        group = self._work.store.state.groups.get(name)
        now = self._work.clock.monotonic()
        queues: dict[LockOwner, list[Queue]] = {}
        for queue, lock in () if group is None else group.locks.items():
            if not self._work.membership.is_live(name, lock.owner, now):
                queues.setdefault(lock.owner, []).append(queue)
        return queues.values()

    def _answer(self, group: Group, session: Session, locks: Iterable[LockToken]) -> MemberAnswer:
        return MemberAnswer(
            group=group.name,
            client_id=session.client_id,
            generation=self._work.membership.generation(group.name),
            subscription_version=group.subscription_version,
            session_seconds=session.session_seconds,
            consume_enabled=group.settings.consume_enabled,
            lost_locks=[QueueRef(topic=t, queue_id=q) for t, q in _lost(group, session, locks)],
            topics_since={
                entry.topic: moment(group.met[entry.topic])
                for entry in (session.beat.subscriptions if session.beat else ())
                if entry.topic in group.met
            },
        )


def _lost(group: Group, session: Session, locks: Iterable[LockToken]) -> Iterator[Queue]:
    for believed in locks:
        queue = (believed.topic, believed.queue_id)
        lock = group.locks.get(queue)
        if (
            lock is None
            or lock.token != believed.token
            or lock.owner.client_id != session.client_id
            or lock.owner.incarnation != session.incarnation
        ):
            yield queue


def check_filters(subscriptions: Sequence[Subscription]) -> None:
    """Raise FilterSyntaxError if a subscription's filter is invalid."""
    for index, subscription in enumerate(subscriptions):
        try:
            if subscription.filter_type == "sql92":
                compile_sql92(subscription.filter)
            else:
                checked_tag_expression(subscription.filter)
        except (FilterSyntaxError, TagExpressionError) as fault:
            error = fault if isinstance(fault, FilterSyntaxError) else FilterSyntaxError(str(fault))
            pointer = f"/body/subscriptions/{index}/filter"
            error.errors = [{"pointer": pointer, "detail": error.detail}]
            raise error from fault


def _beat(client_id: str, heartbeat: Heartbeat, address: str) -> Beat:
    return Beat(
        client_id,
        heartbeat.incarnation,
        tuple(
            sorted(
                (Subscribed(s.topic, s.filter, s.filter_type) for s in heartbeat.subscriptions),
                key=lambda entry: entry.topic,
            )
        ),
        heartbeat.session_seconds,
        heartbeat.message_model,
        heartbeat.consume_type,
        heartbeat.is_static,
        heartbeat.replaces_subscription_version,
        address,
        heartbeat.handling,
    )
