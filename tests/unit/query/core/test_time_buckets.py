"""Stretches of time: they cover what was asked for, without a gap and without an overlap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca_query.core.time_buckets import TimeBuckets


@given(st.integers(0, 10**13), st.integers(0, 10**11), st.integers(1, 500))
def test_each_moment_is_in_one_bucket(from_ms: int, span_ms: int, count_max: int) -> None:
    buckets = TimeBuckets.of(from_ms, from_ms + span_ms, count_max)

    assert 1 <= buckets.count <= count_max
    assert buckets.index_of(from_ms) == 0
    assert buckets.index_of(from_ms + span_ms) == buckets.count - 1
    assert buckets.index_of(from_ms - 1) is None
    assert buckets.index_of(from_ms + span_ms + 1) is None
    for index in (1, buckets.count - 1):
        if 0 < index < buckets.count:
            assert buckets.index_of(buckets.start_of(index)) == index
            assert buckets.index_of(buckets.start_of(index) - 1) == index - 1


def test_an_hour_in_sixty_buckets_has_minutes() -> None:
    buckets = TimeBuckets.of(0, 3_600_000 - 1, 60)

    assert (buckets.width_ms, buckets.count) == (60_000, 60)
