"""Promises to one reader: a queue is read forwards, without gaps, and commits do not go back.

A reader's **session** is its reading from one deliberate start to the next. Within it each pull
begins where the last one ended.

Source: ``jepsen.tests.kafka``, ``poll-skip`` and ``nonmonotonic-poll``, there within one consumer
and between two of its polls. Bufstream 0.1.0 answered offset 0 where it knew none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from chaos.checkers.facts import Anomaly, Queue, has_expired, queue_of, reads, was_wiped
from chaos.history import History, Operation

Session = tuple[str, int, Queue]


def _pulled(history: History) -> Iterator[tuple[Session, Operation]]:
    for pull in history.named("pull"):
        if pull.is_ok:
            session = pull.process, pull.asked.get("session", 0), queue_of(pull.asked["queue"])
            yield session, pull


def poll_skip(history: History) -> Iterator[Anomaly]:
    """Find readers that were led past a message, in one answer or from one to the next.

    They may be led past what retention has deleted.
    """
    existing: defaultdict[Queue, dict[int, str]] = defaultdict(dict)
    for read in reads(history):
        existing[read.place.queue][read.place.offset] = read.message
    for (reader, _, queue), pull in _pulled(history):
        expected = int(pull.asked["offset"])
        offsets = [offset for offset, _ in pull.told["messages"]]
        for offset in [*offsets, int(pull.told["next"])]:
            there = existing[queue]
            skipped = [
                one
                for one in range(expected, offset)
                if one in there and not has_expired(history, there[one], pull.ended_at)
            ]
            if skipped:
                yield Anomaly(
                    "poll-skip",
                    f"{reader} asked {queue} from {pull.asked['offset']} and was led from "
                    f"{expected} to {offset}, past {skipped[:5]}",
                    pull.ended_at,
                )
            expected = max(expected, offset + 1)


def nonmonotonic_poll(history: History) -> Iterator[Anomaly]:
    """Find readers that were led back, in one answer or from one to the next."""
    last: dict[Session, int] = {}
    for session, pull in _pulled(history):
        reader, _, queue = session
        for offset, message in pull.told["messages"]:
            if offset <= last.get(session, -1):
                yield Anomaly(
                    "nonmonotonic-poll",
                    f"{reader} read {queue}@{last[session]}, and then {message} at {offset}",
                    pull.ended_at,
                )
            last[session] = offset
        if pull.told["next"] < pull.asked["offset"]:
            yield Anomaly(
                "nonmonotonic-poll",
                f"{reader} asked {queue} from {pull.asked['offset']} and was sent to "
                f"{pull.told['next']}",
                pull.ended_at,
            )


def commits(history: History) -> Iterator[Anomaly]:
    """Find committed offsets that went back, or that nobody committed.

    A consumer group's offset in a queue is committed by one process at a time, which only commits
    larger ones. A reading that begins after an acknowledged commit must not be smaller, and none is
    larger than what was asked for by then. Zero is no answer where an offset is known.

    The master tells the offset with each lock that it grants. A replica also answers questions, and
    may be behind, and one whose disk was wiped has everything to copy. So only the store that
    acknowledged the commit must know of it, until the final phase.
    """
    done: defaultdict[tuple[str, Queue], list[Operation]] = defaultdict(list)
    for one in history.named("commit", "committed", "lock"):
        done[one.asked["group"], queue_of(one.asked["queue"])].append(one)
    for (group, queue), operations in done.items():
        asked = [one for one in operations if one.op == "commit" and one.outcome != "fail"]
        for reading in operations:
            if reading.op == "commit" or not reading.is_ok or "offset" not in reading.told:
                continue
            found: Any = reading.told["offset"]
            before = [c for c in asked if c.is_ok and c.ended_at <= reading.begun_at]
            latest = max(before, key=lambda c: int(c.asked["offset"]), default=None)
            greatest = max(
                (c.asked["offset"] for c in asked if c.begun_at < reading.ended_at), default=None
            )
            must_know = (
                reading.op == "lock"
                or reading.process.startswith("final")
                or (latest is not None and _is_the_same(history, latest, reading))
            )
            least = None if latest is None else latest.asked["offset"]
            if must_know and least is not None and (found is None or found < least):
                text = f"{group} had committed {least} in {queue}, and was told {found}"
                yield Anomaly("commits", text, reading.ended_at)
            elif (
                reading.op == "committed"
                and found is not None
                and (greatest is None or found > greatest)
            ):
                text = f"{group} was told {found} in {queue}, and had asked for {greatest} at most"
                yield Anomaly("commits", text, reading.ended_at)


def _is_the_same(history: History, commit: Operation, reading: Operation) -> bool:
    """Tell whether the replica that acknowledged a commit answers, with the store it had."""
    by = commit.told.get("by", "")
    return bool(by == reading.told.get("by", "")) and not was_wiped(
        history, by, commit.begun_at, reading.ended_at
    )


def unhandled(history: History) -> Iterator[Anomaly]:
    """Find acknowledged messages that no handler of the SDK's push consumer was given."""
    topics = history.setting("handled", [])
    handled = {one.asked["message"] for one in history.named("handle")}
    for send in history.named("send"):
        message = send.asked["message"]
        if send.is_ok and send.asked["queue"][1] in topics and message not in handled:
            yield Anomaly("unhandled", f"{message}, sent to {send.told['queue']}", send.ended_at)
