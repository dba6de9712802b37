"""Promises about messages: none is lost, moved, doubled or read though it was refused.

Source: ``jepsen.tests.kafka``. Its names are ``lost-write``, ``unseen``, ``inconsistent-offsets``,
``duplicate`` and ``G1a`` (here ``aborted-read``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.facts import (
    Anomaly,
    Place,
    Queue,
    acknowledged,
    deleted_topics,
    place_of,
    places_read,
    queue_of,
    reads,
)
from chaos.history import History


def lost(history: History) -> Iterator[Anomaly]:
    """Find acknowledged messages that nobody read, though somebody read beyond them.

    A message that was acknowledged at a place must be read at that place. One that is read
    elsewhere is found by ``inconsistent-offset`` and ``duplicate``.
    """
    end_read: defaultdict[Queue, int] = defaultdict(lambda: -1)
    for read in reads(history):
        end_read[read.place.queue] = max(end_read[read.place.queue], read.place.offset)
    seen = places_read(history)
    for send in acknowledged(history):
        place = place_of(send)
        message = send.asked["message"]
        if place is None or message in seen:
            continue
        if place.offset <= end_read[place.queue]:
            yield Anomaly(
                "lost",
                f"{message} was acknowledged at {place}, and nobody read it; the queue was read up "
                f"to {end_read[place.queue]}",
                send.ended_at,
            )


def unseen(history: History) -> Iterator[Anomaly]:
    """Find acknowledged messages that nobody read until the end, the final reads included."""
    seen = places_read(history)
    for send in acknowledged(history):
        message = send.asked["message"]
        is_timer = send.asked.get("delay_seconds") is not None  # the timers' checker judges them
        if message not in seen and not is_timer:
            yield Anomaly("unseen", f"{message}, sent to {send.told['queue']}", send.ended_at)


def inconsistent_offset(history: History) -> Iterator[Anomaly]:
    """Find places with two contents: by any reader, any replica, or the answer to a send."""
    deleted = deleted_topics(history)
    contents: defaultdict[Place, dict[str, str]] = defaultdict(dict)
    for read in reads(history):
        contents[read.place].setdefault(read.message, f"read by {read.by}")
    for send in acknowledged(history):
        place = place_of(send)
        if place is not None:
            contents[place].setdefault(send.asked["message"], f"acknowledged to {send.process}")
    for place, messages in contents.items():
        if len(messages) > 1 and place.queue.topic not in deleted:
            both = " and ".join(f"{message} ({how})" for message, how in messages.items())
            yield Anomaly("inconsistent-offset", f"{place} is {both}")


def duplicate(history: History) -> Iterator[Anomaly]:
    """Find messages that were sent once, or under an Idempotency-Key, and are there twice.

    A client without a key that sends again after an unknown outcome asks for a second copy; so each
    of its requests has a body of its own, and none may be stored twice. The setting
    ``at_least_once`` names the topics of clients that retry by themselves.
    """
    deleted = deleted_topics(history) | set(history.setting("at_least_once", []))
    for message, places in places_read(history).items():
        if len(places) > 1 and not any(place.queue.topic in deleted for place in places):
            yield Anomaly("duplicate", f"{message} is at {', '.join(map(str, sorted(places)))}")
    receipts: defaultdict[str, set[Place]] = defaultdict(set)
    for send in acknowledged(history):
        place = place_of(send)
        if place is not None and send.asked.get("key") is not None:
            receipts[send.asked["message"]].add(place)
    for message, places in receipts.items():
        if len(places) > 1:
            told = ", ".join(map(str, sorted(places)))
            yield Anomaly("duplicate", f"{message}, under one key, was acknowledged at {told}")


def aborted_read(history: History) -> Iterator[Anomaly]:
    """Find messages that were read though each send of them was refused, or that nobody sent."""
    outcomes: defaultdict[str, set[str]] = defaultdict(set)
    for send in history.named("send", "begin"):
        outcomes[send.asked["message"]].add(send.outcome)
    reported = set[str]()
    for read in reads(history):
        known = outcomes.get(read.message)
        if read.message in reported or (known is not None and known != {"fail"}):
            continue
        reported.add(read.message)
        why = "nobody sent it" if known is None else "its send was refused"
        yield Anomaly("aborted-read", f"{read.message} is at {read.place}, but {why}", read.at)


def contiguous(history: History) -> Iterator[Anomaly]:
    """Find queues of a final log whose offsets are not 0, 1, 2 …, from the least that is kept."""
    for final in history.named("queue"):
        if not final.is_ok:
            continue
        queue = queue_of(final.asked["queue"])
        expected = int(final.told["min"])
        for offset, message in final.told["messages"]:
            if offset != expected:
                yield Anomaly(
                    "contiguous",
                    f"{queue} at replica {final.asked['replica']}: expected offset {expected}, "
                    f"found {offset} ({message})",
                )
                break
            expected += 1
        else:
            if expected != final.told["end"]:
                yield Anomaly(
                    "contiguous",
                    f"{queue} at replica {final.asked['replica']} ends at {expected}, but says "
                    f"{final.told['end']}",
                )
