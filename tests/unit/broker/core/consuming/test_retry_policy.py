"""The time of a retry, as far as it is our own rule; the vectors test RocketMQ's rules."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from eruca_broker.core.consuming.retry_policy import Verdict, policy_delay_ms, verdict
from eruca_broker.core.records.scheduled import Wait
from eruca_broker.core.state.group_events import CustomizedDelays, ExponentialDelays

NOW = 1_700_000_000_000


def of(times: int, **more: object) -> Verdict:
    arguments: dict[str, object] = {"times_max": 16, "policy": None, "now_ms": NOW} | more
    return verdict(times, **arguments)  # type: ignore[arg-type]  # of its types


def test_sixteen_retries_go_up_the_levels_and_take_almost_five_hours() -> None:
    waits = [of(times).wait for times in range(16)]

    assert waits == [Wait(level=level) for level in range(3, 19)]
    total = sum(wait.time_ms(0) for wait in waits if wait is not None)
    assert total == (4 * 60 + 45) * 60_000 + 40_000
    assert of(16) == Verdict(17, None)


@given(
    times=st.integers(0, 40), times_max=st.integers(0, 40), level=st.integers(-1, 18) | st.none()
)
def test_what_was_tried_often_enough_is_dead_whatever_is_asked_for(
    times: int, times_max: int, level: int | None
) -> None:
    result = of(times, times_max=times_max, level=level)

    assert result.reconsume_times == times + 1
    assert (result.wait is None) == (times >= times_max or level == -1)


def test_a_delay_asked_for_wins_over_the_policy() -> None:
    policy = CustomizedDelays((7.0,))

    assert of(0, policy=policy).wait == Wait(deliver_at_ms=NOW + 7_000)
    assert of(0, policy=policy, level=0).wait == Wait(deliver_at_ms=NOW + 7_000)
    assert of(0, policy=policy, level=5).wait == Wait(level=5)
    assert of(0, policy=policy, delay_seconds=0.25).wait == Wait(deliver_at_ms=NOW + 250)
    assert of(0, level=25).wait == Wait(level=18)


def test_listed_delays_are_taken_from_the_first_and_the_last_one_stays() -> None:
    policy = CustomizedDelays((0.5, 10.0, 60.0))

    assert [policy_delay_ms(policy, times) for times in range(5)] == [
        500, 10_000, 60_000, 60_000, 60_000,
    ]  # fmt: skip


@given(
    initial=st.floats(0, 4e6),
    multiplier=st.floats(1, 100),
    longest=st.floats(0, 4e6),
    times=st.integers(0, 1_000),
)
def test_a_growing_delay_never_exceeds_its_maximum_and_never_shrinks(
    initial: float, multiplier: float, longest: float, times: int
) -> None:
    policy = ExponentialDelays(initial, multiplier, longest)

    delays = [policy_delay_ms(policy, times), policy_delay_ms(policy, times + 1)]

    assert 0 <= delays[0] <= delays[1] <= round(longest * 1000)


def test_a_delay_that_64_bits_do_not_hold_is_the_longest() -> None:
    policy = ExponentialDelays(2**22 / 1000, 2**6, 7_200)  # after 7 times 2**64 ms

    assert [policy_delay_ms(policy, times) for times in (6, 7, 8)] == [7_200_000] * 3


@pytest.mark.parametrize(("times", "seconds"), [(0, 5), (1, 10), (4, 80), (11, 7_200)])
def test_the_default_growth_doubles_five_seconds(times: int, seconds: int) -> None:
    assert policy_delay_ms(ExponentialDelays(5, 2, 7_200), times) == seconds * 1_000
