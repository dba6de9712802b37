"""Leasing for concurrent requests: they share a look, and a write.

Each gets the same messages as if they had come one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from eruca.contract.deliveries import Delivery, DeliveryAnswer, DeliveryRequest
from eruca.contract.errors import ErucaError, SystemTopicError, UnavailableError
from eruca.contract.limits import PULL_SIZE_MAX
from eruca.contract.names import is_system_topic
from eruca_broker.core.consuming.lease_handles import Handle, encode_handle
from eruca_broker.core.damage import Damage
from eruca_broker.core.records.rendering import render, render_damage
from eruca_broker.core.records.times import rfc3339
from eruca_broker.core.state.group_state import Queue
from eruca_broker.processors.deliveries.counts import DeliveryCounts
from eruca_broker.processors.deliveries.joining import DeliveryJoining
from eruca_broker.processors.deliveries.leasing import Handful, Leased, Leasing, Scanned, Wanted
from eruca_broker.processors.deliveries.writing import DeliveryWriter
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.members import Members
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.topics import Topics
from eruca_broker.store.files.residency import NotInMemoryError
from eruca_broker.store.reading.cold_reads import Tries


class Found(NamedTuple):
    """The answer to a request, if it does not wait."""

    answer: DeliveryAnswer
    pause_seconds: float | None  # until another look is worthwhile; None: until something happens
    fault: UnavailableError | None  # raised instead of an empty answer
    cold: NotInMemoryError | None = None  # there is no answer before its bytes are in memory

    def settled(self) -> DeliveryAnswer:
        """Return the end of the request.

        Raises:
            UnavailableError: The queues that can be read contain nothing for it.
        """
        if self.fault is not None:
            raise self.fault
        return self.answer

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """The deliveries of the answer."""
        return self.answer.deliveries


class Ask(NamedTuple):
    """A request for messages that needs a look now."""

    request: DeliveryRequest
    wanted: Wanted
    scanned: dict[Queue, Scanned]  # updated
    is_last: bool  # whether the request ends with this look
    tries: Tries  # of reads that are not in memory; updated

    @property
    def kind(self) -> tuple[object, ...]:
        """Return the key that requests share if one look can serve them."""
        request = self.request
        return (
            request.topic,
            request.filter,
            request.filter_type,
            request.start,
            self.wanted.invisible_ms,
            self.is_last,
        )


class HandingOut:
    """Looks for messages and leases them, in the group's turn."""

    def __init__(
        self,
        work: GroupWork,
        topics: Topics,
        groups: Groups,
        members: Members,
        *,
        broker_name: str,
        leasing: Leasing,
        writer: DeliveryWriter,
        counts: DeliveryCounts,
    ) -> None:
        self._work = work
        self._topics = topics
        self._groups = groups
        self._members = members
        self._broker_name = broker_name
        self._leasing = leasing
        self._writer = writer
        self._counts = counts
        self._joining = DeliveryJoining(work, topics)

    async def hand_out(self, name: str, asks: Sequence[Ask]) -> list[Found | ErucaError]:
        """Look for messages for several requests, in the group's turn; equal ones share a look."""
        outcomes: dict[int, Found | ErucaError] = {}
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
                # On its last look, a request may get an empty answer only if nothing is left to
                # read.
                with_none = [n for n, one in zip(left, found, strict=True) if not one.deliveries]
                left = with_none if asks[left[0]].is_last and len(with_none) < len(left) else []
        return [outcomes[number] for number in range(len(asks))]

    async def _share_out(self, name: str, asks: Sequence[Ask]) -> list[Found]:
        """Look once for equal requests, and divide the messages in their order."""
        request, wanted, _, is_last, tries = asks[0]
        self._check_readable(request.topic)
        await self._members.free_over(name)
        group = await self._groups.created(name, request.start)
        # Again if the topic has got queues meanwhile; if it was deleted, this raises an error.
        while joining := list(self._joining.events(group, request)):
            await self._work.changes.record_each(joining)
            # Not the earlier object: if this began a segment, its snapshot is the state.
            group = await self._groups.created(name, request.start)
        now_ms = self._work.clock.now_ms()
        counts = [ask.wanted.count_max for ask in asks]
        scanned = {queue: seen for ask in asks for queue, seen in ask.scanned.items()}
        look = partial(
            self._leasing.look,
            group,
            dataclasses.replace(wanted, count_max=sum(counts)),
            scanned,
            now_ms=now_ms,
            is_last=is_last,
        )
        try:
            handful = self._work.store.cold.try_now(look, tries)
        except NotInMemoryError as cold:  # waited for outside of the turn
            return [_not_yet(cold) for _ in asks]
        for ask in asks:
            ask.scanned.update(scanned)
        if plain := [change.event for change in handful.changes if not change.dead]:
            await self._work.changes.record_each(plain)
        for change in handful.changes:
            if change.dead:
                await self._writer.write(change.event, change.dead)
        leased = iter(handful.leased)
        parts = [list(islice(leased, count)) for count in counts]
        assert sum(map(len, parts)) == len(handful.leased), "a message is leased to nobody"
        visible_at = now_ms + wanted.invisible_ms
        return [self._found(name, handful, part, now_ms, visible_at) for part in parts]

    def _found(
        self, name: str, handful: Handful, leased: list[Leased], now_ms: int, visible_at: int
    ) -> Found:
        deliveries = list(self._deliveries(name, leased, visible_at))
        due_in = None if handful.due_at_ms is None else (handful.due_at_ms - now_ms) / 1_000
        pause = due_in if handful.is_complete else 0.0
        if handful.leased and not leased:
            pause = 0.0  # others who shared the look got it all; there may be more
        self._counts.handed_out += len(deliveries)
        self._counts.handed_out_again += sum(one.attempt > 1 for one in deliveries)
        answer = DeliveryAnswer(
            deliveries=deliveries,
            empty_because=None if deliveries else handful.empty_because,
            retry_after_seconds=None if deliveries else pause,
        )
        return Found(answer, pause, handful.fault)

    def _deliveries(
        self, name: str, leased: Iterable[Leased], visible_at: int
    ) -> Iterator[Delivery]:
        room = PULL_SIZE_MAX
        for queue, offset, attempt, record in leased:
            known = self._work.store.state.leases.of_queue(name, queue)
            lease = known.unfinished.get(offset) if known is not None else None
            if lease is None or lease.attempt != attempt or lease.due_at != visible_at:
                continue  # the topic was deleted while this was recorded
            epoch = self._work.store.state.epochs.at(lease.fence)
            handle = Handle(self._broker_name, name, *queue, offset, attempt, lease.fence, epoch)
            if isinstance(record, Damage):
                message = render_damage(record, *queue)
            else:
                message, size = render(record, body_room=max(room, 0))
                room -= size
            yield Delivery(
                handle=encode_handle(handle),
                attempt=attempt,
                visible_at=rfc3339(visible_at),
                message=message,
            )

    def _check_readable(self, topic: str) -> None:
        if is_system_topic(topic):
            raise SystemTopicError(f"topic {topic!r} belongs to the system")
        self._topics.for_pulling(topic, 0)


def _not_yet(cold: NotInMemoryError) -> Found:
    nothing = DeliveryAnswer(deliveries=[], empty_because="empty", retry_after_seconds=0.0)
    return Found(nothing, 0.0, None, cold)  # the request looks again, and never shows that
