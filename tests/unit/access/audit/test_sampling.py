"""A few refusals and uses of credentials of each caller get a record; the others are counted."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from eruca_access.audit.sampling import (
    CALLERS_MAX,
    EVERYBODY_ELSE,
    REFUSALS_PER_WINDOW,
    REFUSALS_WINDOW_SECONDS,
    USE_SECONDS,
    FirstUses,
    RefusalSampler,
)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0, REFUSALS_WINDOW_SECONDS / 2)), max_size=200
    )
)
def test_every_refusal_is_written_or_counted_once(events: list[tuple[str, float]]) -> None:
    sampler, now = RefusalSampler(), 0.0
    asked: Counter[str] = Counter()
    told: Counter[str] = Counter()
    for caller, pause in events:
        now += pause
        asked[caller] += 1
        told[caller] += sampler.writes(caller, now)
        for left_out in sampler.ended(now):
            told[left_out.caller] += left_out.refusal_count
    for left_out in sampler.ended(now + REFUSALS_WINDOW_SECONDS):
        told[left_out.caller] += left_out.refusal_count
    assert told == asked


def test_a_caller_gets_a_few_records_in_a_window() -> None:
    sampler = RefusalSampler()
    written = [sampler.writes("a", 0.0) for _ in range(3 * REFUSALS_PER_WINDOW)]
    assert sum(written) == REFUSALS_PER_WINDOW
    assert sampler.writes("b", 0.0), "another caller has records of its own"
    assert sampler.writes("a", REFUSALS_WINDOW_SECONDS), "a new window begins"


def test_more_callers_than_windows_share_one() -> None:
    sampler = RefusalSampler()
    written = sum(sampler.writes(f"caller {number}", 0.0) for number in range(2 * CALLERS_MAX))
    assert written == CALLERS_MAX + REFUSALS_PER_WINDOW
    [left_out] = sampler.ended(REFUSALS_WINDOW_SECONDS)
    assert left_out == (EVERYBODY_ELSE, CALLERS_MAX - REFUSALS_PER_WINDOW)


def test_a_credential_is_new_once_an_hour_from_each_address() -> None:
    uses = FirstUses()
    assert uses.use("key:a", "10.0.0.1", 0.0) == (True, USE_SECONDS)
    assert uses.use("key:a", "10.0.0.1", USE_SECONDS - 1) == (False, USE_SECONDS)
    assert uses.use("key:a", "10.0.0.2", 1.0) == (True, USE_SECONDS + 1)
    assert uses.use("key:a", "10.0.0.1", USE_SECONDS) == (True, 2 * USE_SECONDS)
