"""The choice of a queue: even turns, around the broker that failed and around slow ones."""

from __future__ import annotations

from collections import Counter as Tally

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from eruca.core.messages.message_queue import ChoiceReason, MessageQueue
from eruca.core.routing.counter import Counter
from eruca.core.routing.latency_fault import FaultTable
from eruca.core.routing.queue_choice import choose_queue

BROKERS = ["broker-a", "broker-b", "broker-c", "broker-d"]
STARTS = st.integers(0, 2**31 - 100)  # a turn does not wrap round: RocketMQ's then misses queues


@st.composite
def queue_lists(draw: st.DrawFn) -> list[MessageQueue]:
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    return [
        MessageQueue("orders", broker, queue_id)
        for broker, count in zip(BROKERS, counts, strict=False)
        for queue_id in range(count)
    ]


@given(queue_lists(), STARTS, st.booleans())
def test_as_many_sends_as_queues_hit_each_queue_once(
    queues: list[MessageQueue], start: int, feature: bool
) -> None:
    counter, faults = Counter(start), FaultTable() if feature else None

    chosen = [choose_queue(queues, counter, faults=faults).queue for _ in queues]

    assert sorted(chosen) == queues


@given(queue_lists(), STARTS, st.sampled_from(BROKERS), st.booleans())
def test_a_retry_avoids_the_failed_broker_while_there_is_another(
    queues: list[MessageQueue], start: int, failed: str, feature: bool
) -> None:
    assume(any(queue.broker_name != failed for queue in queues))
    faults = FaultTable() if feature else None

    choice = choose_queue(queues, Counter(start), last_broker=failed, faults=faults)

    assert choice.queue.broker_name != failed


@given(STARTS, st.booleans())
def test_a_topic_with_one_broker_still_retries(start: int, feature: bool) -> None:
    queues = [MessageQueue("orders", "broker-a", n) for n in range(3)]
    faults = FaultTable() if feature else None
    if faults:
        faults.update("broker-a", 1, 0, failed=True, reachable=False)

    choice = choose_queue(queues, Counter(start), last_broker="broker-a", faults=faults)

    assert choice.queue in queues
    assert choice.reason is ChoiceReason.LAST_RESORT


@given(queue_lists(), STARTS, STARTS, st.lists(st.booleans(), max_size=30))
def test_senders_with_their_own_counters_do_not_disturb_each_other(
    queues: list[MessageQueue], one_start: int, other_start: int, turns: list[bool]
) -> None:
    one, other = Counter(one_start), Counter(other_start)

    mixed = [choose_queue(queues, one if mine else other).queue for mine in turns]

    alone = Counter(one_start)
    expected = [choose_queue(queues, alone).queue for mine in turns if mine]
    assert [queue for queue, mine in zip(mixed, turns, strict=True) if mine] == expected


@given(
    queue_lists(),
    STARTS,
    st.lists(st.sampled_from(BROKERS), max_size=4),
    st.one_of(st.none(), st.sampled_from(BROKERS)),
)
@settings(suppress_health_check=[HealthCheck.filter_too_much])  # often none is healthy
def test_a_healthy_broker_is_preferred_to_isolated_ones(
    queues: list[MessageQueue], start: int, isolated: list[str], last: str | None
) -> None:
    faults = FaultTable()
    for name in isolated:
        faults.update(name, 1, 0, failed=True)
    healthy = {queue.broker_name for queue in queues} - set(isolated) - {last}
    assume(healthy)

    choice = choose_queue(queues, Counter(start), now_ms=1, last_broker=last, faults=faults)

    assert choice.queue.broker_name in healthy
    assert choice.reason is ChoiceReason.ROUND_ROBIN


def test_healthy_brokers_share_the_load_of_an_isolated_one() -> None:
    queues = [MessageQueue("orders", broker, 0) for broker in BROKERS]
    faults, counter = FaultTable(), Counter()
    faults.update("broker-b", 1, 0, failed=True)

    tally = Tally(
        choose_queue(queues, counter, now_ms=1, faults=faults).queue.broker_name for _ in range(300)
    )

    assert set(tally) == {"broker-a", "broker-c", "broker-d"}
    assert min(tally.values()) >= 75


def test_among_isolated_brokers_one_that_was_reached_is_taken() -> None:
    queues = [MessageQueue("orders", broker, 0) for broker in BROKERS[:3]]
    faults = FaultTable()
    for broker in BROKERS[:3]:
        faults.update(broker, 1, 0, failed=True, reachable=broker == "broker-b")

    choice = choose_queue(queues, Counter(), now_ms=1, faults=faults)

    assert choice == (queues[1], ChoiceReason.ISOLATED)


def test_among_isolated_brokers_the_one_that_just_failed_is_avoided_too() -> None:
    queues = [MessageQueue("orders", broker, 0) for broker in BROKERS[:2]]
    faults = FaultTable()
    for broker in BROKERS[:2]:
        faults.update(broker, 1, 0, failed=True)

    for start in range(2):
        choice = choose_queue(
            queues, Counter(start), now_ms=1, last_broker="broker-a", faults=faults
        )
        assert choice == (queues[1], ChoiceReason.ISOLATED)


def test_after_isolation_one_message_probes_and_the_others_go_elsewhere() -> None:
    queues = [MessageQueue("orders", broker, 0) for broker in BROKERS[:2]]
    faults, counter = FaultTable(), Counter()
    faults.update("broker-b", 1, 0, failed=True)

    choices = [choose_queue(queues, counter, now_ms=10_000, faults=faults) for _ in range(4)]

    assert [choice.queue.broker_name for choice in choices].count("broker-b") == 1
    assert [choice.reason for choice in choices].count(ChoiceReason.PROBE) == 1


def test_while_the_only_broker_is_probed_messages_still_go_to_it() -> None:
    queues = [MessageQueue("orders", "broker-a", 0)]
    faults = FaultTable()
    faults.update("broker-a", 1, 0, failed=True)

    reasons = [
        choose_queue(queues, Counter(), now_ms=10_000, faults=faults).reason for _ in range(2)
    ]

    assert reasons == [ChoiceReason.PROBE, ChoiceReason.ISOLATED]


def test_a_topic_without_queues_is_the_callers_mistake() -> None:
    with pytest.raises(AssertionError):
        choose_queue([], Counter())
