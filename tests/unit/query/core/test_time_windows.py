"""Windows: everything is looked into once, the newest first, a few chunks at a time."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from eruca_query.core.time_windows import ChunkSpan, windows

FOREVER = 2**63 - 1
times = st.integers(0, 40)


@st.composite
def span_lists(draw: st.DrawFn) -> list[ChunkSpan]:
    ends = draw(st.lists(st.tuples(times, times).map(sorted), max_size=20))
    return [ChunkSpan(number, first, last) for number, (first, last) in enumerate(ends)]


@given(span_lists(), times, times, st.integers(1, 5))
def test_every_moment_of_every_chunk_is_in_exactly_one_window(
    spans: list[ChunkSpan], one: int, other: int, chunks_max: int
) -> None:
    from_ms, to_ms = sorted((one, other))
    looked_at = [
        (chunk, ms)
        for window in windows(spans, from_ms=from_ms, to_ms=to_ms, chunks_max=chunks_max)
        for chunk in window.chunks
        for ms in range(window.from_ms, window.to_ms + 1)
    ]

    held = {
        (span.chunk, ms)
        for span in spans
        for ms in range(max(span.first_ms, from_ms), min(span.last_ms, to_ms) + 1)
    }
    assert held <= set(looked_at)
    assert len(looked_at) == len(set(looked_at))


@given(span_lists(), st.integers(1, 5))
def test_windows_go_back_in_time_without_overlapping(
    spans: list[ChunkSpan], chunks_max: int
) -> None:
    found = list(windows(spans, from_ms=0, to_ms=FOREVER, chunks_max=chunks_max))

    for later, earlier in itertools.pairwise(found):
        assert earlier.to_ms < later.from_ms
    assert all(window.from_ms <= window.to_ms for window in found)


@given(st.integers(1, 60), st.integers(1, 8))
def test_no_window_has_more_chunks_than_asked_for_where_they_follow_each_other(
    count: int, chunks_max: int
) -> None:
    spans = [ChunkSpan(n, 10 * n, 10 * n + 9) for n in range(count)]

    found = list(windows(spans, from_ms=0, to_ms=FOREVER, chunks_max=chunks_max))

    assert all(len(window.chunks) <= chunks_max for window in found)
    assert [chunk for window in found for chunk in window.chunks] == list(reversed(range(count)))


def test_without_chunks_there_is_nothing_to_look_into() -> None:
    assert list(windows([], from_ms=0, to_ms=FOREVER, chunks_max=4)) == []
    assert list(windows([ChunkSpan(1, 5, 6)], from_ms=7, to_ms=9, chunks_max=4)) == []
