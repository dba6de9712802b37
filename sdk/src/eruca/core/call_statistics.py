"""Statistics of a client's calls: sends, pulls and handlers, by topic and group.

A series has sums since the start, and sums of the last minute and the last hour. These two slide:
they are made of buckets, 12 of 5 seconds and 12 of 5 minutes. The oldest bucket is dropped whole,
so a window covers between 11 and 12 of them; its ``seconds`` say how much it covers.

Calls are accounted in batches. A handler of single messages is called very often, so its calls are
added to a :class:`Tally`, which is moved into the series once a second, and before each reading.

Concurrency rule: any thread may add and read.

Source: RocketMQ 5.3, ``ConsumerStatsManager``, ``StatsItem``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias
from weakref import WeakSet

Operation: TypeAlias = Literal["send", "pull", "handle"]

MINUTE_BUCKET_SECONDS: Final = 5
HOUR_BUCKET_SECONDS: Final = 300
assert HOUR_BUCKET_SECONDS % MINUTE_BUCKET_SECONDS == 0, "a bucket of both lies in one of an hour's"
BUCKET_COUNT: Final = 12
SERIES_MAX: Final = 1_000  # above this number, further topics share one series per operation
OTHERS: Final = "(others)"  # the topic and group of that series
_RATE_SECONDS_MIN: Final = 1.0  # a rate over less would be noise


class Sums(NamedTuple):
    """Sums over calls."""

    call_count: int = 0
    message_count: int = 0
    failed_count: int = 0  # messages of failed calls
    seconds: float = 0.0

    def plus(self, other: Sums) -> Sums:
        """Return the sums over the calls of both."""
        return Sums(
            self.call_count + other.call_count,
            self.message_count + other.message_count,
            self.failed_count + other.failed_count,
            self.seconds + other.seconds,
        )


NOTHING: Final = Sums()


@dataclass(frozen=True, slots=True)
class CallWindow:
    """The calls of a period.

    Attributes:
        covered_seconds: Length of the period; shorter than a minute or an hour for a new client.
        call_count: Number of calls; a send or a pull of a whole batch is one.
        message_count: Number of messages in them.
        failed_count: Number of messages whose calls failed; of failed pulls, which have none, the
            number of calls.
        busy_seconds: Time spent in the calls, of all threads and tasks together.
    """

    covered_seconds: float
    call_count: int
    message_count: int
    failed_count: int
    busy_seconds: float

    @property
    def messages_per_second(self) -> float:
        """The rate of messages, failed ones included."""
        return self.message_count / max(self.covered_seconds, _RATE_SECONDS_MIN)

    @property
    def mean_seconds(self) -> float | None:
        """Mean time of a call; None without calls."""
        return self.busy_seconds / self.call_count if self.call_count else None


@dataclass(frozen=True, slots=True)
class CallStatistics:
    """The statistics of one operation on one topic, by one group.

    Attributes:
        operation: ``send``, ``pull`` or ``handle``.
        topic: The topic.
        group: The producer or consumer group; None: the producer or consumer has none.
        last_minute: The calls of the last minute.
        last_hour: The calls of the last hour.
        since_start: All calls since the client's first.
    """

    operation: Operation
    topic: str
    group: str | None
    last_minute: CallWindow
    last_hour: CallWindow
    since_start: CallWindow


class SlidingSums:
    """Sums over the calls of a sliding period.

    Args:
        bucket_seconds: The time that one bucket covers.
        now: The time of the start; all times are of one clock that never goes back.
    """

    __slots__ = ("_begun_at", "_bucket_seconds", "_buckets")

    def __init__(self, bucket_seconds: int, now: float) -> None:
        self._bucket_seconds = bucket_seconds
        self._begun_at = now
        self._buckets: deque[tuple[int, Sums]] = deque()  # numbers grow

    def add(self, sums: Sums, now: float) -> None:
        """Add calls that have ended now."""
        number = int(now // self._bucket_seconds)
        if self._buckets and self._buckets[-1][0] == number:
            sums = self._buckets.pop()[1].plus(sums)
        assert not self._buckets or self._buckets[-1][0] < number, "the clock went back"
        self._buckets.append((number, sums))
        while self._buckets[0][0] <= number - BUCKET_COUNT:
            self._buckets.popleft()

    def window(self, now: float) -> CallWindow:
        """Return the sums of the period that ends now."""
        first = int(now // self._bucket_seconds) - BUCKET_COUNT + 1
        total = NOTHING
        for number, sums in self._buckets:
            if number >= first:
                total = total.plus(sums)
        return _window(total, now - max(self._begun_at, first * self._bucket_seconds))


class Series:
    """The sums of one operation, topic and group.

    Calls are added to one *open* bucket of a minute's. It is moved into the windows when the next
    one begins, and before each reading. So adding a call is cheap.
    """

    __slots__ = (
        "_begun_at",
        "_calls",
        "_failed",
        "_hour",
        "_messages",
        "_minute",
        "_number",
        "_seconds",
        "_total",
    )

    def __init__(self, now: float) -> None:
        self._begun_at = now
        self._minute = SlidingSums(MINUTE_BUCKET_SECONDS, now)
        self._hour = SlidingSums(HOUR_BUCKET_SECONDS, now)
        self._total = NOTHING
        self._number = now // MINUTE_BUCKET_SECONDS  # of the open bucket
        self._calls = self._messages = self._failed = 0
        self._seconds = 0.0

    def add(
        self, call_count: int, message_count: int, failed_count: int, seconds: float, now: float
    ) -> None:
        """Add calls that have ended now."""
        number = now // MINUTE_BUCKET_SECONDS
        if number != self._number:
            self._move_open()
            self._number = number
        self._calls += call_count
        self._messages += message_count
        self._failed += failed_count
        self._seconds += seconds

    def last_minute(self, now: float) -> CallWindow:
        """Return the sums of the last minute."""
        self._move_open()
        return self._minute.window(now)

    def _move_open(self) -> None:
        """Move the open bucket's sums into the windows; it stays open."""
        if not self._calls:
            return
        sums = Sums(self._calls, self._messages, self._failed, self._seconds)
        self._calls = self._messages = self._failed = 0
        self._seconds = 0.0
        begun_at = self._number * MINUTE_BUCKET_SECONDS
        self._minute.add(sums, begun_at)
        self._hour.add(sums, begun_at)
        self._total = self._total.plus(sums)

    def statistics(
        self, operation: Operation, topic: str, group: str | None, now: float
    ) -> CallStatistics:
        """Return the sums of all periods."""
        self._move_open()
        return CallStatistics(
            operation,
            topic,
            group,
            self._minute.window(now),
            self._hour.window(now),
            _window(self._total, now - self._begun_at),
        )


class Tally:
    """Sums over calls since they were last taken; adding to them is cheap."""

    __slots__ = ("_calls", "_failed", "_lock", "_messages", "_seconds")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._messages = self._failed = 0
        self._seconds = 0.0

    def add(self, call_count: int, message_count: int, failed_count: int, seconds: float) -> None:
        """Add calls that have ended."""
        with self._lock:
            self._calls += call_count
            self._messages += message_count
            self._failed += failed_count
            self._seconds += seconds

    def take(self) -> Sums:
        """Return the sums, and begin again at nothing."""
        with self._lock:
            sums = Sums(self._calls, self._messages, self._failed, self._seconds)
            self._calls = self._messages = self._failed = 0
            self._seconds = 0.0
        return sums


class Tallying(Protocol):
    """Keeps tallies of its calls."""

    def move_tallies(self) -> None:
        """Move the tallies into the statistics."""
        ...


class ClientStatistics:
    """The statistics of one client.

    Args:
        clock: Monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._series: dict[tuple[Operation, str, str | None], Series] = {}
        self._tallying: WeakSet[Tallying] = WeakSet()

    def adopt(self, tallying: Tallying) -> None:
        """Ask *tallying* for its tallies before each reading, as long as it lives."""
        with self._lock:
            self._tallying.add(tallying)

    def add(self, operation: Operation, topic: str, group: str | None, sums: Sums) -> None:
        """Add calls that have just ended."""
        with self._lock:
            now = self._clock()
            self._of(operation, topic, group, now).add(*sums, now)

    def add_call(
        self,
        operation: Operation,
        topic: str,
        group: str | None,
        message_count: int,
        begun_at: float,
        *,
        failed: bool = False,
    ) -> None:
        """Add one call of a batch that began at *begun_at* and has just ended."""
        failed_count = message_count if failed else 0
        with self._lock:
            now = self._clock()
            series = self._of(operation, topic, group, now)
            series.add(1, message_count, failed_count, max(now - begun_at, 0.0), now)

    def all(self) -> tuple[CallStatistics, ...]:
        """Return all statistics, sorted by operation, topic and group."""
        with self._lock:
            tallying = tuple(self._tallying)
        for one in tallying:
            one.move_tallies()
        with self._lock:
            now = self._clock()
            items = sorted(self._series.items(), key=_by)
            return tuple(series.statistics(*key, now) for key, series in items)

    def _of(self, operation: Operation, topic: str, group: str | None, now: float) -> Series:
        key = (operation, topic, group)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= SERIES_MAX:
                key = (operation, OTHERS, OTHERS)
            series = self._series.setdefault(key, Series(now))
        return series


def topic_counts(topics: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the number of messages by topic, of an answer with several queues."""
    counts: dict[str, int] = {}
    for topic, count in topics:
        counts[topic] = counts.get(topic, 0) + count
    return counts


def _by(item: tuple[tuple[Operation, str, str | None], Series]) -> tuple[str, str, str]:
    operation, topic, group = item[0]
    return operation, topic, group or ""


def _window(sums: Sums, covered_seconds: float) -> CallWindow:
    return CallWindow(max(covered_seconds, 0.0), *sums)
