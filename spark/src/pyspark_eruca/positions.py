"""Positions: where a queue is read on, and whether it still holds what was read before. Pure.

An offset alone does not tell: a topic that was deleted and created again has other messages under
the same offsets, and so has a broker whose log was replaced, cut, or restored from an older copy.
So a position says which topic it is of (the topic's id has the log's in it), in which run of the
broker it was true, and when the last message was stored that the queue held then. Only while its
broker is stopped can a log be cut or restored. The service proves a position from before that: it
looks for the first message that was stored later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_eruca.ranges import Held, Queue


class Position(NamedTuple):
    """Position in a queue, and its proof; None stands for what is not known."""

    offset: int
    topic_id: str | None = None
    broker_started_at: str | None = None
    latest_stored_at: str | None = None  # of the queue, when the position was taken


class Lost(NamedTuple):
    """The reason why a queue cannot be continued at its position, and the new position."""

    reason: str
    offset: int


class Compared(NamedTuple):
    """Fate of positions: those that are lost, and those that the service has to prove."""

    lost: dict[Queue, Lost]
    doubtful: dict[Queue, Position]


def compare(positions: Mapping[Queue, Position], held: Mapping[Queue, Held]) -> Compared:
    """Compare positions with what the queues hold now."""
    lost: dict[Queue, Lost] = {}
    doubtful: dict[Queue, Position] = {}
    for queue, position in positions.items():
        now = held.get(queue)
        if now is None:
            continue  # its broker is away, or it has no such queue now
        reason = another_topic(queue.topic, position.topic_id, now.topic_id)
        if reason is not None:
            lost[queue] = Lost(
                f"{reason}: what the earlier one held from offset {position.offset} on is lost; "
                f"the new one has {_messages(now)}, none of which has been read",
                now.min_offset,
            )
        elif position.offset > now.max_offset:
            lost[queue] = Lost(
                f"expected messages up to offset {position.offset - 1}, and the queue ends at "
                f"{now.max_offset}: its log was cut, or restored from an older copy",
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
    """Return *positions*; those that do not say of which topic they are get the one of now."""
    return {
        queue: Position(position.offset, now.topic_id, now.broker_started_at, now.latest_stored_at)
        if position.topic_id is None and (now := held.get(queue)) is not None
        else position
        for queue, position in positions.items()
    }


def another_topic(topic: str, known: str | None, now: str | None) -> str | None:
    """Return why a topic is not the one that was known; None: it is, as far as can be told."""
    if known is None or now is None or known == now:
        return None
    if known.partition("-")[0] != now.partition("-")[0]:
        return f"the broker has another log now, with another topic {topic} (id {now}, not {known})"
    return f"topic {topic} was deleted and created again (its id is {now}, not {known})"


def _messages(now: Held) -> str:
    count = now.max_offset - now.min_offset
    return f"messages {now.min_offset} to {now.max_offset - 1}" if count else "no message yet"
