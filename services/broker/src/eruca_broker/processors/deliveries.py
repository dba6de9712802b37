"""Deliveries: consuming without a session, message by message.

Each request is decided and recorded in its group's turn, and answered once what it changes is as
durable as a message would be: a handle that a client has seen survives the broker. Requests for
messages that come at the same time have a turn together, and so have acknowledgements, see
:mod:`eruca_broker.processors.gathering`. A request that waits holds no turn, and one whose client
leaves meanwhile is handed nothing.

A group's deliveries of a topic have one filter, like its members; the first use sets it. Members
with locks and deliveries share a group's positions and never a queue: a locked queue hands nothing
out, and a queue with messages handed out is not locked before they are done or their time is over.

Source: RocketMQ 5.3, ``PopMessageProcessor``, ``AckMessageProcessor``,
``ChangeInvisibleTimeProcessor``.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from eruca.contract.deliveries import (
    Delivery,
    DeliveryAcks,
    DeliveryAnswer,
    DeliveryExtension,
    DeliveryNacks,
    DeliveryRequest,
    ExtendedDeliveries,
    NackResult,
    NackResults,
)
from eruca.contract.errors import (
    ConflictError,
    ErucaError,
    ExpiredHandleError,
    StaleHandleError,
    SubscriptionConflictError,
    SystemTopicError,
)
from eruca.contract.limits import PULL_SIZE_MAX
from eruca.contract.names import dead_letter_topic, is_system_topic
from eruca_broker.core.events import Event
from eruca_broker.core.group_events import GroupSubscribed, Subscribed
from eruca_broker.core.group_state import Group, Queue
from eruca_broker.core.lease_events import (
    DeliveriesAcked,
    DeliveriesExtended,
    DeliveriesLeased,
    DeliveriesNacked,
    HeldLease,
    NackedLease,
    QueueLeaseRefs,
    QueueNacks,
)
from eruca_broker.core.lease_handles import Handle, encode_handle
from eruca_broker.core.message_filter import parse_filter
from eruca_broker.core.rendering import render
from eruca_broker.core.retry_policy import verdict
from eruca_broker.core.state import Topic
from eruca_broker.core.times import moment, rfc3339
from eruca_broker.processors.delivery_handles import HeldDelivery, check_handles, read_handles
from eruca_broker.processors.delivery_leasing import (
    Handful,
    Leased,
    LeaseLimits,
    Leasing,
    Scanned,
    Wanted,
)
from eruca_broker.processors.delivery_letters import DeadDelivery, letter_batches
from eruca_broker.processors.delivery_reads import DeliveryReader
from eruca_broker.processors.delivery_waiters import DeliveryWaiters
from eruca_broker.processors.gathering import Gathering
from eruca_broker.processors.group_work import GroupWork
from eruca_broker.processors.groups import Groups
from eruca_broker.processors.members import Members
from eruca_broker.processors.starts import Starts
from eruca_broker.processors.topics import Topics
from eruca_chassis.asgi import ClientGoneError, Receive
from eruca_chassis.held import Release

_NAMED_MEMBERS_MAX: Final = 5  # members an error names


class DeliveryCounts:
    """What has become of deliveries since the start."""

    __slots__ = (
        "acked", "dead", "expired_refusals", "extended", "handed_out", "handed_out_again",
        "held", "nacked", "requests", "stale_refusals",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests = 0  # for messages
        self.held = 0  # of them, those that had to wait
        self.handed_out = 0  # messages
        self.handed_out_again = 0  # of them, those that were not for the first time
        self.acked = 0
        self.nacked = 0
        self.extended = 0
        self.dead = 0
        self.stale_refusals = 0  # requests with a stale handle
        self.expired_refusals = 0


class _Found(NamedTuple):
    answer: DeliveryAnswer
    pause_seconds: float | None  # until it is worth looking again; None: until something happens

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """What is handed out."""
        return self.answer.deliveries


class _Ask(NamedTuple):
    """A request for messages that is to be looked for now."""

    request: DeliveryRequest
    wanted: Wanted
    scanned: dict[Queue, Scanned]  # brought up to date
    is_last: bool  # whether the request ends with this look

    @property
    def kind(self) -> tuple[object, ...]:
        """What is the same of requests that can share one look."""
        request = self.request
        return (
            request.topic,
            request.filter,
            request.filter_type,
            request.start,
            self.wanted.invisible_ms,
            self.is_last,
        )


class Deliveries:
    """Hands messages out and takes handles back."""

    def __init__(
        self,
        work: GroupWork,
        topics: Topics,
        groups: Groups,
        members: Members,
        *,
        broker_name: str,
        limits: LeaseLimits,
    ) -> None:
        self.counts = DeliveryCounts()
        self.waiters = DeliveryWaiters(work.watchers)
        self._work = work
        self._topics = topics
        self._groups = groups
        self._members = members
        self._broker_name = broker_name
        self._limits = limits
        self._reader = DeliveryReader(work.store)
        self._leasing = Leasing(work.store, self._reader, limits)
        self._starts = Starts(work.store)
        self._asks = Gathering(work.changes.turn, self._hand_out)
        self._acks = Gathering(work.changes.turn, self._acknowledge)

    async def receive(
        self, name: str, request: DeliveryRequest, receive: Receive
    ) -> DeliveryAnswer:
        """Hand out messages of a topic; where there is none, wait for some.

        Raises:
            FilterSyntaxError: The filter means nothing.
            TopicNotFoundError, PermissionDeniedError, SystemTopicError: The topic cannot be read.
            GroupNotFoundError: There is no such group, and using it does not create it.
            SubscriptionConflictError: The group consumes the topic with another filter.
            ConflictError: It is broadcasting; or there are as many groups, or topics of a group,
                as are allowed.
            OverloadedError: As many requests as are allowed are being held.
        """
        wanted = Wanted(
            request.topic,
            parse_filter(request.filter, request.filter_type),
            request.max_count,
            round(request.invisible_seconds * 1_000),
        )
        scanned: dict[Queue, Scanned] = {}
        self.counts.requests += 1
        is_last = request.wait_seconds <= 0
        found = await self._asks.done(name, _Ask(request, wanted, scanned, is_last))
        if is_last or found.deliveries:
            return found.answer
        self.counts.held += 1
        deadline = self._work.clock.monotonic() + request.wait_seconds
        topic = self._topics.get(request.topic)
        queues = [(topic.name, queue_id) for queue_id in range(topic.read_queue_count)]
        with self.waiters.waiting(name, queues) as place:
            while True:
                # Also at first: what came between the look above and the registration.
                found = await self._asks.done(name, _Ask(request, wanted, scanned, is_last))
                if is_last or found.deliveries:
                    return found.answer
                left = max(deadline - self._work.clock.monotonic(), 0.0)
                pause = left if found.pause_seconds is None else min(left, found.pause_seconds)
                released = await place.wait(pause, receive)
                if released is Release.CLIENT_GONE:
                    raise ClientGoneError
                if released is Release.STOPPING:
                    return found.answer
                is_last = released is Release.EXPIRED and pause >= left
                if pause <= 0:
                    await asyncio.sleep(0)  # a long way through a queue is shared with the others

    async def ack(self, name: str, acks: DeliveryAcks) -> None:
        """Finish messages, all or none; durable on return.

        Raises:
            GroupNotFoundError: There is no such group.
            ValidationError: A handle is none.
            StaleHandleError, ExpiredHandleError: A message is not the client's any more.
        """
        await self._acks.done(name, read_handles(acks.handles))

    async def extend(self, name: str, extension: DeliveryExtension) -> ExtendedDeliveries:
        """Give clients more time for messages, all or none; durable on return.

        Raises:
            GroupNotFoundError: There is no such group.
            ValidationError: A handle is none.
            StaleHandleError, ExpiredHandleError: A message is not the client's any more.
        """
        handles = read_handles(extension.handles)
        async with self._work.changes.turn(name):
            self._groups.get(name)
            held = self._held(name, handles)
            now_ms = self._work.clock.now_ms()
            visible_at = now_ms + round(extension.invisible_seconds * 1_000)
            await self._work.changes.record(DeliveriesExtended(name, visible_at, _refs(held)))
            self.counts.extended += len(held)
            self._work.watchers.wake(name, _queues(held))  # it may be less time than it was
            return ExtendedDeliveries(visible_at=moment(visible_at))

    async def nack(self, name: str, nacks: DeliveryNacks) -> NackResults:
        """Give messages up, all or none: they come again, or are dead letters. Durable on return.

        Raises:
            GroupNotFoundError: There is no such group.
            ValidationError: A handle is none.
            StaleHandleError, ExpiredHandleError: A message is not the client's any more.
        """
        handles = read_handles(nacks.handles)
        async with self._work.changes.turn(name):
            group = self._groups.get(name)
            held = self._held(name, handles)
            now_ms = self._work.clock.now_ms()
            again, dead = {}, []
            for one in held:
                wait = verdict(
                    one.attempt - 1,
                    times_max=group.settings.retry_max_times,
                    policy=group.settings.retry_policy,
                    now_ms=now_ms,
                    delay_seconds=nacks.delay_seconds,
                ).wait
                if wait is None:
                    dead.append(one)
                else:
                    again[one] = wait.time_ms(now_ms)
            event = DeliveriesNacked(name, _nacks(held, again))
            await self._write(event, list(self._given_up(dead, nacks)))
            self.counts.nacked += len(again)
            self._work.watchers.wake(name, _queues(held))
        return NackResults(
            results=[
                NackResult(
                    outcome="retry" if one in again else "dead_letter",
                    attempts=one.attempt,
                    visible_at=moment(again[one]) if one in again else None,
                )
                for one in held
            ]
        )

    # --- Handing out ------------------------------------------------------------------------------

    async def _hand_out(self, name: str, asks: Sequence[_Ask]) -> list[_Found | ErucaError]:
        """Look for messages for several requests, in the group's turn; those alike share a look."""
        outcomes: dict[int, _Found | ErucaError] = {}
        alike: dict[tuple[object, ...], list[int]] = {}
        for number, ask in enumerate(asks):
            alike.setdefault(ask.kind, []).append(number)
        for numbers in alike.values():
            left = numbers
            while left:
                try:
                    found = await self._share_out(name, [asks[number] for number in left])
                except ErucaError as error:
                    outcomes |= dict.fromkeys(left, error)
                    break
                outcomes |= zip(left, found, strict=True)
                # Whose last look it was, is told that there is nothing only once that is so.
                with_none = [n for n, one in zip(left, found, strict=True) if not one.deliveries]
                left = with_none if asks[left[0]].is_last and len(with_none) < len(left) else []
        return [outcomes[number] for number in range(len(asks))]

    async def _share_out(self, name: str, asks: Sequence[_Ask]) -> list[_Found]:
        """Look once for requests that are alike, and share what is found in their order."""
        request, wanted, _, is_last = asks[0]
        self._check_readable(request.topic)
        await self._members.free_over(name)
        group = await self._groups.created(name, request.start)
        joining = list(self._joining(group, request))
        if joining:
            await self._work.changes.record(*joining)
        now_ms = self._work.clock.now_ms()
        counts = [ask.wanted.max_count for ask in asks]
        scanned = {queue: seen for ask in asks for queue, seen in ask.scanned.items()}
        handful = self._leasing.look(
            group,
            dataclasses.replace(wanted, max_count=sum(counts)),
            scanned,
            now_ms=now_ms,
            is_last=is_last,
        )
        for ask in asks:
            ask.scanned.update(scanned)
        if plain := [change.event for change in handful.changes if not change.dead]:
            await self._work.changes.record(*plain)
        for change in handful.changes:
            if change.dead:
                await self._write(change.event, change.dead)
        leased = iter(handful.leased)
        parts = [list(islice(leased, count)) for count in counts]
        visible_at = now_ms + wanted.invisible_ms
        return [self._found(name, handful, part, now_ms, visible_at) for part in parts]

    def _check_readable(self, topic: str) -> None:
        if is_system_topic(topic):
            raise SystemTopicError(f"topic {topic!r} belongs to the system")
        self._topics.for_pulling(topic, 0)

    def _joining(self, group: Group, request: DeliveryRequest) -> Iterator[Event]:
        """Yield what is to be recorded before the group can be handed messages of the topic."""
        members = self._work.membership.members(group.name)
        for member in members:
            if member.beat is not None and member.beat.message_model == "broadcasting":
                raise ConflictError(
                    f"group {group.name!r} is broadcasting, as member {member.client_id!r} is",
                    fix="use another group",
                )
        wanted = Subscribed(request.topic, request.filter or "*", request.filter_type)
        known = {entry.topic: entry for entry in group.subscriptions}
        if known.get(wanted.topic) != wanted:
            is_shared = group.settings.subscription_mode == "shared"
            names = [member.client_id for member in members] if is_shared else []
            self._refuse_conflict(group, known.get(wanted.topic), wanted, names)
            known[wanted.topic] = wanted
            yield GroupSubscribed(group.name, tuple(known[topic] for topic in sorted(known)))
        topic = self._topics.get(request.topic)
        queues = ((topic.name, queue_id) for queue_id in range(topic.read_queue_count))
        if any(group.position(queue) is None for queue in queues):
            now_ms = self._work.clock.now_ms()
            met = self._starts.of_topics(group, [topic.name], {}, now_ms=now_ms)
            if met is not None:
                yield met

    def _refuse_conflict(
        self, group: Group, known: Subscribed | None, wanted: Subscribed, members: Sequence[str]
    ) -> None:
        """Raise where the group cannot take *wanted* instead of what is *known* of the topic."""
        leases = self._work.store.state.leases.of_group(group.name)
        unfinished = sum(
            len(queue.unfinished) for (topic, _), queue in leases if topic == wanted.topic
        )
        theirs = f"{known.filter_type} {known.filter!r}" if known else "none"
        difference = (
            f"topic {wanted.topic!r}: the group has {theirs}, the request "
            f"{wanted.filter_type} {wanted.filter!r}"
        )
        if members:
            shown = ", ".join(map(repr, members[:_NAMED_MEMBERS_MAX]))
            more = len(members) - _NAMED_MEMBERS_MAX
            raise SubscriptionConflictError(
                f"the request does not subscribe as group {group.name!r} does, whose members are "
                f"{shown}{f' and {more} more' if more > 0 else ''}: {difference}"
            )
        if known is not None and unfinished:
            raise SubscriptionConflictError(
                f"the request does not subscribe as group {group.name!r} does, of whose messages "
                f"{unfinished} are unfinished: {difference}",
                fix="use the group's filter, or another group; or finish all messages first",
            )

    def _found(
        self, name: str, handful: Handful, leased: list[Leased], now_ms: int, visible_at: int
    ) -> _Found:
        deliveries = list(self._deliveries(name, leased, visible_at))
        due_in = None if handful.due_at_ms is None else (handful.due_at_ms - now_ms) / 1_000
        pause = due_in if handful.is_complete else 0.0
        if handful.leased and not leased:
            pause = 0.0  # others who shared the look got it all; there may be more
        self.counts.handed_out += len(deliveries)
        self.counts.handed_out_again += sum(one.attempt > 1 for one in deliveries)
        answer = DeliveryAnswer(
            deliveries=deliveries,
            empty_because=None if deliveries else handful.empty_because,
            retry_after_seconds=None if deliveries else pause,
        )
        return _Found(answer, pause)

    def _deliveries(
        self, name: str, leased: Iterable[Leased], visible_at: int
    ) -> Iterator[Delivery]:
        room = PULL_SIZE_MAX
        for queue, offset, attempt, record in leased:
            known = self._work.store.state.leases.of_queue(name, queue)
            lease = known.unfinished.get(offset) if known is not None else None
            if lease is None or lease.attempt != attempt or lease.due_at != visible_at:
                continue  # the topic was deleted while this was recorded
            handle = Handle(self._broker_name, name, *queue, offset, attempt, lease.fence)
            message, size = render(record, body_room=max(room, 0))
            room -= size
            yield Delivery(
                handle=encode_handle(handle),
                attempt=attempt,
                visible_at=rfc3339(visible_at),
                message=message,
            )

    # --- Taking back ------------------------------------------------------------------------------

    async def _acknowledge(
        self, name: str, requests: Sequence[Sequence[Handle]]
    ) -> list[ErucaError | None]:
        """Finish the messages of several requests, in the group's turn."""
        group = self._groups.get(name)
        outcomes: list[ErucaError | None] = []
        held: list[list[HeldDelivery]] = []
        finished: set[tuple[Queue, int]] = set()
        for handles in requests:
            try:
                its = self._held(name, handles, finished)
            except (StaleHandleError, ExpiredHandleError) as error:
                outcomes.append(error)
                continue
            outcomes.append(None)
            held.append(its)
            finished.update((one.queue, one.offset) for one in its)
        every = [one for its in held for one in its]
        full = {queue for queue in _queues(every) if self._is_full(name, queue)}
        await self._work.changes.record(*(DeliveriesAcked(name, _refs(its)) for its in held))
        self.counts.acked += len(every)
        self._wake(group, every, full)
        return outcomes

    # --- Inside -----------------------------------------------------------------------------------

    def _held(
        self, name: str, handles: Sequence[Handle], finished: Set[tuple[Queue, int]] = frozenset()
    ) -> list[HeldDelivery]:
        leases, now_ms = self._work.store.state.leases, self._work.clock.now_ms()
        try:
            return check_handles(
                leases, name, self._broker_name, handles, now_ms=now_ms, finished=finished
            )
        except StaleHandleError:
            self.counts.stale_refusals += 1
            raise
        except ExpiredHandleError:
            self.counts.expired_refusals += 1
            raise

    def _given_up(
        self, dead: Iterable[HeldDelivery], nacks: DeliveryNacks
    ) -> Iterator[DeadDelivery]:
        for one in dead:
            raw = self._reader.raw(one.queue, one.offset)
            if raw is not None:
                yield DeadDelivery(raw, one.attempt, nacks.reason, nacks.error)

    async def _write(
        self, event: DeliveriesLeased | DeliveriesNacked, dead: Sequence[DeadDelivery]
    ) -> None:
        """Record an event with its dead letters, in one write; in effect on return."""
        if not dead:
            await self._work.changes.record(event)
            return
        await self._topics.created(Topic(dead_letter_topic(event.group), 1, 1, "rw"))
        batches = letter_batches(event.group, dead)
        size = sum(batch.size for batch in batches)
        head = msgspec.structs.replace(event, group_size=size)
        appending = self._work.store.append_group(batches, head)
        try:
            await asyncio.shield(appending)
        except asyncio.CancelledError:
            await asyncio.wait([appending])  # the turn must not end before
            raise
        self.counts.dead += len(dead)

    def _is_full(self, name: str, queue: Queue) -> bool:
        leases = self._work.store.state.leases
        known = leases.of_queue(name, queue)
        return leases.unfinished_count >= self._limits.of_all or (
            known is not None and len(known.unfinished) >= self._limits.per_queue
        )

    def _wake(self, group: Group, held: Sequence[HeldDelivery], full: set[Queue]) -> None:
        """Wake whom it concerns that messages are done: hardly ever anybody."""
        leases = self._work.store.state.leases
        self._work.watchers.wake(
            group.name,
            [
                queue
                for queue in _queues(held)
                if group.settings.ordered
                or queue in full
                or leases.of_queue(group.name, queue) is None  # a member may lock it now
            ],
        )


def _queues(held: Iterable[HeldDelivery]) -> list[Queue]:
    return list(dict.fromkeys(one.queue for one in held))


def _refs(held: Sequence[HeldDelivery]) -> list[QueueLeaseRefs]:
    return [
        QueueLeaseRefs(
            *queue, [HeldLease(one.offset, one.fence) for one in held if one.queue == queue]
        )
        for queue in _queues(held)
    ]


def _nacks(held: Sequence[HeldDelivery], again: Mapping[HeldDelivery, int]) -> list[QueueNacks]:
    return [
        QueueNacks(
            *queue,
            [
                NackedLease(one.offset, one.fence, again[one])
                for one in held
                if one.queue == queue and one in again
            ],
            [
                HeldLease(one.offset, one.fence)
                for one in held
                if one.queue == queue and one not in again
            ],
        )
        for queue in _queues(held)
    ]
