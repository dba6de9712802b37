"""The time in which something is asked: never more than the time that passed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca_console.core.busy_time import WAIT_SECONDS_MAX, BusyTime

TICK = WAIT_SECONDS_MAX / 4
STEPS = st.lists(st.tuples(st.sampled_from(["begin", "end", "pass"]), st.integers(0, 9)))


@given(steps=STEPS)
def test_it_is_the_time_with_a_question_under_way(steps: list[tuple[str, int]]) -> None:
    ticks = under_way = expected = since_latest = 0
    busy = BusyTime(lambda: ticks * TICK)
    for step, count in steps:
        if step == "begin":
            busy.begin()
            under_way, since_latest = under_way + 1, 0
        elif step == "end" and under_way:
            busy.end()
            under_way -= 1
        elif step == "pass":
            for _ in range(count):
                expected += under_way > 0 and since_latest < 4
                ticks, since_latest = ticks + 1, since_latest + 1
        assert busy.seconds == expected * TICK


def test_many_questions_at_a_time_count_once() -> None:
    now = 0.0
    busy = BusyTime(lambda: now)
    for _ in range(200):
        busy.begin()
    now = WAIT_SECONDS_MAX / 2
    for _ in range(200):
        busy.end()

    assert busy.seconds == WAIT_SECONDS_MAX / 2


def test_a_broker_that_is_away_counts_for_a_moment_only() -> None:
    now = 0.0
    busy = BusyTime(lambda: now)
    busy.begin()
    now = 30.0
    busy.end()

    assert busy.seconds == WAIT_SECONDS_MAX
