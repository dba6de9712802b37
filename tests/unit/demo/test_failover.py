"""The demo's fail-over: it is a fault to fail a send, or to lose an acknowledged flight."""

from __future__ import annotations

from collections import Counter

from demo.failover import Episode, Survival, event_count


def test_nothing_lost_and_nothing_failed_is_no_fault() -> None:
    survival = Survival([Episode("a kill", sends=2)], {1, 2}, Counter({1: 1, 2: 2}))

    assert survival.faults() == []
    assert survival.repeated == 1


def test_a_lost_flight_and_a_failed_send_are_faults() -> None:
    survival = Survival(
        [Episode("a kill", sends=3, failed=["no answer"])], {1, 2, 3}, Counter({1: 1})
    )

    assert survival.faults() == [
        "1 sends failed (a kill), such as: no answer",
        "2 acknowledged flights are lost, such as row 2, 3",
    ]


def test_a_flight_that_was_not_acknowledged_may_come_or_not() -> None:
    assert Survival([], set(), Counter({1: 1})).faults() == []


def test_each_process_is_restarted_once() -> None:
    assert event_count(brokers=2) == 6
