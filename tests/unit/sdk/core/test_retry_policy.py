"""Retries: within one deadline, where they can help, and not where they cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import (
    ClosedError,
    ConflictError,
    DiskFullError,
    ErucaError,
    InternalError,
    NoRouteError,
    NotMasterError,
    NotMasterForSureError,
    OutcomeUnknownError,
    OverloadedError,
    PermissionDeniedError,
    QueueNotFoundError,
    TimeoutExpiredError,
    TooLargeError,
    TopicNotFoundError,
    TransportError,
    ValidationError,
)
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.retry_policy import (
    BACK_OFF_SECONDS,
    BACK_OFF_SECONDS_MAX,
    MASTER_PAUSE_SECONDS_MAX,
    Patience,
    Retry,
    attempt_seconds,
    is_brokers_fault,
    needs_route,
    next_attempt,
    was_reached,
)


@given(remaining=st.floats(0.001, 100), attempts=st.integers(1, 10))
def test_an_attempt_that_hangs_leaves_time_for_the_next(remaining: float, attempts: int) -> None:
    seconds = attempt_seconds(remaining, attempts)

    assert 0 < seconds <= remaining
    if attempts > 1 and remaining > 0.4:
        assert seconds <= remaining / 2


def test_the_last_attempt_gets_all_that_is_left() -> None:
    assert attempt_seconds(3.0, 1) == 3.0


def test_three_attempts_that_hang_use_the_deadline_and_no_more() -> None:
    remaining = 3.0
    for attempts_left in (3, 2, 1):
        remaining -= attempt_seconds(remaining, attempts_left)

    assert remaining == 0


def after(
    error: ErucaError, *, attempt: int = 1, remaining: float = 2.0, other_broker: bool = True
) -> Retry | None:
    return next_attempt(
        error,
        attempt=attempt,
        attempts_max=3,
        remaining_seconds=remaining,
        has_other_broker=other_broker,
        patience_seconds=error.retry_after_seconds or 0.0,
    )


@pytest.mark.parametrize("kind", [TransportError, TimeoutExpiredError])
def test_a_broker_that_was_not_reached_is_left_for_another_at_once(kind: type[ErucaError]) -> None:
    assert after(kind("x")) == Retry(0.0, refresh_route=True)


@pytest.mark.parametrize("kind", [OverloadedError, DiskFullError, InternalError])
def test_a_broker_that_cannot_do_it_now_is_left_for_another_at_once(kind: type[ErucaError]) -> None:
    assert after(kind("x", retry_after_seconds=1.0)) == Retry(0.0, refresh_route=False)


@pytest.mark.parametrize("kind", [NotMasterError, NotMasterForSureError, OutcomeUnknownError])
def test_a_change_of_the_master_is_not_the_brokers_fault(kind: type[ErucaError]) -> None:
    assert after(kind("x")) == Retry(0.0, refresh_route=True)
    assert not needs_route(kind("x"))  # it is fetched in the background
    assert not is_brokers_fault(kind("x"))


def test_a_broker_that_asks_for_patience_gets_it_where_there_is_no_other() -> None:
    error = OverloadedError("x", retry_after_seconds=1.0)

    assert after(error, other_broker=False) == Retry(1.0, refresh_route=False)


@pytest.mark.parametrize("kind", [NotMasterError, NotMasterForSureError])
def test_replicas_without_a_master_are_asked_again_sooner_than_they_say(
    kind: type[ErucaError],
) -> None:
    patience = Patience()
    patience.note("a", kind("x", retry_after_seconds=1.0), now=10.0)

    def pause(attempt: int, *, awaits_master: bool) -> float:
        retry = next_attempt(
            kind("x"),
            attempt=attempt,
            attempts_max=100,
            remaining_seconds=20.0,
            has_other_broker=False,
            patience_seconds=patience.seconds(["a"], now=10.0),
            awaits_master=awaits_master,
        )
        assert retry is not None
        return retry.wait_seconds

    assert pause(1, awaits_master=True) == BACK_OFF_SECONDS
    assert pause(50, awaits_master=True) == MASTER_PAUSE_SECONDS_MAX
    assert pause(50, awaits_master=False) == BACK_OFF_SECONDS_MAX


def test_patience_beyond_the_deadline_is_not_worth_waiting_for() -> None:
    error = OverloadedError("x", retry_after_seconds=2.0)

    assert after(error, other_broker=False, remaining=2.0) is None


def test_where_all_have_asked_for_patience_the_first_whose_time_comes_is_awaited() -> None:
    patience = Patience()
    patience.note("a", OverloadedError("x", retry_after_seconds=5.0), now=10.0)
    patience.note("b", OverloadedError("x", retry_after_seconds=1.0), now=10.5)
    patience.note("b", TransportError("x"), now=10.6)  # asks for nothing, and takes nothing back

    assert patience.is_asked("b", now=11.4)
    assert not patience.is_asked("b", now=11.5)
    assert patience.seconds({"a", "b"}, now=11.0) == 0.5
    assert patience.seconds({"a", "b"}, now=20.0) == 0
    assert patience.seconds({"a", "b", "c"}, now=11.0) == 0


def test_queues_of_brokers_that_asked_for_patience_are_left_out_unless_there_are_no_others() -> (
    None
):
    patience = Patience()
    queues = [MessageQueue("orders", name, 0) for name in ("a", "b")]
    assert patience.queues(queues, now=10.0) == queues

    patience.note("a", OverloadedError("x", retry_after_seconds=5.0), now=10.0)
    assert patience.queues(queues, now=10.0) == queues[1:]

    patience.note("b", OverloadedError("x", retry_after_seconds=1.0), now=10.0)
    assert patience.queues(queues, now=10.0) == queues
    assert patience.queues(queues, now=11.0) == queues[1:]


def test_pauses_before_the_same_broker_grow() -> None:
    retries = [after(TransportError("x"), attempt=n, other_broker=False) for n in (1, 2)]
    pauses = [retry.wait_seconds for retry in retries if retry is not None]

    assert 0 < pauses[0] < pauses[1]


def test_attempts_may_go_on_for_hours() -> None:
    retry = next_attempt(
        TransportError("x"),
        attempt=2_000,
        attempts_max=2_001,
        remaining_seconds=3_600.0,
        has_other_broker=False,
        patience_seconds=0.0,
    )

    assert retry == Retry(1.0, refresh_route=True)


@pytest.mark.parametrize(
    "kind", [TopicNotFoundError, QueueNotFoundError, PermissionDeniedError, NoRouteError]
)
def test_a_refusal_that_may_come_of_an_old_route_has_it_fetched_again(
    kind: type[ErucaError],
) -> None:
    assert after(kind("x")) == Retry(0.0, refresh_route=True)


@pytest.mark.parametrize("kind", [ValidationError, TooLargeError, ConflictError, ClosedError])
def test_what_would_be_refused_again_is_not_repeated(kind: type[ErucaError]) -> None:
    assert after(kind("x")) is None


@pytest.mark.parametrize(("attempt", "remaining"), [(3, 2.0), (1, 0.0), (1, -1.0)])
def test_attempts_and_time_are_limited(attempt: int, remaining: float) -> None:
    assert after(TransportError("x"), attempt=attempt, remaining=remaining) is None


@pytest.mark.parametrize(
    ("kind", "brokers_fault", "reached"),
    [
        (TransportError, True, False),
        (TimeoutExpiredError, True, False),
        (OverloadedError, True, True),
        (InternalError, True, True),
        (ValidationError, False, True),
        (TopicNotFoundError, False, True),
    ],
)
def test_blame_goes_where_it_belongs(
    kind: type[ErucaError], *, brokers_fault: bool, reached: bool
) -> None:
    assert is_brokers_fault(kind("x")) == brokers_fault
    assert was_reached(kind("x")) == reached
