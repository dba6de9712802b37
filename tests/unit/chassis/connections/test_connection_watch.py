"""Slow clients: the conclusions of the watch from each sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from eruca.contract.errors import ErucaError
from eruca_chassis.connections.connection_watch import (
    BODY_WINDOW_SECONDS,
    REFUSED_CONNECTIONS_MAX,
    REFUSED_FILES_MAX,
    Admission,
    ConnectionLimits,
    ConnectionWatch,
    Unfinished,
)

RATE = 1_000
LIMITS = ConnectionLimits(
    connections_max=10,
    head_seconds=10,
    request_seconds=30,
    bytes_per_second_min=RATE,
    unread_seconds=20,
    unread_bytes_max=1_000_000,
)
REQUEST = object()


class Watched:
    """A connection in the state that the test says, second by second."""

    def __init__(self, state_at: Callable[[int], Unfinished | None]) -> None:
        self.ended: str | None = None
        self.state_at = state_at
        self.second = 0

    def unread_size(self) -> int:
        return 0

    def unfinished_state(self) -> Unfinished | None:
        return self.state_at(self.second)

    def close_idle(self, now: float) -> None:
        pass

    def idle_since(self) -> float | None:
        return None

    def recheck(self, now: float) -> None:
        pass  # it waits for nothing

    def make_room(self) -> None:
        raise AssertionError("it is never idle")

    def cut(self, why: str) -> None:
        self.ended = why

    def refuse(self, error: ErucaError) -> None:
        assert error.status == 408
        self.ended = error.detail


def ended_in(
    state_at: Callable[[int], Unfinished | None], limits: ConnectionLimits = LIMITS
) -> tuple[int, str] | None:
    """Return in which second of a hundred the connection is ended, and why; None: in none."""
    watch, connection = ConnectionWatch(limits), Watched(state_at)
    watch.connections.add(connection)
    for second in range(100):
        connection.second = second
        watch.sweep(1e6 + second)
        if connection.ended is not None:
            return second, connection.ended
    return None


def head(_second: int) -> Unfinished:
    return Unfinished(0, REQUEST, is_head=True)


def body(size: int) -> Unfinished:
    return Unfinished(0, REQUEST, size)


def test_a_head_is_waited_for_as_long_as_is_said() -> None:
    ended = ended_in(head)

    assert ended is not None
    assert ended[0] == 11
    assert "head_seconds, 10 s" in ended[1]


def test_a_request_has_no_more_time_than_a_whole_one() -> None:
    ended = ended_in(lambda second: body(second * RATE * 100))

    assert ended is not None
    assert ended[0] == 31
    assert "request_seconds, 30 s" in ended[1]


@pytest.mark.parametrize(
    ("come_at", "second"),
    [
        pytest.param(lambda _: 0, 6, id="nothing comes"),
        pytest.param(lambda _: 10**6, 6, id="much has come at once"),
        pytest.param(lambda second: second, 6, id="a byte each second"),
        pytest.param(lambda second: second * (RATE - 100), 6, id="nearly enough"),
        pytest.param(lambda second: min(second, 8) * RATE, 15, id="enough, and then nothing"),
        pytest.param(lambda second: (second > 3) * 10**6, 10, id="much, and then nothing"),
    ],
)
def test_a_body_that_comes_too_slowly_is_given_up(
    come_at: Callable[[int], int], second: int
) -> None:
    ended = ended_in(lambda now: body(come_at(now)))

    assert ended is not None
    assert ended[0] <= second
    assert f"bytes_per_second_min, {RATE}, over {BODY_WINDOW_SECONDS:g} s" in ended[1]


@pytest.mark.parametrize(
    "come_at",
    [
        pytest.param(lambda second: second * RATE, id="as fast as it must"),
        pytest.param(lambda second: second // 4 * RATE * 10, id="with pauses"),
    ],
)
def test_a_body_may_be_as_slow_as_the_rate(come_at: Callable[[int], int]) -> None:
    ended = ended_in(lambda second: None if second > 29 else body(come_at(second)))

    assert ended is None


def test_a_body_begins_its_time_where_the_head_ends() -> None:
    ended = ended_in(lambda second: head(second) if second < 9 else body(0))

    assert ended is not None
    assert 9 + BODY_WINDOW_SECONDS < ended[0] <= 9 + BODY_WINDOW_SECONDS + 1


def test_no_rate_is_asked_for_where_none_is_set() -> None:
    ended = ended_in(lambda _: body(0), replace(LIMITS, bytes_per_second_min=0))

    assert ended is not None
    assert "request_seconds" in ended[1]


def test_each_request_has_its_own_time() -> None:
    requests = [object() for _ in range(50)]

    assert ended_in(lambda second: Unfinished(0, requests[second // 2], 0)) is None


@pytest.mark.parametrize(
    ("read_at", "is_counted", "is_cut"),
    [
        pytest.param(lambda _: 0, True, True, id="nothing is read"),
        pytest.param(lambda second: second, True, True, id="a byte each second"),
        pytest.param(lambda second: second * RATE, True, False, id="as fast as it must be"),
        pytest.param(lambda _: 0, False, True, id="nothing of another answer"),
        pytest.param(lambda second: second, False, False, id="anything of another answer"),
    ],
)
def test_an_answer_must_be_read(
    read_at: Callable[[int], int], is_counted: bool, is_cut: bool
) -> None:
    ended = ended_in(
        lambda second: Unfinished(
            10**6 - read_at(second), REQUEST, read_at(second), is_counted=is_counted
        )
    )

    assert (ended is not None) is is_cut
    if ended is not None:
        assert ended[0] == 21
        assert "unread_seconds" in ended[1]


class Idle(Watched):
    """A connection that has been idle since a time, or is not; closing takes it off the watch."""

    def __init__(self, watch: ConnectionWatch, since: float | None) -> None:
        super().__init__(lambda _: None)
        self.watch = watch
        self.since = since
        watch.connections.add(self)

    def idle_since(self) -> float | None:
        return self.since

    def recheck(self, now: float) -> None:
        pass  # it waits for nothing

    def make_room(self) -> None:
        self.since = None  # it is being closed
        self.ended = "made room"


def full_watch(*, connections_max: int = 3, files_max: int | None = None) -> ConnectionWatch:
    limits = replace(LIMITS, connections_max=connections_max, files_max=files_max)
    return ConnectionWatch(limits, lambda: 100)


def test_connections_beyond_the_limit_are_refused_and_far_beyond_it_dropped() -> None:
    watch = full_watch()
    seen = []
    for _ in range(3 + REFUSED_CONNECTIONS_MAX + 1):
        seen.append(watch.admission(10, now=50))
        Idle(watch, None)

    assert set(seen[:3]) == {Admission.TAKEN}
    assert set(seen[3:-1]) == {Admission.REFUSED}
    assert seen[-1] is Admission.DROPPED


def test_the_one_that_was_idle_longest_makes_room_and_busy_ones_stay() -> None:
    watch = full_watch()
    younger, busy, oldest = Idle(watch, 20), Idle(watch, None), Idle(watch, 10)

    assert watch.admission(10, now=50) is Admission.TAKEN
    assert (younger.ended, busy.ended, oldest.ended) == (None, None, "made room")
    assert watch.admission(10, now=50) is Admission.TAKEN
    assert (younger.ended, busy.ended) == ("made room", None)
    assert watch.admission(10, now=50) is Admission.REFUSED


def test_one_that_was_idle_for_a_moment_or_has_work_again_is_spared() -> None:
    watch = full_watch()
    fresh, again, _ = Idle(watch, 49.5), Idle(watch, 30), Idle(watch, 20)
    assert watch.admission(10, now=50) is Admission.TAKEN
    again.since = None

    assert watch.admission(10, now=50) is Admission.REFUSED
    assert (fresh.ended, again.ended) == (None, None)


@pytest.mark.parametrize(
    ("files_max", "descriptor", "admission"),
    [
        (1_000, 1_000 - 100 - REFUSED_FILES_MAX - 1, Admission.TAKEN),
        (1_000, 1_000 - 100 - REFUSED_FILES_MAX, Admission.REFUSED),
        (1_000, 1_000 - 100 - 1, Admission.REFUSED),
        (1_000, 1_000 - 100, Admission.DROPPED),
        (100, 24, Admission.TAKEN),
        (100, 25, Admission.REFUSED),
        (None, 10**6, Admission.TAKEN),
    ],
)
def test_descriptors_that_the_service_needs_are_left_to_it(
    files_max: int | None, descriptor: int, admission: Admission
) -> None:
    watch = full_watch(files_max=files_max)

    assert watch.admission(descriptor, now=50) is admission


def test_an_idle_connection_makes_room_where_descriptors_run_out() -> None:
    watch = full_watch(files_max=1_000)
    idle = Idle(watch, 10)

    assert watch.admission(900, now=50) is Admission.TAKEN
    assert idle.ended == "made room"


def test_while_the_service_is_away_nobody_is_taken() -> None:
    watch = full_watch()
    watch.is_away = True

    assert watch.admission(10, now=50) is Admission.DROPPED
