"""Statistics of calls: the sliding sums beside a model that keeps every call."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca.core.call_statistics import (
    BUCKET_COUNT,
    HOUR_BUCKET_SECONDS,
    MINUTE_BUCKET_SECONDS,
    OTHERS,
    SERIES_MAX,
    ClientStatistics,
    Series,
    SlidingSums,
    Sums,
    Tally,
)

STEPS = st.lists(
    st.tuples(
        st.floats(0, 40, allow_nan=False), st.integers(1, 9), st.integers(0, 9), st.booleans()
    ),
    max_size=60,
)


@given(began=st.floats(0, 1e6), bucket_seconds=st.sampled_from([5, 300]), steps=STEPS)
def test_a_window_has_the_calls_of_its_buckets(
    began: float, bucket_seconds: int, steps: list[tuple[float, int, int, bool]]
) -> None:
    sliding = SlidingSums(bucket_seconds, began)
    calls: list[tuple[float, int, int]] = []
    now = began
    for pause, messages, failed, is_read in steps:
        now += pause
        sliding.add(Sums(1, messages, failed, 0.25), now)
        calls.append((now, messages, failed))
        if is_read:
            now += pause
        first = int(now // bucket_seconds) - BUCKET_COUNT + 1
        kept = [one for one in calls if one[0] // bucket_seconds >= first]

        window = sliding.window(now)

        assert window.call_count == len(kept)
        assert window.message_count == sum(one[1] for one in kept)
        assert window.failed_count == sum(one[2] for one in kept)
        assert window.busy_seconds == len(kept) * 0.25
        assert 0 <= window.covered_seconds <= bucket_seconds * BUCKET_COUNT
        assert now - window.covered_seconds >= began - 1e-6


@given(began=st.floats(0, 1e6), steps=STEPS)
def test_a_series_has_every_call_in_each_of_its_windows(
    began: float, steps: list[tuple[float, int, int, bool]]
) -> None:
    series = Series(began)
    minute = SlidingSums(MINUTE_BUCKET_SECONDS, began)
    hour = SlidingSums(HOUR_BUCKET_SECONDS, began)
    now = began
    for number, (pause, messages, failed, is_read) in enumerate(steps, start=1):
        now += pause
        series.add(1, messages, failed, 0.25, now)
        for sliding in (minute, hour):
            sliding.add(Sums(1, messages, failed, 0.25), now)
        if not is_read:
            continue

        read = series.statistics("send", "orders", None, now)

        assert (read.last_minute, read.last_hour) == (minute.window(now), hour.window(now))
        assert read.since_start.call_count == number


def test_a_rate_is_over_the_time_that_the_window_covers() -> None:
    now = 1_000.0
    statistics = ClientStatistics(lambda: now)
    statistics.add("send", "orders", None, Sums(2, 90, 9, 3.0))
    now = 1_030.0

    [one] = statistics.all()

    assert (one.operation, one.topic, one.group) == ("send", "orders", None)
    assert one.last_minute.messages_per_second == 3.0
    assert one.last_minute.mean_seconds == 1.5
    assert one.last_minute == one.last_hour == one.since_start


def test_a_minute_later_only_the_hour_has_the_calls() -> None:
    now = 0.0
    statistics = ClientStatistics(lambda: now)
    statistics.add_call("pull", "orders", "billing", 40, begun_at=0.0, failed=True)
    now = 65.0

    [one] = statistics.all()

    assert one.last_minute.message_count == 0
    assert one.last_minute.mean_seconds is None
    assert (one.last_hour.message_count, one.last_hour.failed_count) == (40, 40)


def test_topics_above_the_limit_are_counted_together() -> None:
    statistics = ClientStatistics(lambda: 0.0)
    for number in range(SERIES_MAX + 5):
        statistics.add("send", f"topic-{number}", None, Sums(1, 2, 0, 0.0))

    by_topic = {one.topic: one.since_start.message_count for one in statistics.all()}

    assert len(by_topic) == SERIES_MAX + 1
    assert by_topic[OTHERS] == 2 * 5


class Handlers:
    """Keeps one tally."""

    def __init__(self, statistics: ClientStatistics) -> None:
        self.tally = Tally()
        self.statistics = statistics
        statistics.adopt(self)

    def move_tallies(self) -> None:
        self.statistics.add("handle", "orders", "billing", self.tally.take())


def test_a_reading_has_the_calls_that_are_only_tallied_so_far() -> None:
    statistics = ClientStatistics(lambda: 0.0)
    handlers = Handlers(statistics)
    handlers.tally.add(1, 3, 1, 0.5)

    counts = [one.since_start.message_count for _ in range(2) for one in statistics.all()]

    assert counts == [3, 3]
