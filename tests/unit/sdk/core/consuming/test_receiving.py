"""A receive's rounds: nobody is waited for at first, and only what all brokers say is an error."""

from __future__ import annotations

import pytest

from eruca.contract.errors import (
    ErucaError,
    TimeoutExpiredError,
    TopicNotFoundError,
    TransportError,
    UnavailableError,
)
from eruca.contract.limits import WAIT_SECONDS_MAX
from eruca.core.consuming.receiving import (
    FAILURE_SECONDS,
    HANG_SECONDS,
    HOLD_SECONDS,
    Failures,
    ReceiveRounds,
)

A, B = "broker-a", "broker-b"
CUT = TransportError("cut")
BUSY = UnavailableError("busy", retry_after_seconds=3)
HUNG = TimeoutExpiredError("no answer")


def failures_of(*failed: tuple[str, ErucaError]) -> Failures[str]:
    failures: Failures[str] = Failures()
    for target, error in failed:
        failures.failed(target, error, 0.0)
    return failures


def second_round(deadline: float, *failed: tuple[str, ErucaError]) -> ReceiveRounds[str]:
    rounds = ReceiveRounds(deadline, failures_of(*failed))
    rounds.pause([A, B], 0.0)
    return rounds


def test_nobody_holds_the_first_request() -> None:
    rounds = ReceiveRounds(100.0, failures_of())

    assert rounds.hold(1, 0.0) == rounds.hold(2, 0.0) == 0.0
    assert not rounds.is_last_asked(100.0)


def test_a_lone_broker_holds_for_all_that_is_left_and_one_of_several_for_a_moment() -> None:
    rounds = second_round(1_000.0)

    assert rounds.hold(1, 0.0) == WAIT_SECONDS_MAX
    assert rounds.hold(1, 995.0) == 5.0
    assert rounds.hold(2, 0.0) == HOLD_SECONDS
    assert rounds.hold(2, 999.75) == 0.25
    assert rounds.hold(2, 1_001.0) == 0.0


def test_once_the_time_is_over_the_next_answer_is_the_last() -> None:
    rounds = second_round(10.0)

    assert not rounds.is_last_asked(9.9)
    assert rounds.is_last_asked(10.0)


def test_rounds_follow_each_other_at_once_until_the_time_is_over() -> None:
    rounds = ReceiveRounds(10.0, failures_of())

    assert rounds.pause([A, B], 0.0) == 0.0
    assert rounds.pause([A, B], 10.0) is None


def test_one_that_fails_is_passed_over_for_as_long_as_it_asks() -> None:
    failures = failures_of((A, BUSY))

    assert failures.is_passed_over(A, [A, B], 2.9)
    assert not failures.is_passed_over(A, [A, B], 3.0)
    assert not failures.is_passed_over(B, [A, B], 0.0)
    rounds = ReceiveRounds(10.0, failures)
    assert rounds.pause([A, B], 1.0) == 0.0
    assert rounds.pause([A, B], 10.0) is None  # … and is no error while another answers


@pytest.mark.parametrize(
    ("error", "now", "pause"),
    [(CUT, 1.0, FAILURE_SECONDS), (BUSY, 1.0, 2.0), (BUSY, 9.9, 0.1), (CUT, 9.9, 0.1)],
)
def test_where_all_fail_there_is_a_pause_within_the_time(
    error: ErucaError, now: float, pause: float
) -> None:
    rounds = second_round(10.0, (A, error), (B, BUSY))

    assert rounds.pause([A, B], now) == pytest.approx(pause)


def test_where_all_still_fail_at_the_end_the_last_says_why() -> None:
    rounds = second_round(10.0, (A, CUT), (B, BUSY))

    with pytest.raises(UnavailableError, match="busy"):
        rounds.pause([A, B], 10.0)


def test_who_answers_again_has_not_failed() -> None:
    failures = failures_of((A, CUT), (B, BUSY))

    failures.answered(B)

    assert not failures.is_passed_over(B, [A, B], 0.0)
    assert ReceiveRounds(10.0, failures).pause([A, B], 10.0) is None


def test_one_that_hangs_is_left_alone_for_longer_while_another_answers() -> None:
    failures = failures_of((A, HUNG))

    assert failures.is_passed_over(A, [A, B], HANG_SECONDS - 0.1)
    assert not failures.is_passed_over(A, [A, B], HANG_SECONDS)
    assert not failures.is_passed_over(A, [A], 0.1)
    failures.failed(B, CUT, 0.0)
    assert not failures.is_passed_over(A, [A, B], 0.1)


def test_who_is_not_asked_any_more_is_forgotten() -> None:
    failures = failures_of((A, BUSY), (B, HUNG))

    failures.keep_only([B])

    assert not failures.is_passed_over(A, [A, B], 0.1)
    assert failures.is_passed_over(B, [A, B], 0.1)


def test_a_topic_that_no_broker_knows_is_not_waited_for() -> None:
    missing = TopicNotFoundError("no topic")
    failures = failures_of((A, missing))
    rounds = ReceiveRounds(10.0, failures)

    assert rounds.pause([A, B], 0.0) == 0.0  # the other one may
    failures.failed(B, missing, 0.0)
    with pytest.raises(TopicNotFoundError):
        rounds.pause([A, B], 0.0)
