"""A near miss looks like a fault, and no checker reports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from chaos.checkers import CHECKERS
from chaos.made_histories import GROUP, QUEUE, final, history, note, op, pull, send
from chaos.made_operations import (
    RUN,
    Steps,
    ask,
    begin,
    commit,
    committed,
    decide,
    deliver,
    drain,
    flipped,
    heartbeat,
    lock,
    row,
    status,
)

NEAR_MISSES: Final[dict[str, Sequence[tuple[str, Steps]]]] = {
    "lost": [
        ("nobody read so far", [send("m0", 0), send("m1", 1), pull(0, (0, "m0"))]),
        (
            "its topic was deleted",
            [send("m0", 0), op("delete-topic", {"topic": "orders"}), pull(0, (1, "m1"))],
        ),
    ],
    "inconsistent-offset": [
        (
            "a later topic of the name",
            [op("delete-topic", {"topic": "orders"}), pull(0, (0, "m0")), pull(0, (0, "m1"))],
        ),
    ],
    "aborted-read": [
        (
            "refused once, unknown once",
            [send("m0", outcome="fail"), send("m0", outcome="info", at=1), final((0, "m0"))],
        ),
    ],
    "duplicate": [
        (
            "a client that retries",
            [note("run", at_least_once=["orders"]), final((0, "m0"), (1, "m0"))],
        ),
    ],
    "poll-skip": [
        (
            "past what retention has deleted",
            [
                note("run", retention_seconds=60),
                send("m0", 0),
                pull(0, (0, "m0"), at=1),
                pull(0, (1, "m1"), at=70, session=1),
            ],
        ),
        ("it joined late", [final((0, "m0"), (1, "m1")), pull(1, (1, "m1"))]),
    ],
    "commits": [
        (
            "a commit under way",
            [
                commit(5, 0),
                op("commit", {"group": GROUP, "queue": QUEUE, "offset": 9}, at=1, outcome="info"),
                committed(9, 2),
            ],
        ),
        ("read meanwhile", [commit(5, 0), committed(None, -0.05)]),
        (
            "asked at a replica that was wiped",
            [
                op("commit", {"group": GROUP, "queue": QUEUE, "offset": 5}, {"by": "r1"}),
                note("wiped", 0.5, broker="broker-a", replica=1, url="r1"),
                op(
                    "committed",
                    {"group": GROUP, "queue": QUEUE},
                    {"offset": None, "by": "r1"},
                    at=1,
                ),
            ],
        ),
        (
            "asked at a replica that is behind",
            [
                op("commit", {"group": GROUP, "queue": QUEUE, "offset": 5}, {"by": "r1"}),
                op(
                    "committed",
                    {"group": GROUP, "queue": QUEUE},
                    {"offset": None, "by": "r2"},
                    at=1,
                ),
            ],
        ),
    ],
    "locks": [
        ("its session was over", [lock("c1", 0, 1), lock("c2", 5.1, 2), heartbeat("c1", 5.2)]),
        (
            "the heartbeat's answer came too late",
            [lock("c1", 0, 1), heartbeat("c1", 4.9, until=30), lock("c2", 5.5, 2)],
        ),
        (
            "a commit was refused",
            [
                lock("c1", 0, 1),
                op(
                    "commit",
                    {"group": GROUP, "queue": QUEUE, "offset": 1, "token": 1},
                    {"code": "stale-lock"},
                    at=1,
                    by="c1",
                    outcome="fail",
                ),
                lock("c2", 2, 2),
            ],
        ),
        (
            "lost, and told so",
            [lock("c1", 0, 1), heartbeat("c1", 1, lost=[QUEUE]), lock("c2", 2, 2)],
        ),
        (
            "the margin",
            [note("run", lock_margin_seconds=1.0), lock("c1", 0, 1), lock("c2", 4.2, 2)],
        ),
    ],
    "leases": [
        (
            "clocks that differ",
            [
                note("run", clock_skew_seconds=1.0),
                deliver("c1", 0, "m0", 0),
                deliver("c2", 4.2, "m0", 0),
            ],
        ),
    ],
    "topics": [
        (
            "asked at a replica that is behind",
            [
                op("create-topic", {"broker": "b", "topic": "t"}, {"by": "r1"}),
                op("topic", {"broker": "b", "topic": "t"}, {"exists": False, "by": "r2"}, at=1),
            ],
        ),
    ],
    "conserved": [
        ("another group's", [send("m0", 0, queue=["broker-b", "orders", 0]), drain()]),
    ],
    "timers": [
        (
            "a recall under way",
            [send("m0", delay_seconds=1), op("recall", {"message": "m0"}, outcome="info"), final()],
        ),
    ],
    "transactions": [
        (
            "retention has deleted its decision",
            [
                note("run", retention_seconds=60),
                begin("m0"),
                decide("m0", "rollback", 1),
                ask("m0", "unknown", 70),
            ],
        ),
        (
            "unknown, and committed",
            [begin("m0"), decide("m0", "commit", 1, outcome="info"), final((0, "m0"))],
        ),
    ],
    "epochs": [
        (
            "an arbiter that was restored",
            [row(1, 3, 0), note("arbiter-restored", 0.5), row(1, 2, 1)],
        ),
        ("a wiped disk", [status(1, 3, "standby", 0), status(1, 1, "standby", 1, uid="other")]),
    ],
    "liveness": [
        ("broken again", [RUN, note("healed", 1), note("broken", 20), note("end", 99)]),
        ("the end came before", [RUN, note("healed", 1), note("end", 20)]),
    ],
    "repaired": [
        (
            "its disk was wiped",
            [
                flipped(),
                note("wiped", 1.0, broker="broker-a", replica=2),
            ],
        ),
    ],
}


@pytest.mark.parametrize(
    ("checker", "steps"),
    [
        pytest.param(checker, steps, id=f"{checker}: {what}")
        for checker, near_misses in NEAR_MISSES.items()
        for what, steps in near_misses
    ],
)
def test_a_near_miss_is_no_fault(checker: str, steps: Steps) -> None:
    assert list(CHECKERS[checker](history(steps))) == []
