"""Vectors of delayed delivery: level tables, due times, and where a delayed message is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eruca.contract.records import SysFlag
from eruca.core.messages.delay_levels import (
    LEVELS_DEFAULT,
    DelayLevels,
    DelayLevelsError,
    Placement,
    TimerError,
    TimerLimits,
    level_of_queue,
    place,
    queue_of_level,
)

_TRANSACTION_FLAGS: Final = {
    "none": 0,
    "prepared": SysFlag.PREPARED,
    "commit": SysFlag.COMMIT,
    "rollback": SysFlag.ROLLBACK,
}


def run_parse(case: dict[str, Any]) -> None:
    try:
        levels = DelayLevels.parse(case["levels"] or "")
        is_ok, delays, max_level = True, levels.delays_ms, levels.max_level
    except DelayLevelsError as error:
        is_ok, delays, max_level = False, error.delays_ms, error.max_level

    assert is_ok == case["expected_ok"]
    assert {str(n): delay for n, delay in enumerate(delays, 1)} == case["expected_table_ms"]
    assert max_level == case["expected_max_level"]


def run_deliver_at(case: dict[str, Any]) -> None:
    levels = DelayLevels.parse(case["levels"])

    assert levels.deliver_at_ms(case["level"], case["store_timestamp"]) == case["expected"]


def run_queue(case: dict[str, Any]) -> None:
    queue_id = queue_of_level(case["level"])

    assert queue_id == case["expected_queue_id"]
    assert level_of_queue(queue_id) == case["expected_level_back"]


def run_transform(case: dict[str, Any]) -> None:
    got = place(
        case["topic"],
        case["queue_id"],
        level=case["level"],
        properties={},
        sys_flag=_TRANSACTION_FLAGS[case["transaction_type"]],
        levels=DelayLevels.parse(case["levels"]),
        now_ms=0,
        limits=TimerLimits(),
    )

    assert case["expected_reject"] is None
    assert got.level == case["expected_level"]
    _assert_placed(got, case)


def run_timer(case: dict[str, Any]) -> None:
    # The cases do not say so, but all of them are messages to this queue.
    original = Placement("TopicTest", 2, case["level"])
    try:
        got = place(
            original.topic,
            original.queue_id,
            level=case["level"],
            properties=case["properties"] or {},
            sys_flag=0,
            levels=DelayLevels.parse(LEVELS_DEFAULT),
            now_ms=case["now_ms"],
            limits=TimerLimits(case["precision_ms"], case["max_delay_sec"]),
        )
    except TimerError:
        assert case["expected_reject"] == "WHEEL_TIMER_MSG_ILLEGAL"
        got = original
    else:
        assert case["expected_reject"] is None

    assert _text(got.timer_out_ms) == case["expected_timer_out_ms"]
    _assert_placed(got, case)


def _assert_placed(got: Placement, case: dict[str, Any]) -> None:
    assert got.topic == case["expected_topic"]
    assert got.queue_id == case["expected_queue_id"]
    assert got.real_topic == case["expected_real_topic"]
    assert _text(got.real_queue_id) == case["expected_real_queue_id"]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "delay_levels/parse": run_parse,
    "delay_levels/deliver_at": run_deliver_at,
    "delay_levels/queue": run_queue,
    "delay_levels/transform": run_transform,
    "delay_levels/timer": run_timer,
}
