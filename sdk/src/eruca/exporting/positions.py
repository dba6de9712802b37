"""Positions: where to continue a queue, and whether it still has the messages read before. Pure.

An offset alone is not enough. A topic that was deleted and created again has other messages at the
same offsets. So has a broker whose log was replaced, truncated, or restored from an older copy. So
a position has three more fields:

- the topic's id, which includes the log's id;
- the run of the broker in which the position was valid;
- the store time of the queue's last message at that time.

A log can be truncated or restored only while its broker is stopped. The service proves a position
from an earlier run: it searches for the first message that was stored later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eruca.exporting.ranges import Held, Queue


class Position(NamedTuple):
    """Position in a queue, and its proof; None means unknown."""

    offset: int
    topic_id: str | None = None
    broker_started_at: str | None = None
    latest_stored_at: str | None = None  # of the queue, at the time of the position


class Lost(NamedTuple):
    """The reason why a queue cannot be continued at its position, and the new position."""

    reason: str
    offset: int


class Compared(NamedTuple):
    """Result of a comparison: the lost positions, and those that the service must prove."""

    lost: dict[Queue, Lost]
    doubtful: dict[Queue, Position]


def compare(positions: Mapping[Queue, Position], held: Mapping[Queue, Held]) -> Compared:
    """Compare positions with the queues' present offsets."""
    lost: dict[Queue, Lost] = {}
    doubtful: dict[Queue, Position] = {}
    for queue, position in positions.items():
        now = held.get(queue)
        if now is None:
            continue  # its broker is away, or does not have the queue now
        reason = another_topic(queue.topic, position.topic_id, now.topic_id)
        if reason is not None:
            lost[queue] = Lost(
                f"{reason}: messages of the former topic from offset {position.offset} are"
                f" lost; the new topic has {_messages(now)}, none of which has been read",
                now.min_offset,
            )
        elif position.offset > now.max_offset:
            lost[queue] = Lost(
                f"expected messages up to offset {position.offset - 1}, but the queue ends at"
                f" {now.max_offset}: its log was truncated, or restored from an older copy",
                now.max_offset,
            )
        elif (
            position.broker_started_at != now.broker_started_at
            and position.latest_stored_at is not None
            and position.offset > 0
        ):
            doubtful[queue] = position
    return Compared(lost, doubtful)


def adopted(
    positions: Mapping[Queue, Position], held: Mapping[Queue, Held]
) -> dict[Queue, Position]:
    """Return *positions*; positions without a topic id get the present one."""
    return {
        queue: Position(position.offset, now.topic_id, now.broker_started_at, now.latest_stored_at)
        if position.topic_id is None and (now := held.get(queue)) is not None
        else position
        for queue, position in positions.items()
    }


def another_topic(topic: str, known: str | None, now: str | None) -> str | None:
    """Return why a topic is not the known one; None if it is, or if that is unknown."""
    if known is None or now is None or known == now:
        return None
    if known.partition("-")[0] != now.partition("-")[0]:
        return (
            f"the broker has another log now, with another topic {topic} (expected id"
            f" {known}, found {now})"
        )
    return f"topic {topic} was deleted and created again (expected id {known}, found {now})"


def _messages(now: Held) -> str:
    count = now.max_offset - now.min_offset
    return f"messages {now.min_offset} to {now.max_offset - 1}" if count else "no message yet"
