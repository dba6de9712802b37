"""Results of batches beyond RocketMQ's vectors: bounds, statuses of the other kind, gates."""

from __future__ import annotations

import pytest

from eruca.core.consuming.concurrent_result import acknowledged_count, settle, to_send_back
from eruca.core.consuming.consume_status import ConsumeStatus, status_of
from eruca.core.consuming.orderly_result import (
    SUSPEND_SECONDS_MAX,
    SUSPEND_SECONDS_MIN,
    Action,
    Gate,
    action_if_all_dead,
    action_of,
    gate,
    is_exhausted,
    must_step_back,
    suspend_seconds,
)
from support.queued import filled, queued


@pytest.mark.parametrize(
    ("ack_index", "count"), [(None, 3), (5, 3), (2, 3), (1, 2), (0, 1), (-1, 0), (-7, 0)]
)
def test_the_ack_index_says_how_many_are_done_with(ack_index: int | None, count: int) -> None:
    assert acknowledged_count(ConsumeStatus.SUCCESS, ack_index, 3) == count
    assert acknowledged_count(ConsumeStatus.RECONSUME_LATER, ack_index, 3) == 0


def test_what_has_failed_and_is_still_held_is_sent_back_but_not_in_broadcasting() -> None:
    messages = queued(1, 2, 3)
    queue = filled(messages)
    queue.remove(messages[1:2])

    assert to_send_back(queue, messages, "clustering") == [messages[0], messages[2]]
    assert to_send_back(queue, messages, "broadcasting") == []


def test_what_could_not_be_sent_back_holds_the_committed_offset() -> None:
    messages = queued(1, 2, 3)
    queue = filled(messages)

    assert settle(queue, messages, [messages[1]]) == 20
    assert queue.commit_offset == 2


@pytest.mark.parametrize("none_is_failure", [False, True])
def test_nothing_returned_is_success_unless_the_consumer_says_otherwise(
    none_is_failure: bool,
) -> None:
    concurrent = status_of(None, is_orderly=False, none_is_failure=none_is_failure)
    orderly = status_of(None, is_orderly=True, none_is_failure=none_is_failure)

    expected = (ConsumeStatus.RECONSUME_LATER, ConsumeStatus.SUSPEND)
    if not none_is_failure:
        expected = (ConsumeStatus.SUCCESS, ConsumeStatus.SUCCESS)
    assert (concurrent, orderly) == expected


def test_a_status_of_the_other_kind_is_taken_for_the_nearest() -> None:
    assert (
        status_of(ConsumeStatus.SUSPEND, is_orderly=False, none_is_failure=False)
        is ConsumeStatus.RECONSUME_LATER
    )
    assert (
        status_of(ConsumeStatus.RECONSUME_LATER, is_orderly=True, none_is_failure=False)
        is ConsumeStatus.SUSPEND
    )


@pytest.mark.parametrize("returned", [True, "success", 0, object(), ConsumeStatus.COMMIT])
def test_what_is_no_verdict_means_nothing(returned: object) -> None:
    assert status_of(returned, is_orderly=False, none_is_failure=False) is None


def test_without_automatic_commits_success_keeps_and_a_dead_batch_too() -> None:
    assert action_of(ConsumeStatus.SUCCESS, auto_commit=True) is Action.COMMIT
    assert action_of(ConsumeStatus.SUCCESS, auto_commit=False) is Action.KEEP
    assert action_of(ConsumeStatus.ROLLBACK, auto_commit=True) is Action.COMMIT
    assert action_of(ConsumeStatus.ROLLBACK, auto_commit=False) is Action.ROLL_BACK
    assert action_if_all_dead(auto_commit=True) is Action.COMMIT
    assert action_if_all_dead(auto_commit=False) is Action.KEEP


def test_retries_are_counted_against_the_limit_if_there_is_one() -> None:
    assert not is_exhausted(10**6, None)
    assert is_exhausted(0, 0)
    assert not is_exhausted(2, 3)
    assert is_exhausted(3, 3)


def test_the_suspend_time_is_bounded() -> None:
    assert suspend_seconds(None, 1.0) == 1.0
    assert suspend_seconds(0.0, 1.0) == SUSPEND_SECONDS_MIN
    assert suspend_seconds(3600.0, 1.0) == SUSPEND_SECONDS_MAX


@pytest.mark.parametrize(
    ("is_dropped", "is_locked", "age", "expected"),
    [
        (False, True, 30.0, Gate.OPEN),
        (False, True, 30.001, Gate.WAIT),
        (False, False, 0.0, Gate.WAIT),
        (True, True, 0.0, Gate.SHUT),
    ],
)
def test_a_batch_begins_only_under_a_lock_that_has_not_run_out(
    is_dropped: bool, is_locked: bool, age: float, expected: Gate
) -> None:
    assert (
        gate(
            "clustering",
            is_dropped=is_dropped,
            is_locked=is_locked,
            lock_age_seconds=age,
            lock_seconds=30.0,
        )
        is expected
    )


def test_a_queue_steps_back_after_a_minute() -> None:
    assert not must_step_back(60.0)
    assert must_step_back(60.001)
