"""Each checker finds the faults that it is for, and nothing in a sound history.

A checker that has not been seen to fail is none: a test counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from chaos.checkers import CHECKERS, check
from chaos.made_histories import GROUP, QUEUE, final, history, note, op, pull, send
from chaos.made_operations import (
    RUN,
    Steps,
    ask,
    begin,
    commit,
    committed,
    compared,
    decide,
    deliver,
    drain,
    ended,
    flipped,
    heartbeat,
    lock,
    log,
    rebuild,
    row,
    status,
    topic,
    unlock,
)

SOUND: Final[Steps] = [
    RUN,
    send("m0", 0, key="k0"),
    send("m0", 0, key="k0", at=1.0),  # repeated, and told the same
    send("m1", at=2.0, outcome="info"),  # is stored
    send("m2", at=3.0, outcome="info"),  # is not
    send("m3", at=4.0, outcome="fail"),
    send("m4", 2, at=5.0),
    send("m5", at=6.0, delay_seconds=2.0),
    send("m6", at=7.0, delay_seconds=2.0),
    op("recall", {"message": "m6"}, at=8.0),
    pull(0, (0, "m0"), (1, "m1")),
    pull(2, (2, "m4"), at=11.0),
    pull(3, at=12.0),
    pull(1, (1, "m1"), at=13.0, session=1),  # went back deliberately
    begin("m7", at=14.0),
    decide("m7", "commit", 15.0, outcome="info"),
    decide("m7", "commit", 16.0),
    ask("m7", "committed", 17.0),
    begin("m8", at=14.2),
    decide("m8", "rollback", 16.2),
    ask("m8", "rolled_back", 17.2),
    lock("c1", 20.0, 7),
    heartbeat("c1", 22.0),
    commit(2, 22.5, token=7),
    committed(2, 23.0),
    unlock("c1", 24.0),
    lock("c2", 24.1, 9),
    commit(3, 25.0, token=9),
    committed(3, 26.0),
    lock("c1", 29.2, 11),  # the session of c2 is over
    deliver("c1", 30.0, "m0", 0),
    deliver("c2", 29.0, "m0", 0, until=36.0),  # waited from before, until the lease was over
    ended("ack", "c2", 36.5, "m0", 0),
    deliver("c1", 37.0, "m1", 1),
    ended("nack", "c1", 38.0, "m1", 1),
    deliver("c2", 39.0, "m1", 1),
    ended("ack", "c2", 39.5, "m1", 1),
    ended("ack", "c2", 39.7, "m5", 3),
    drain(pending=["m4", "m9"], dead=["m6"]),
    topic("create-topic", 40.0),
    topic("topic", 41.0, exists=True),
    topic("delete-topic", 42.0, outcome="info"),
    topic("topic", 43.0, exists=True),
    topic("topic", 44.0, exists=False),
    status(1, 1, "master", 50.0),
    row(1, 1, 50.0),
    status(2, 2, "master", 51.0),
    row(2, 2, 51.0),
    status(1, 2, "standby", 52.0),
    note("broken", 30.0),
    note("healed", 60.0),
    send("m9", 5, at=61.0),
    pull(5, (5, "m9"), at=62.0),
    op("handle", {"queue": QUEUE, "offset": 5, "message": "m9"}, at=62.5),
    note("wiped", 62.0, broker="broker-a", replica=2),
    note("flipped", 63.0, broker="broker-a", replica=2, offset=77),
    note("compared", 64.0, broker="broker-a", replica=2, offset=77, is_equal=True, is_told=True),
    note("end", 99.0),
    note("final", 99.0),
    final((0, "m0"), (1, "m1"), (2, "m4"), (3, "m5"), (4, "m7"), (5, "m9")),
    final((2, "m4"), (3, "m5"), (4, "m7"), (5, "m9"), replica=2, least=2),
    log(1, {"0": "d1", "100": "d2"}),
    log(2, {"0": "d1", "100": "d2"}),
    rebuild("d1"),
]


FAULTS: Final[dict[str, Sequence[tuple[str, Steps]]]] = {
    "lost": [
        ("the queue goes on behind it", [send("m0", 0), send("m1", 1), pull(1, (1, "m1"))]),
        ("another took its offset", [send("m0", 0), pull(0, (0, "m1"))]),
        (
            "a whole queue is gone, and new",
            [send("m0", 3), pull(0, *((n, f"n{n}") for n in (0, 3)))],
        ),
    ],
    "unseen": [
        ("at the end of the queue", [send("m0", 0), send("m1", 1), final((0, "m0"))]),
        ("the queue is empty", [send("m0", 0), final()]),
        ("nobody can read", [send("m0", 0)]),
    ],
    "inconsistent-offset": [
        ("two readers", [pull(0, (0, "m0")), pull(0, (0, "m1"), by="c2")]),
        ("two replicas", [final((0, "m0")), final((0, "m1"), replica=2)]),
        ("a receipt and a reader", [send("m0", 0), pull(0, (0, "m1"))]),
        ("two receipts", [send("m0", 0), send("m1", 0, by="p2")]),
        ("a delivery and a reader", [deliver("c1", 0, "m0", 0), pull(0, (0, "m1"))]),
    ],
    "duplicate": [
        ("stored twice", [send("m0", 0, key="k"), final((0, "m0"), (1, "m0"))]),
        (
            "stored in two queues",
            [final((0, "m0")), final((0, "m0"), queue=["broker-b", "orders", 1])],
        ),
        ("one key, two receipts", [send("m0", 0, key="k"), send("m0", 1, key="k", at=1)]),
    ],
    "aborted-read": [
        ("refused", [send("m0", outcome="fail"), pull(0, (0, "m0"))]),
        (
            "refused each time",
            [send("m0", outcome="fail"), send("m0", outcome="fail", at=1), final((0, "m0"))],
        ),
        ("never sent", [pull(0, (0, "m0"))]),
    ],
    "contiguous": [
        ("an offset twice", [final((0, "m0"), (0, "m1"))]),
        ("a gap", [final((0, "m0"), (2, "m2"))]),
        ("the first is missing", [final((1, "m1"))]),
        ("the last is missing", [final((0, "m0"), end=2)]),
        (
            "at one replica only",
            [final((0, "m0"), (1, "m1")), final((0, "m0"), (2, "m"), replica=2)],
        ),
    ],
    "poll-skip": [
        (
            "past what retention has no reason to delete",
            [
                note("run", retention_seconds=60),
                send("m0", 0),
                pull(0, (0, "m0"), at=1),
                pull(0, (1, "m1"), at=50, session=1),
            ],
        ),
        ("in one answer", [final((0, "m0"), (1, "m1"), (2, "m2")), pull(0, (0, "m0"), (2, "m2"))]),
        ("at its start", [final((0, "m0"), (1, "m1")), pull(0, (1, "m1"))]),
        ("by the next offset", [final((0, "m0"), (1, "m1")), pull(0, (0, "m0"), following=2)]),
        ("by an empty answer", [final((0, "m0"), (1, "m1")), pull(0, following=2)]),
    ],
    "nonmonotonic-poll": [
        ("back in one answer", [pull(0, (1, "m1"), (0, "m0"))]),
        ("back in the next", [pull(0, (0, "m0"), (1, "m1")), pull(1, (1, "m1"), at=11)]),
        ("sent back to zero", [pull(7, following=0)]),
    ],
    "unhandled": [
        (
            "read, and not handled",
            [note("run", handled=["orders"]), send("m0", 0), pull(0, (0, "m0"))],
        ),
    ],
    "commits": [
        ("a commit is gone", [commit(5, 0), committed(None, 1)]),
        ("it went back", [commit(3, 0), commit(5, 1), committed(3, 2)]),
        ("zero where unknown", [committed(0, 0)]),
        ("more than asked for", [commit(5, 0), committed(6, 1)]),
        (
            "a lock begins before it",
            [
                commit(5, 0),
                op(
                    "lock",
                    {"group": GROUP, "queue": QUEUE, "session_seconds": 5.0},
                    {"token": 1, "offset": 4},
                    at=1,
                ),
            ],
        ),
    ],
    "locks": [
        ("two at a time", [lock("c1", 0, 1), lock("c2", 1, 2)]),
        (
            "renewed, and granted to another",
            [lock("c1", 0, 1), heartbeat("c1", 4), lock("c2", 6, 2)],
        ),
        (
            "the old master renews",
            [lock("c1", 0, 1), heartbeat("c1", 4), lock("c2", 8, 2), heartbeat("c1", 8.5)],
        ),
    ],
    "stale-tokens": [
        ("an old token commits", [lock("c1", 0, 1), lock("c2", 9, 2), commit(1, 10, token=1)]),
        ("tokens go back", [lock("c1", 0, 5), lock("c2", 9, 4)]),
    ],
    "leases": [
        ("to two at a time", [deliver("c1", 0, "m0", 0), deliver("c2", 1, "m0", 0)]),
        (
            "after its acknowledgement",
            [
                deliver("c1", 0, "m0", 0),
                ended("ack", "c1", 1, "m0", 0),
                deliver("c2", 9, "m0", 0),
            ],
        ),
    ],
    "conserved": [
        ("vanished", [send("m0", 0), send("m1", 1), ended("ack", "c1", 2, "m0", 0), drain()]),
    ],
    "timers": [
        ("twice", [send("m0", delay_seconds=1), final((0, "m0"), (1, "m0"))]),
        ("too early", [send("m0", delay_seconds=60), pull(0, (0, "m0"), at=10)]),
        ("never", [send("m0", delay_seconds=1), final()]),
        (
            "in spite of its recall",
            [
                send("m0", delay_seconds=1),
                op("recall", {"message": "m0"}, at=1),
                final((0, "m0")),
            ],
        ),
    ],
    "transactions": [
        ("two answers", [begin("m0"), decide("m0", "commit", 1), decide("m0", "rollback", 2)]),
        (
            "the second coordinator forgot",
            [begin("m0"), decide("m0", "commit", 1), ask("m0", "pending", 2), final((0, "m0"))],
        ),
        ("it was begun, and is unknown", [begin("m0"), ask("m0", "unknown", 2)]),
        ("committed, and never there", [begin("m0"), decide("m0", "commit", 1), final()]),
        ("rolled back, and read", [begin("m0"), decide("m0", "rollback", 1), final((0, "m0"))]),
        ("undecided, and read", [begin("m0"), final((0, "m0"))]),
        (
            "delivered twice",
            [begin("m0"), decide("m0", "commit", 1), final((0, "m0"), (1, "m0"))],
        ),
    ],
    "topics": [
        ("gone after its creation", [topic("create-topic", 0), topic("topic", 1, exists=False)]),
        (
            "back after its deletion",
            [
                topic("create-topic", 0),
                topic("delete-topic", 1),
                topic("topic", 2, exists=True),
            ],
        ),
        ("never asked for", [topic("topic", 1, exists=True)]),
        (
            "still unknown to a replica in the end",
            [
                op("create-topic", {"broker": "b", "topic": "t"}, {"by": "r1"}),
                op(
                    "topic",
                    {"broker": "b", "topic": "t"},
                    {"exists": False, "by": "r2"},
                    at=1,
                    by="final-b",
                ),
            ],
        ),
    ],
    "epochs": [
        ("two masters", [status(1, 3, "master", 0), status(2, 3, "master", 1)]),
        ("a master that the row does not name", [row(1, 3, 0), status(2, 3, "master", 1)]),
        ("a replica goes back", [status(1, 3, "standby", 0), status(1, 2, "standby", 1)]),
        ("the row goes back", [row(1, 3, 0), row(1, 2, 1)]),
    ],
    "equal-logs": [
        ("a block differs", [log(1, {"0": "a", "100": "b"}), log(2, {"0": "a", "100": "c"})]),
        ("a block is missing", [log(1, {"0": "a", "100": "b"}), log(2, {"0": "a"})]),
        ("one is behind", [log(1, {"0": "a"}), log(2, {"0": "a"}, has=(0, 100))]),
        ("not the same range", [log(1, {"0": "a"}), log(2, {"0": "a"}, span=(0, 100))]),
    ],
    "caught-up": [
        ("a replica is missing", [RUN, note("final"), log(1, {})]),
        ("all are missing", [RUN, note("final")]),
    ],
    "rebuilt": [("another answer", [rebuild("d2")])],
    "repaired": [
        ("never looked at", [flipped()]),
        ("still flipped", [flipped(), compared(is_equal=False)]),
        ("right by accident", [flipped(), compared(is_told=False)]),
        ("wiped before", [note("wiped", 1.0, broker="broker-a", replica=2), flipped(at=2.0)]),
    ],
    "liveness": [
        ("no sends", [RUN, note("healed", 1), pull(0, (0, "m0"), at=5), note("end", 40)]),
        ("no pulls", [RUN, note("healed", 1), send("m0", 0, at=5), note("end", 40)]),
        (
            "too late",
            [
                RUN,
                note("healed", 1),
                pull(0, at=5),
                send("m0", 0, at=35),
                note("end", 40),
            ],
        ),
        (
            "another group's",
            [
                RUN,
                note("healed", 1),
                pull(0, at=5, queue=["broker-b", "orders", 0]),
                send("m0", 0, at=5, queue=["broker-b", "orders", 0]),
                note("end", 40),
            ],
        ),
    ],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_sound_history_has_no_anomaly(checker: str) -> None:
    assert list(CHECKERS[checker](history(SOUND))) == []


@pytest.mark.parametrize(
    ("checker", "steps"),
    [
        pytest.param(checker, steps, id=f"{checker}: {what}")
        for checker, faults in FAULTS.items()
        for what, steps in faults
    ],
)
def test_a_fault_is_found(checker: str, steps: Steps) -> None:
    found = check(history(steps))[checker]

    assert found
    assert {anomaly.checker for anomaly in found} == {checker}


def test_each_checker_has_been_seen_to_fail() -> None:
    assert FAULTS.keys() == CHECKERS.keys()


def test_a_sound_history_has_each_kind_of_operation() -> None:
    named = {one.op for _, faults in FAULTS.items() for _, steps in faults for one in steps}

    assert named <= {one.op for one in SOUND}
