"""The choice of a queue as 4.x made it: what differs, and that it harms nobody's queues."""

from __future__ import annotations

import pytest

from eruca.core.messages.message_queue import ChoiceReason, MessageQueue
from eruca.core.routing.counter import Counter
from eruca.core.routing.latency_fault import FaultTable
from eruca.core.routing.queue_choice import choose_queue
from support.latency_profiles import SEED_4X
from support.queue_choice_4x import choose_queue_4x

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

    # Ticks: 1 for the scan, 2 for a queue that is not used, 3 for the number of the one that is.
    assert choice == (MessageQueue("orders", "broker-b", 1), ChoiceReason.LEAST_BAD)


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


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("start", range(2**31 - 13, 2**31))
def test_a_scan_past_the_largest_int_counts_as_java_does(count: int, start: int) -> None:
    """Exhaustive over which broker is the only available one."""
    queues = [MessageQueue("orders", f"broker-{n}", 0) for n in range(count)]
    positions = {_java_position(start + step, count) for step in range(count)}

    for available in positions:
        faults = FaultTable(SEED_4X)
        for queue in queues:
            faults.update(queue.broker_name, 0 if queue == queues[available] else 700, 0)
        choice = choose_queue_4x(
            queues, Counter(start - 1), better_half_counter=Counter(), now_ms=1, faults=faults
        )
        assert choice == (queues[available], ChoiceReason.ROUND_ROBIN)


def _java_position(index: int, count: int) -> int:
    as_int = (index + 2**31) % 2**32 - 2**31
    magnitude = as_int if as_int == -(2**31) else abs(as_int)
    return magnitude % count if magnitude >= 0 else 0


def test_a_topic_without_queues_is_the_callers_mistake() -> None:
    with pytest.raises(AssertionError):
        choose_queue_4x([], Counter(), better_half_counter=Counter())
