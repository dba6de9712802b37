"""Vectors of latency fault tolerance: isolation times, the fault table, and the choice of a queue.

The originals never forget that a broker was unreachable; ours do after a while. So the table is
given a profile that never forgets.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.counter import Counter
from eruca.core.routing.latency_fault import CURRENT, FaultItem, FaultTable, fault_order
from eruca.core.routing.queue_choice import choose_queue
from support.queue_choice_4x import choose_queue_4x
from support.rocketmq_rules import PROFILES, pick_of_better_half, pick_reachable

_NOW: Final = 1_700_000_000_000
_ISOLATED_MS: Final = 10_000_000  # of a broker that a case calls unavailable


def _table(profile: str) -> FaultTable:
    return FaultTable(replace(PROFILES[profile], unreachable_ms_max=None))


def run_duration(case: dict[str, Any]) -> None:
    table = _table(case["profile"])

    table.update(
        "b",
        case["latency_ms"],
        _NOW,
        failed=case["isolation"],
        reachable=case.get("reachable", True),
    )

    (item,) = table.items(_NOW)
    assert table.is_available("b", _NOW) == case["expected_available_now"]
    assert item.available_from_ms - _NOW == case["expected_not_available_ms"]
    assert table.is_reachable("b", _NOW) == case.get("expected_reachable", True)


def run_duration_custom(case: dict[str, Any]) -> None:
    profile = replace(
        PROFILES[case["profile"]],
        latency_max_ms=tuple(case["latency_max_ms"]),
        not_available_ms=tuple(case["not_available_ms"]),
    )

    duration = profile.isolation_ms(case["latency_ms"], failed=case["isolation"])

    assert duration == case["expected_not_available_ms"]


def run_timeline(case: dict[str, Any]) -> None:
    table = _table(case["profile"])
    for event in case["events"]:
        now = _NOW + event["at_ms"]
        if event["op"] == "probe":
            available = event["expected_available"]
            assert {name: table.is_available(name, now) for name in available} == available
            reachable = event.get("expected_reachable", {})
            assert {name: table.is_reachable(name, now) for name in reachable} == reachable
        elif event["op"] == "remove":
            table.remove(event["broker"])
        else:
            assert event["op"] == "update"
            if case["send_latency_fault_enable"]:
                table.update(
                    event["broker"],
                    event["latency_ms"],
                    now,
                    failed=event["isolation"],
                    reachable=event.get("reachable", True),
                )


def run_select(case: dict[str, Any]) -> None:
    assert case["profile"] == "current"
    table = _table("current")
    for fault in case["faults"] or ():
        latency = 0 if fault["available"] else _ISOLATED_MS
        table.update(fault["broker"], latency, _NOW, reachable=fault["reachable"])
    counter = Counter(case["counter_before"])

    got = [
        choose_queue(
            _queues(case),
            counter,
            now_ms=_NOW,
            last_broker=case["last_broker"],
            faults=table if case["send_latency_fault_enable"] else None,
        ).queue
        for _ in case["expected_sequence"]
    ]

    assert [[queue.broker_name, queue.queue_id] for queue in got] == case["expected_sequence"]


def run_select_once(case: dict[str, Any]) -> None:
    assert case["profile"] == "seed_4x"
    table = _table_4x(case["faults"] or [])

    queue, _ = choose_queue_4x(
        _queues(case),
        Counter(case["counter_before"]),
        better_half_counter=Counter(case["worst_counter_before"]),
        now_ms=_NOW,
        last_broker=case["last_broker"],
        faults=table if case["send_latency_fault_enable"] else None,
    )

    assert [queue.broker_name, queue.queue_id] == case["expected"]
    known = sorted(item.broker_name for item in table.items(_NOW))
    assert known == sorted(case["expected_known_brokers_after"])


def _queues(case: dict[str, Any]) -> list[MessageQueue]:
    return [MessageQueue("TopicTest", broker, queue_id) for broker, queue_id in case["queues"]]


def _table_4x(faults: list[dict[str, Any]]) -> FaultTable:
    # The cases give latency and availability apart, so each broker needs a table of its own making.
    table = FaultTable()
    for fault in faults:
        table.profile = replace(
            CURRENT,
            latency_max_ms=(-1,),
            not_available_ms=(0 if fault["available"] else _ISOLATED_MS,),
        )
        table.update(fault["broker"], fault["latency_ms"], _NOW)
    return table


def run_fault_item_order(case: dict[str, Any]) -> None:
    items = [
        FaultItem(item["broker"], item["latency_ms"], _NOW + item["available_from_relative_ms"])
        for item in case["items"]
    ]

    items.sort(key=lambda item: fault_order(item, _NOW))

    assert [item.broker_name for item in items] == case["expected_order"]


def run_pick_one_at_least(case: dict[str, Any]) -> None:
    if case["profile"] == "seed_4x":
        table = _table_4x(case["items"])
        counter = Counter(case["worst_counter_before"])
        picks = [pick_of_better_half(table, _NOW, counter) for _ in case["expected_sequence"]]
        assert picks == case["expected_sequence"]
        return
    assert case["profile"] == "current"
    table = _table("current")
    for item in case["items"]:
        table.update(item["broker"], 0, _NOW, reachable=item["reachable"])
    seeds = range(50)
    picked = {pick_reachable(table, _NOW, random.Random(seed)) for seed in seeds}
    assert picked <= set(case["expected_any_of"] or [None])


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "latency_fault/duration": run_duration,
    "latency_fault/duration_custom": run_duration_custom,
    "latency_fault/timeline": run_timeline,
    "latency_fault/select": run_select,
    "latency_fault/select_once": run_select_once,
    "latency_fault/fault_item_order": run_fault_item_order,
    "latency_fault/pick_one_at_least": run_pick_one_at_least,
}
