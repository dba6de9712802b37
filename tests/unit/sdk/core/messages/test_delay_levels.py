"""Delayed delivery: level tables, due times, and where a delayed message waits."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC
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

LEVELS = DelayLevels.parse(LEVELS_DEFAULT)
NOW = 1_700_000_000_123


def placed(
    topic: str = "orders",
    *,
    level: int = 0,
    properties: Mapping[str, str] | None = None,
    sys_flag: int = 0,
    limits: TimerLimits | None = None,
) -> Placement:
    return place(
        topic,
        2,
        level=level,
        properties=properties or {},
        sys_flag=sys_flag,
        levels=LEVELS,
        now_ms=NOW,
        limits=limits or TimerLimits(),
    )


def test_the_default_table_has_rocketmqs_18_levels() -> None:
    assert LEVELS.max_level == 18
    assert LEVELS.delays_ms[0] == 1_000
    assert LEVELS.delays_ms[17] == 2 * 3_600_000


@pytest.mark.parametrize("text", ["", "1s  2s", " 1s", "1", "s", "1.5s", "1S", "1_0s", "x"])
def test_a_list_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(DelayLevelsError):
        DelayLevels.parse(text)


def test_the_error_keeps_what_came_before_the_wrong_item() -> None:
    with pytest.raises(DelayLevelsError, match="'2x'") as caught:
        DelayLevels.parse("1s 2x 3s")
    assert caught.value.delays_ms == (1_000,)
    assert caught.value.max_level == 2


def test_blanks_at_the_end_do_not_count() -> None:
    assert DelayLevels.parse("1s 2m  ").delays_ms == (1_000, 120_000)
    assert DelayLevels.parse("  ").delays_ms == ()


@pytest.mark.parametrize(
    ("text", "delay_ms"), [("-5s", -5_000), ("+7s", 7_000), ("9223372036854775807s", -1_000)]
)
def test_numbers_are_javas_longs(text: str, delay_ms: int) -> None:
    assert DelayLevels.parse(text).delays_ms == (delay_ms,)


def test_a_number_beyond_64_bits_is_refused() -> None:
    with pytest.raises(DelayLevelsError):
        DelayLevels.parse("9223372036854775808s")


def test_a_table_may_have_days_and_any_order() -> None:
    levels = DelayLevels.parse("2d 1s 3m")

    assert [levels.deliver_at_ms(level, 5) for level in (1, 2, 3)] == [172_800_005, 1_005, 180_005]


def test_an_unknown_level_is_due_after_a_second() -> None:
    assert [LEVELS.deliver_at_ms(level, 5) for level in (-1, 0, 1, 3, 19)] == [
        1_005,
        1_005,
        1_005,
        10_005,
        1_005,
    ]


@given(st.integers(1, 1_000))
def test_each_level_has_a_queue_of_its_own(level: int) -> None:
    assert level_of_queue(queue_of_level(level)) == level


def test_a_message_without_a_delay_stays_where_it_belongs() -> None:
    assert placed() == Placement("orders", 2, 0)


def test_a_level_leads_to_the_schedule_topic() -> None:
    assert placed(level=3) == Placement(SCHEDULE_TOPIC, 2, 3, "orders", 2)
    assert placed(level=1) == Placement(SCHEDULE_TOPIC, 0, 1, "orders", 2)
    assert placed(level=-1) == Placement("orders", 2, -1)


def test_a_level_beyond_the_table_is_the_highest() -> None:
    assert placed(level=100) == Placement(SCHEDULE_TOPIC, 17, 18, "orders", 2)


@pytest.mark.parametrize("flag", [SysFlag.PREPARED, SysFlag.ROLLBACK])
def test_undecided_and_rolled_back_messages_are_not_delayed(flag: SysFlag) -> None:
    got = placed(level=3, sys_flag=flag | SysFlag.COMPRESSED)

    assert got == Placement("orders", 2, 3)


def test_a_committed_message_is_delayed() -> None:
    assert placed(level=3, sys_flag=SysFlag.COMMIT).topic == SCHEDULE_TOPIC


def test_a_level_wins_over_a_time() -> None:
    assert placed(level=3, properties={"TIMER_DELAY_SEC": "x"}).topic == SCHEDULE_TOPIC


@pytest.mark.parametrize(
    ("properties", "out_ms"),
    [
        ({"TIMER_DELAY_SEC": "10"}, 1_700_000_010_000),
        ({"TIMER_DELAY_MS": "877"}, 1_700_000_000_000),
        ({"TIMER_DELAY_MS": "878"}, 1_700_000_001_000),
        ({"TIMER_DELIVER_MS": str(NOW + 5_000)}, 1_700_000_005_000),
        ({"TIMER_DELIVER_MS": "1700000005000"}, 1_700_000_004_000),
        ({"TIMER_DELAY_SEC": "259200"}, 1_700_259_200_000),
        ({"TIMER_DELAY_SEC": "10", "TIMER_DELAY_MS": "1"}, 1_700_000_010_000),
        ({"TIMER_DELAY_MS": "2000", "TIMER_DELIVER_MS": "1"}, 1_700_000_002_000),
    ],
)
def test_a_time_leads_to_the_timer_a_tick_early(properties: dict[str, str], out_ms: int) -> None:
    assert placed(properties=properties) == Placement(TIMER_TOPIC, 0, 0, "orders", 2, out_ms)


@given(st.integers(1, 259_200_000), st.sampled_from([100, 500, 1_000]))
def test_the_timer_lets_go_within_a_tick_before_the_time(delay_ms: int, precision: int) -> None:
    got = placed(
        properties={"TIMER_DELAY_MS": str(delay_ms)}, limits=TimerLimits(precision_ms=precision)
    )

    assert got.timer_out_ms is not None
    assert 0 < NOW + delay_ms - got.timer_out_ms <= precision
    assert got.timer_out_ms % precision == 0


@pytest.mark.parametrize(
    "properties",
    [{"TIMER_DELAY_SEC": "-5"}, {"TIMER_DELAY_MS": "0"}, {"TIMER_DELIVER_MS": "1"}],
)
def test_a_time_that_has_passed_delays_nothing(properties: dict[str, str]) -> None:
    assert placed(properties=properties) == Placement("orders", 2, 0)


def test_a_message_is_not_recalled_after_its_time() -> None:
    with pytest.raises(TimerError, match="recalled"):
        placed(properties={"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "ID"})


@pytest.mark.parametrize("text", ["", "x", "1.5", "9223372036854775808", "1" * 5_000])
def test_a_time_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(TimerError, match="expected a number"):
        placed(properties={"TIMER_DELAY_MS": text})


def test_a_time_too_far_ahead_is_refused() -> None:
    limits = TimerLimits(max_delay_seconds=10)

    assert placed(properties={"TIMER_DELAY_MS": "10000"}, limits=limits).topic == TIMER_TOPIC
    with pytest.raises(TimerError, match="10 seconds"):
        placed(properties={"TIMER_DELAY_MS": "10001"}, limits=limits)


def test_three_days_may_be_waited_for_and_no_more() -> None:
    with pytest.raises(TimerError, match="259200 seconds"):
        placed(properties={"TIMER_DELAY_MS": "259200001"})


def test_what_comes_out_of_the_timer_does_not_go_back() -> None:
    properties = {"TIMER_DELAY_SEC": "10", "TIMER_OUT_MS": "1"}

    assert placed(properties=properties) == Placement("orders", 2, 0)
    assert placed(TIMER_TOPIC, properties={"TIMER_DELAY_SEC": "10"}).real_topic is None
