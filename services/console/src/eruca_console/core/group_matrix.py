"""The matrix of a group: which member reads which queue.

Each queue has at most one reader, by its broker's lock. A queue without one is shown as such: its
messages wait, or they are leased one by one as deliveries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eruca.contract.groups import MemberHandling, MemberList
from eruca.contract.names import is_derived_topic
from eruca.core.consuming.slow_members import latest_members, slow_members
from eruca.core.messages.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One member, on all brokers.

    Attributes:
        client_id: The member.
        address: The source of its heartbeats.
        queues: Those that it reads.
        absent_from: Brokers that know the group but not this member.
        handling: What its handlers did lately; None: it does not tell.
        is_slow: Whether they take a multiple of the other members' time.
    """

    client_id: str
    address: str
    queues: frozenset[MessageQueue]
    absent_from: Sequence[str]
    handling: MemberHandling | None = None
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class GroupMatrix:
    """Members and queues.

    Attributes:
        queues: The columns.
        rows: The members, by client id.
        unread: Queues that no member reads.
    """

    queues: Sequence[MessageQueue]
    rows: Sequence[MatrixRow]
    unread: frozenset[MessageQueue]


def group_matrix(members: Mapping[str, MemberList], queues: Sequence[MessageQueue]) -> GroupMatrix:
    """Return the matrix of a group.

    Args:
        members: As each broker sees them, by broker name.
        queues: The queues of the group's topics.
    """
    reading: dict[str, set[MessageQueue]] = {}
    addresses: dict[str, str] = {}
    known_at: dict[str, set[str]] = {}
    for broker_name, answer in members.items():
        for member in answer.members:
            addresses.setdefault(member.client_id, member.address)
            known_at.setdefault(member.client_id, set()).add(broker_name)
            held = reading.setdefault(member.client_id, set())
            held |= {MessageQueue(lock.topic, broker_name, lock.queue_id) for lock in member.locks}
    latest = latest_members(members.values())
    slow = slow_members(latest)
    every = {*queues, *(queue for held in reading.values() for queue in held)}
    columns = sorted(every, key=lambda queue: (is_derived_topic(queue.topic), queue))
    rows = [
        MatrixRow(
            client_id,
            addresses[client_id],
            frozenset(held),
            sorted(members.keys() - known_at[client_id]),
            latest[client_id].handling,
            client_id in slow,
        )
        for client_id, held in sorted(reading.items())
    ]
    read = frozenset(queue for row in rows for queue in row.queues)
    return GroupMatrix(columns, rows, frozenset(columns) - read)
