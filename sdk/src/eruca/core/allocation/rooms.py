"""Shares by machine room: members read from brokers in their own room.

:class:`ByMachineRoom` is for a group in certain rooms: the group does not read the queues of any
other room. With :class:`MachineRoomNearby` the group reads all queues: all members share the queues
of rooms without members.

A room with members but without queues gets no share of other rooms that have members, however busy
those are. The prefix of a broker's name, ``ROOM@NAME``, or a resolver determines its room.

Source: RocketMQ 5.3, ``AllocateMessageQueueByMachineRoom`` (which counts and takes among the rooms'
own queues; older versions took from all of them), ``AllocateMachineRoomNearby``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from eruca.core.allocation.strategy import (
    AllocationError,
    AllocationFault,
    AllocationStrategy,
    divided,
    is_to_share,
    utf16_order,
)
from eruca.core.messages.message_queue import MessageQueue

_SEPARATOR: Final = "@"
_PARTS: Final = 2  # room and name


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Divide only the queues of ``rooms``; the first members get one of the remaining queues."""

    rooms: frozenset[str]

    @property
    def name(self) -> str:
        """Return the rule's name."""
        return "MACHINE_ROOM"

    def share(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        """Return *member*'s run of the rooms' queues, and one of those left over, if any."""
        if not is_to_share(queues, members, member):
            return []
        kept = [queue for queue in queues if self._is_near(queue.broker_name)]
        size = len(kept) // len(members)
        index = members.index(member)
        # The slice holds one queue for the first few members and none for the others.
        left_over = len(members) * size + index
        share = kept[index * size : (index + 1) * size] + kept[left_over : left_over + 1]
        return divided(queues, share)

    def _is_near(self, broker_name: str) -> bool:
        # Java's split drops empty parts at the end: "a@b@" has two parts, "a@" has one.
        parts = broker_name.rstrip(_SEPARATOR).split(_SEPARATOR)
        return len(parts) == _PARTS and parts[0] in self.rooms


class MachineRooms(Protocol):
    """Return the machine room of a queue and of a member; the same answers in every member."""

    def room_of_queue(self, queue: MessageQueue) -> str | None:
        """Return the room of the queue's broker; None if it is unknown."""

    def room_of_member(self, member: str) -> str | None:
        """Return the room of a member's client; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class NamedMachineRooms:
    """Take rooms from names: ``ROOM@NAME``, for brokers and clients alike."""

    def room_of_queue(self, queue: MessageQueue) -> str | None:
        """Return the part of the broker's name before its first ``@``."""
        return _room(queue.broker_name)

    def room_of_member(self, member: str) -> str | None:
        """Return the part of the client id before its first ``@``."""
        return _room(member)


def _room(name: str) -> str | None:
    room, separator, _ = name.partition(_SEPARATOR)
    return room if separator else None


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Divide each room's queues among its members by ``inner``; orphaned rooms among all."""

    inner: AllocationStrategy
    rooms: MachineRooms = NamedMachineRooms()

    @property
    def name(self) -> str:
        """Return the rule's name, which includes the inner rule's."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def share(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        """Return the share of *member*'s room, then of rooms without members, by room name."""
        if not is_to_share(queues, members, member):
            return []
        queues_of: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        members_of: defaultdict[str, list[str]] = defaultdict(list)
        for queue in queues:
            queues_of[self._room_of_queue(queue)].append(queue)
        for each in members:
            members_of[self._room_of_member(each)].append(each)
        own = self._room_of_member(member)
        share: list[MessageQueue] = []
        if near := queues_of.get(own):
            share += self.inner.share(near, members_of[own], member)
        for room in sorted(queues_of.keys() - members_of.keys(), key=utf16_order):
            share += self.inner.share(queues_of[room], members, member)
        return share  # the inner rule may be configured, with queues of other topics

    def _room_of_queue(self, queue: MessageQueue) -> str:
        room = self.rooms.room_of_queue(queue)
        if not room:
            raise AllocationError(
                AllocationFault.QUEUE_ROOM_UNKNOWN, f"the machine room of {queue} is unknown"
            )
        return room

    def _room_of_member(self, member: str) -> str:
        room = self.rooms.room_of_member(member)
        if not room:
            raise AllocationError(
                AllocationFault.MEMBER_ROOM_UNKNOWN,
                f"the machine room of member {member!r} is unknown",
            )
        return room
