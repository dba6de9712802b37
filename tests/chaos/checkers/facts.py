"""Facts that several checkers need: acknowledged sends, and all that was ever read.

A **queue** is ``[broker name, topic, queue id]``; a **place** is a queue and an offset. A message
is named by its body, which is unique in the run. Reads are ``pull`` and ``deliver`` operations of
clients and, in the final phase, of the harness: it reads each queue from each replica as a whole
(``queue``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from chaos.history import History, Operation

DAMAGED = "damaged: "  # begins the text of a message that a broker has marked as damaged
SHOWN_MAX = 20  # anomalies of one kind that a report lists


class Queue(NamedTuple):
    """A queue of a topic at a broker group."""

    broker: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.broker}/{self.topic}/{self.queue_id}"


class Place(NamedTuple):
    """An offset of a queue."""

    queue: Queue
    offset: int

    def __str__(self) -> str:
        return f"{self.queue}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Evidence that a promise was broken.

    Attributes:
        checker: The name of the promise.
        text: The evidence, in one sentence.
        at: When it was seen, in seconds since the start of the run.
    """

    checker: str
    text: str
    at: float = 0.0


class Read(NamedTuple):
    """A message that somebody read."""

    place: Place
    message: str
    by: str
    at: float


def queue_of(value: object) -> Queue:
    """Return the queue that a history names."""
    assert isinstance(value, list | tuple), value
    broker, topic, queue_id = value
    return Queue(str(broker), str(topic), int(queue_id))


def place_of(send: Operation) -> Place | None:
    """Return the place that an acknowledged send was told; None for one that has none yet."""
    offset = send.told.get("offset")
    return None if offset is None else Place(queue_of(send.told["queue"]), int(offset))


def reads(history: History) -> tuple[Read, ...]:
    """Return all that was read, by whomever."""
    return history.derived(_all_reads)


def _all_reads(history: History) -> tuple[Read, ...]:
    return tuple(_each_read(history))


def _each_read(history: History) -> Iterator[Read]:
    for pull in history.named("pull", "queue"):
        if pull.is_ok:
            queue = queue_of(pull.asked["queue"])
            for offset, message in pull.told["messages"]:
                if message.startswith(DAMAGED):
                    continue  # it was marked as such: nobody took it for a message
                yield Read(Place(queue, offset), message, pull.process, pull.ended_at)
    for delivery in history.named("deliver"):
        if delivery.is_ok:
            for one in delivery.told["deliveries"]:
                if one["message"].startswith(DAMAGED):
                    continue
                place = Place(queue_of(one["queue"]), one["offset"])
                yield Read(place, one["message"], delivery.process, delivery.ended_at)
    for handled in history.named("handle"):
        asked = handled.asked
        place = Place(queue_of(asked["queue"]), asked["offset"])
        yield Read(place, asked["message"], handled.process, handled.ended_at)


def places_read(history: History) -> Mapping[str, set[Place]]:
    """Return for each message the places at which it was read."""
    return history.derived(_all_places)


def _all_places(history: History) -> Mapping[str, set[Place]]:
    places: defaultdict[str, set[Place]] = defaultdict(set)
    for read in reads(history):
        places[read.message].add(read.place)
    return dict(places)


def has_expired(history: History, message: str, at: float) -> bool:
    """Tell whether retention may have deleted a message by some time."""
    retention = float(history.setting("retention_seconds", 0.0) or 0.0)
    return bool(retention) and history.derived(_times_sent).get(message, at) + retention < at


def _times_sent(history: History) -> Mapping[str, float]:
    return {one.asked["message"]: one.begun_at for one in history.named("send", "begin")}


def was_wiped(history: History, url: str, since: float, until: float) -> bool:
    """Tell whether the replica that clients know by *url* lost its store meanwhile."""
    return any(
        note.value.get("url") == url and since <= note.at <= until
        for note in history.noted("wiped")
    )


def deleted_topics(history: History) -> frozenset[str]:
    """Return the topics that somebody asked to delete: their messages may be gone."""
    return frozenset(one.asked["topic"] for one in history.named("delete-topic"))


def acknowledged(history: History) -> Iterator[Operation]:
    """Yield the sends that were acknowledged, to topics that nobody deletes.

    Where retention deletes messages, those of topics that nobody follows are left out.
    """
    deleted = deleted_topics(history)
    followed = history.setting("followed") if history.setting("retention_seconds") else None
    for send in history.named("send"):
        topic = send.asked["queue"][1]
        if send.is_ok and topic not in deleted and (followed is None or topic in followed):
            yield send
