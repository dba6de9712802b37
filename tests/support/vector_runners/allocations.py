"""Vectors of queue allocation: what each strategy gives to each member, and how it gets there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from eruca.core.allocation import (
    AllocationError,
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    md5_position,
    sorted_members,
)
from eruca.core.allocation.ring import queue_key
from eruca.core.messages.message_queue import MessageQueue

Case = dict[str, Any]
Outcome = list[MessageQueue] | dict[str, str]  # a share, or the error as a case writes it

_INNER: Final[dict[str, AllocationStrategy]] = {
    strategy.name: strategy for strategy in (Averagely(), AveragelyByCircle(), ConsistentHash())
}


@dataclass(frozen=True)
class _Rooms:
    """The rooms a case lists."""

    of_brokers: dict[str, str | None]
    of_members: dict[str, str | None]

    def room_of_queue(self, queue: MessageQueue) -> str | None:
        return self.of_brokers.get(queue.broker_name)

    def room_of_member(self, member: str) -> str | None:
        return self.of_members.get(member)


def _nearby(case: Case) -> AllocationStrategy:
    inner = _INNER[case["inner"]]
    strategy = MachineRoomNearby(
        inner, _Rooms(case["broker_rooms"] or {}, case["consumer_rooms"] or {})
    )
    assert strategy.name == f"MACHINE_ROOM_NEARBY-{inner.name}"
    return strategy


def _outcome(strategy: AllocationStrategy, case: Case, member: str | None) -> Outcome:
    try:
        # Where Java's may be null, ours is empty: both mean that there is nothing.
        return strategy.share(_queues(case), case["consumers"] or [], member or "")
    except AllocationError as error:
        return {"error": error.fault.value}


def _queues(case: Case) -> list[MessageQueue]:
    return [MessageQueue(case["topic"], *queue) for queue in case["queues"] or ()]


def _expected(case: Case, expected: list[int] | dict[str, str]) -> Outcome:
    """Return the queues at the indices a case lists; some cases hold one queue twice."""
    queues = _queues(case)
    return expected if isinstance(expected, dict) else [queues[index] for index in expected]


def _runner(
    make: Callable[[Case], AllocationStrategy], name: str | None
) -> tuple[Callable[[Case], None], Callable[[Case], None]]:
    """Return what runs a table of all members' shares, and what runs one member's."""

    def run_table(case: Case) -> None:
        strategy = make(case)
        assert name in (None, strategy.name)
        for member, expected in case["expected"].items():
            assert _outcome(strategy, case, member) == _expected(case, expected), member

    def run_single(case: Case) -> None:
        assert _outcome(make(case), case, case["current"]) == _expected(case, case["expected"])

    return run_table, run_single


def run_by_config(case: Case) -> None:
    configured = tuple(MessageQueue(*queue) for queue in case["configured"] or ())

    share = ByConfig(configured).share(
        _queues(case), case["consumers"] or [], case["current"] or ""
    )

    assert share == [MessageQueue(*queue) for queue in case["expected"] or ()]


def run_sort_queues(case: Case) -> None:
    found = sorted(MessageQueue(*queue) for queue in case["queues"])

    assert found == [MessageQueue(*queue) for queue in case["expected"]]


def run_sort_consumers(case: Case) -> None:
    # A member is listed once: its second heartbeat renews the first.
    assert sorted_members(case["consumers"]) == list(dict.fromkeys(case["expected"]))


def run_hash(case: Case) -> None:
    assert md5_position(case["key"]) == case["expected"]


def run_queue_key(case: Case) -> None:
    key = queue_key(MessageQueue(case["topic"], case["broker"], case["queue_id"]))

    assert key == case["expected_key"]
    assert md5_position(key) == case["expected_hash"]


def run_ring(case: Case) -> None:
    ring = ConsistentHash(case["virtual_nodes"]).ring(case["consumers"])

    assert [[position, key] for position, key, _ in ring] == case["expected"]


def run_construct(case: Case) -> None:
    fault = None
    try:
        ConsistentHash(case["virtual_nodes"])
    except AllocationError as error:
        fault = error.fault.value

    expected = case["expected"]
    assert fault == (expected.get("error") if isinstance(expected, dict) else None)


def _pairs() -> dict[str, Callable[[Case], None]]:
    strategies: dict[str, tuple[Callable[[Case], AllocationStrategy], str | None]] = {
        "allocate_averagely": (lambda _: Averagely(), "AVG"),
        "allocate_by_circle": (lambda _: AveragelyByCircle(), "AVG_BY_CIRCLE"),
        "allocate_by_machine_room": (
            lambda case: ByMachineRoom(frozenset(case["rooms"] or ())),
            "MACHINE_ROOM",
        ),
        "allocate_consistent_hash": (
            lambda case: ConsistentHash(case["virtual_nodes"]),
            "CONSISTENT_HASH",
        ),
        "allocate_machine_room_nearby": (_nearby, None),
    }
    runners: dict[str, Callable[[Case], None]] = {}
    for file, (make, name) in strategies.items():
        runners[f"{file}/table"], runners[f"{file}/single"] = _runner(make, name)
    return runners


RUNNERS: Final[dict[str, Callable[[Case], None]]] = {
    **_pairs(),
    "allocate_averagely/sort_queues": run_sort_queues,
    "allocate_averagely/sort_consumers": run_sort_consumers,
    "allocate_by_config/single": run_by_config,
    "allocate_consistent_hash/hash": run_hash,
    "allocate_consistent_hash/queue_key": run_queue_key,
    "allocate_consistent_hash/ring": run_ring,
    "allocate_consistent_hash/construct": run_construct,
}
