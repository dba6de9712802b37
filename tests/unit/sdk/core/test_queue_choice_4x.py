"""The choice of a queue as 4.x made it: what differs, and that it harms nobody's queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.core.counter import Counter
from eruca.core.latency_fault import SEED_4X, FaultTable
from eruca.core.message_queue import ChoiceReason, MessageQueue
from eruca.core.queue_choice import choose_queue
from eruca.core.queue_choice_4x import choose_queue_4x

QUEUES = tuple(MessageQueue("orders", f"broker-{b}", n) for b in "ab" for n in range(2))


def test_a_retry_stays_with_the_failed_broker_while_it_counts_as_available() -> None:
    """The defect: RocketMQ later excluded the last broker, as ours does."""
    faults = FaultTable(SEED_4X)

    as_4x = choose_queue_4x(
        QUEUES,
        Counter(),
        better_half_counter=Counter(),
        last_broker="broker-a",
        faults=faults,
    )
    as_ours = choose_queue(QUEUES, Counter(), last_broker="broker-a", faults=faults)

    assert as_4x.queue.broker_name == "broker-a"
    assert as_ours.queue.broker_name == "broker-b"


def test_without_the_table_queues_take_turns() -> None:
    counter, better_half = Counter(), Counter()

    chosen = [
        choose_queue_4x(QUEUES, counter, better_half_counter=better_half).queue for _ in QUEUES
    ]

    assert chosen == [QUEUES[1], QUEUES[2], QUEUES[3], QUEUES[0]]


def test_without_the_table_a_retry_goes_to_another_broker() -> None:
    choice = choose_queue_4x(
        QUEUES, Counter(), better_half_counter=Counter(), last_broker="broker-a"
    )

    assert choice.queue.broker_name == "broker-b"


def test_without_the_table_the_only_broker_is_tried_again() -> None:
    choice = choose_queue_4x(
        QUEUES[:2], Counter(), better_half_counter=Counter(), last_broker="broker-a"
    )

    assert choice.reason is ChoiceReason.LAST_RESORT


def test_with_every_broker_isolated_the_better_half_decides() -> None:
    faults = FaultTable(SEED_4X)
    faults.update("broker-a", 700, 0)
    faults.update("broker-b", 600, 0)

    choice = choose_queue_4x(
        QUEUES, Counter(), better_half_counter=Counter(), now_ms=1, faults=faults
    )

    assert choice.queue.broker_name == "broker-b"
    assert choice.reason is ChoiceReason.LEAST_BAD


def test_a_known_broker_without_a_queue_is_dropped() -> None:
    faults = FaultTable(SEED_4X)
    faults.update("broker-gone", 1, 0)
    faults.update("broker-a", 700, 0)
    faults.update("broker-b", 700, 0)

    choice = choose_queue_4x(
        QUEUES, Counter(), better_half_counter=Counter(), now_ms=1, faults=faults
    )

    assert choice.reason is ChoiceReason.LAST_RESORT
    assert "broker-gone" not in {item.broker_name for item in faults.items(1)}


def test_with_an_empty_table_that_helps_nothing_the_turn_decides() -> None:
    choice = choose_queue_4x(
        QUEUES,
        Counter(),
        better_half_counter=Counter(),
        last_broker="broker-gone",
        faults=FaultTable(SEED_4X),
    )

    assert choice.reason is ChoiceReason.LAST_RESORT


@given(st.integers(1, 7), st.integers(-8, 8))
def test_a_scan_past_the_largest_int_counts_as_java_does(count: int, offset: int) -> None:
    start = 2**31 - 1 + offset
    queues = [MessageQueue("orders", f"broker-{n}", 0) for n in range(count)]
    counter, faults = Counter(start - 1), FaultTable(SEED_4X)
    start = Counter(start - 1).advance()
    for queue in queues:
        faults.update(queue.broker_name, 700, 0)
    positions = [_java_position(start + step, count) for step in range(count)]
    available = queues[positions[-1]]
    faults.remove(available.broker_name)

    choice = choose_queue_4x(
        queues, counter, better_half_counter=Counter(), now_ms=1, faults=faults
    )

    assert choice.queue == available


def _java_position(index: int, count: int) -> int:
    as_int = (index + 2**31) % 2**32 - 2**31
    magnitude = as_int if as_int == -(2**31) else abs(as_int)
    return magnitude % count if magnitude >= 0 else 0


def test_a_topic_without_queues_is_the_callers_mistake() -> None:
    with pytest.raises(AssertionError):
        choose_queue_4x([], Counter(), better_half_counter=Counter())
