"""Deliveries: consuming without a session, message by message.

Each request is decided and recorded in its group's turn. It is answered once its changes are as
durable as a message would be: a handle that a client has seen survives the broker. Concurrent
requests for messages share a turn, and so do concurrent acknowledgements
(:mod:`~eruca_broker.processors.deliveries.gathering`). A held request holds no turn. If its client
disconnects meanwhile, it gets no messages.

Members with locks and deliveries share a group's positions and never a queue. Deliveries skip a
locked queue. A queue with leased messages is not locked before they are finished or expired.

Source: RocketMQ 5.3, ``PopMessageProcessor``, ``AckMessageProcessor``,
``ChangeInvisibleTimeProcessor``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from eruca.contract.deliveries import (
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
    ErucaError,
    ExpiredHandleError,
    FilterSyntaxError,
    StaleHandleError,
    TooLargeError,
)
from eruca_broker.core.consuming.lease_handles import Handle
from eruca_broker.core.consuming.message_filter import MessageFilter, parse_filter
from eruca_broker.core.consuming.retry_policy import verdict
from eruca_broker.core.records.times import moment
from eruca_broker.core.state.group_state import Group, Queue
from eruca_broker.core.state.lease_events import (
    DeliveriesAcked,
    DeliveriesExtended,
    DeliveriesNacked,
    HeldLease,
    NackedLease,
    QueueLeaseRefs,
    QueueNacks,
)
from eruca_broker.processors.deliveries.counts import DeliveryCounts
from eruca_broker.processors.deliveries.gathering import Gathering
from eruca_broker.processors.deliveries.handing_out import Ask, Found, HandingOut
from eruca_broker.processors.deliveries.handles import HeldDelivery, check_handles, read_handles
from eruca_broker.processors.deliveries.leasing import LeaseLimits, Leasing, Scanned, Wanted
from eruca_broker.processors.deliveries.letters import DeadDelivery
from eruca_broker.processors.deliveries.reads import DeliveryReader
from eruca_broker.processors.deliveries.waiters import DeliveryWaiters
from eruca_broker.processors.deliveries.writing import DeliveryWriter
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.members import Members
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.topics import Topics
from eruca_broker.store.reading.cold_reads import AHEAD_SIZE, Tries
from eruca_chassis.admission.held import Release
from eruca_chassis.asgi import ClientGoneError, Receive

GIVEN_UP_SIZE_MAX: Final = 16 * 1024 * 1024  # bytes of a request's dead letters, unless one


class Deliveries:
    """Leases messages and finishes them by their handles."""

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
        self._broker_name = broker_name
        self._limits = limits
        self._reader = DeliveryReader(work.store)
        self._writer = DeliveryWriter(work, topics, self.counts)
        handing_out = HandingOut(
            work,
            topics,
            groups,
            members,
            broker_name=broker_name,
            leasing=Leasing(work.store, self._reader, limits),
            writer=self._writer,
            counts=self.counts,
        )
        self._asks = Gathering(work.changes.turn, handing_out.hand_out)
        self._acks = Gathering(work.changes.turn, self._acknowledge)

    async def receive(
        self, name: str, request: DeliveryRequest, receive: Receive
    ) -> DeliveryAnswer:
        """Lease messages of a topic; if there are none, wait for some.

        Raises:
            FilterSyntaxError: The filter is invalid.
            TopicNotFoundError, PermissionDeniedError, SystemTopicError: The topic cannot be read.
            GroupNotFoundError: There is no such group, and using it does not create it.
            SubscriptionConflictError: The group consumes the topic with another filter.
            ConflictError: It is broadcasting; or the maximum of groups, or of a group's topics, is
                reached.
            OverloadedError: The maximum of held requests is reached.
            UnavailableError: Nothing was found, and a queue cannot be read, or lacks messages that
                are in the log.
        """
        wanted = Wanted(
            request.topic,
            _filter_of(request),
            request.count_max,
            round(request.invisible_seconds * 1_000),
        )
        scanned: dict[Queue, Scanned] = {}
        tries: Tries = {}
        self.counts.requests += 1
        is_last = request.wait_seconds <= 0
        found = await self._look(name, Ask(request, wanted, scanned, is_last, tries))
        if is_last or found.deliveries:
            return found.settled()
        self.counts.held += 1
        deadline = self._work.clock.monotonic() + request.wait_seconds
        topic = self._topics.get(request.topic)
        with self.waiters.waiting(name, topic.name, topic.read_queue_count) as place:
            while True:
                # Also at first: for messages that came between the look above and the registration.
                found = await self._look(name, Ask(request, wanted, scanned, is_last, tries))
                if is_last or found.deliveries:
                    return found.settled()
                left = max(deadline - self._work.clock.monotonic(), 0.0)
                pause = left if found.pause_seconds is None else min(left, found.pause_seconds)
                released = await place.wait(pause, receive)
                if released is Release.CLIENT_GONE:
                    raise ClientGoneError
                if released is Release.STOPPING:
                    return found.settled()
                is_last = released is Release.EXPIRED and pause >= left
                if pause <= 0:
                    await asyncio.sleep(0)  # a long scan of a queue is shared with the others

    async def ack(self, name: str, acks: DeliveryAcks) -> None:
        """Finish messages, all or none; durable on return.

        Raises:
            GroupNotFoundError: There is no such group.
            ValidationError: A handle is invalid.
            StaleHandleError, ExpiredHandleError: A message is no longer the client's.
        """
        await self._acks.done(name, read_handles(acks.handles))

    async def extend(self, name: str, extension: DeliveryExtension) -> ExtendedDeliveries:
        """Extend the leases of messages, all or none; durable on return.

        Raises:
            GroupNotFoundError: There is no such group.
            ValidationError: A handle is invalid.
            StaleHandleError, ExpiredHandleError: A message is no longer the client's.
        """
        handles = read_handles(extension.handles)
        async with self._work.changes.turn(name):
            self._groups.get(name)
            held = self._held(name, handles)
            now_ms = self._work.clock.now_ms()
            visible_at = now_ms + round(extension.invisible_seconds * 1_000)
            await self._work.changes.record(DeliveriesExtended(name, visible_at, _refs(held)))
            self.counts.extended += len(held)
            self._work.watchers.wake(name, _queues(held))  # may also be earlier than before
            return ExtendedDeliveries(visible_at=moment(visible_at))

    async def nack(self, name: str, nacks: DeliveryNacks) -> NackResults:
        """Reject messages (nack), all or none; durable on return.

        They are redelivered, or become dead letters.

        Raises:
            GroupNotFoundError: There is no such group.
            ValidationError: A handle is invalid.
            StaleHandleError, ExpiredHandleError: A message is no longer the client's.
            TooLargeError: The new dead letters are too large for one request.
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
                    times_max=group.settings.retries_max,
                    policy=group.settings.retry_policy,
                    now_ms=now_ms,
                    delay_seconds=nacks.delay_seconds,
                ).wait
                if wait is None:
                    dead.append(one)
                else:
                    again[one] = wait.time_ms(now_ms)
            event = DeliveriesNacked(name, _nacks(held, again))
            await self._writer.write(event, self._given_up(dead, nacks))
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

    # --- Inside -----------------------------------------------------------------------------------

    async def _look(self, name: str, ask: Ask) -> Found:
        """Look for messages; again, as often as some have to be read from the disk first."""
        while (found := await self._asks.done(name, ask)).cold is not None:
            cold = self._work.store.cold
            await cold.bring(f"group {name}", found.cold, ahead=AHEAD_SIZE)
        return found

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
        await self._work.changes.record_each(DeliveriesAcked(name, _refs(its)) for its in held)
        self.counts.acked += len(every)
        self._count(name, every)
        self._wake(group, every, full)
        return outcomes

    def _held(
        self, name: str, handles: Sequence[Handle], finished: Set[tuple[Queue, int]] = frozenset()
    ) -> list[HeldDelivery]:
        state = self._work.store.state
        try:
            return check_handles(
                state.leases,
                name,
                self._broker_name,
                handles,
                epochs=state.epochs,
                now_ms=self._work.clock.now_ms(),
                finished=finished,
            )
        except StaleHandleError:
            self.counts.stale_refusals += 1
            raise
        except ExpiredHandleError:
            self.counts.expired_refusals += 1
            raise

    def _given_up(self, dead: Iterable[HeldDelivery], nacks: DeliveryNacks) -> list[DeadDelivery]:
        given_up: list[DeadDelivery] = []
        size = 0
        for one in dead:
            raw = self._reader.raw(one.queue, one.offset)
            if raw is None:
                continue
            dead_delivery = DeadDelivery(one.queue, raw, one.attempt, nacks.reason, nacks.error)
            size += dead_delivery.size
            if given_up and size > GIVEN_UP_SIZE_MAX:
                raise TooLargeError(
                    f"the new dead letters take more than {GIVEN_UP_SIZE_MAX} bytes",
                    fix="reject fewer messages in one request",
                )
            given_up.append(dead_delivery)
        return given_up

    def _count(self, name: str, acked: Iterable[HeldDelivery]) -> None:
        offsets: dict[Queue, list[int]] = {}
        for one in acked:
            offsets.setdefault(one.queue, []).append(one.offset)
        for queue, its in offsets.items():
            self._work.consumption.acknowledged(name, queue, its)

    def _is_full(self, name: str, queue: Queue) -> bool:
        leases = self._work.store.state.leases
        known = leases.of_queue(name, queue)
        return leases.unfinished_count >= self._limits.of_all or (
            known is not None and len(known.unfinished) >= self._limits.per_queue
        )

    def _wake(self, group: Group, held: Sequence[HeldDelivery], full: set[Queue]) -> None:
        """Wake the requests to which finished messages matter; there is hardly ever one."""
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


def _filter_of(request: DeliveryRequest) -> MessageFilter:
    try:
        return parse_filter(request.filter, request.filter_type)
    except FilterSyntaxError as error:
        error.errors = [{"pointer": "/body/filter", "detail": error.detail}]
        raise


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
