"""Conditions narrow ranges as far as they are understood, and never too far."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_eruca.ranges import Queue, Range
from pyspark_eruca.wanted import Wanted

ALL = tuple(
    Range(Queue(topic, broker_name, queue_id), 10, 20)
    for topic in ("orders", "payments")
    for broker_name in ("broker-a", "broker-b")
    for queue_id in (0, 1)
)


def narrowed(*conditions: Filter) -> tuple[Range, ...]:
    wanted = Wanted()
    for condition in conditions:
        wanted.add(condition)
    return wanted.narrow(ALL)


def at(name: str) -> tuple[str]:
    return (name,)


@pytest.mark.parametrize(
    ("condition", "is_left"),
    [
        (EqualTo(at("topic"), "orders"), lambda one: one.queue.topic == "orders"),
        (EqualTo(at("topic"), None), lambda _: False),
        (In(at("broker_name"), ("broker-b", "x")), lambda one: one.queue.broker_name == "broker-b"),
        (EqualTo(at("queue_id"), 1), lambda one: one.queue.queue_id == 1),
        (GreaterThan(at("queue_id"), 0), lambda one: one.queue.queue_id == 1),
        (LessThanOrEqual(at("queue_id"), 0), lambda one: one.queue.queue_id == 0),
        (IsNotNull(at("topic")), lambda _: True),
    ],
)
def test_conditions_on_queues_choose_queues(condition: Filter, is_left: Any) -> None:  # noqa: ANN401
    assert narrowed(condition) == tuple(one for one in ALL if is_left(one))


@pytest.mark.parametrize(
    ("condition", "start", "end"),
    [
        (EqualTo(at("queue_offset"), 12), 12, 13),
        (GreaterThan(at("queue_offset"), 12), 13, 20),
        (GreaterThanOrEqual(at("queue_offset"), 12), 12, 20),
        (LessThan(at("queue_offset"), 12), 10, 12),
        (LessThanOrEqual(at("queue_offset"), 12), 10, 13),
        (GreaterThan(at("queue_offset"), -5), 10, 20),
    ],
)
def test_conditions_on_offsets_shorten_ranges(condition: Filter, start: int, end: int) -> None:
    assert {(one.start, one.end) for one in narrowed(condition)} == {(start, end)}


def test_a_list_of_offsets_shortens_to_its_ends() -> None:
    ranges = narrowed(In(at("queue_offset"), (12, 17)))

    assert {(one.start, one.end) for one in ranges} == {(12, 18)}


def test_conditions_that_exclude_each_other_leave_nothing() -> None:
    assert narrowed(EqualTo(at("topic"), "orders"), EqualTo(at("topic"), "payments")) == ()
    assert narrowed(LessThan(at("queue_offset"), 12), GreaterThan(at("queue_offset"), 15)) == ()


def test_times_are_rounded_outwards() -> None:
    wanted = Wanted()
    begin = datetime(2026, 11, 21, 8, 0, 0, 1_500, tzinfo=UTC)
    end = datetime(2026, 11, 21, 9, tzinfo=UTC)

    wanted.add(GreaterThan(at("stored_at"), begin))
    wanted.add(LessThanOrEqual(at("stored_at"), end))

    assert wanted.stored_from == "2026-11-21T08:00:00.001Z"
    assert wanted.stored_to == "2026-11-21T09:00:00.001Z"


def test_of_several_times_the_narrowest_counts() -> None:
    wanted = Wanted()
    for hour in (8, 10, 9):
        wanted.add(GreaterThan(at("stored_at"), datetime(2026, 11, 21, hour, tzinfo=UTC)))
        wanted.add(LessThan(at("stored_at"), datetime(2026, 11, 21, hour + 5, tzinfo=UTC)))

    assert wanted.stored_from == "2026-11-21T10:00:00.000Z"
    assert wanted.stored_to == "2026-11-21T13:00:00.001Z"


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(at("tag"), "red"),
        GreaterThan(at("size"), 100),
        Not(EqualTo(at("topic"), "orders")),
        IsNull(at("topic")),
        IsNotNull(at("tag")),
        GreaterThan(at("topic"), "orders"),
        LessThan(at("queue_offset"), None),
    ],
)
def test_what_is_not_understood_narrows_nothing(condition: Filter) -> None:
    assert narrowed(condition) == ALL
