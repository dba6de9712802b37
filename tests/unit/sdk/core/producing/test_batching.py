"""Lingering: a lone message never waits, a busy producer fills its batches, two take turns."""

from __future__ import annotations

import pytest

from eruca.contract.errors import ValidationError
from eruca.contract.limits import BATCH_COUNT_MAX, BODY_SIZE_MAX
from eruca.core.producing.batching import (
    TURN_BYTES,
    TURN_COUNT,
    Batching,
    full_at,
    linger_seconds,
)

SMALL = Batching(count_max=100, bytes_max=4_000)
LARGE = Batching(count_max=900, bytes_max=2_000_000)


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("waited", [0.0, 5.0])
def test_a_batch_leaves_at_once_while_nothing_is_under_way(*, is_full: bool, waited: float) -> None:
    assert wait(is_full=is_full, in_flight=0, waited=waited) == 0


def test_a_full_batch_leaves_at_once_while_there_is_room() -> None:
    assert wait(is_full=True, in_flight=3) == 0


@pytest.mark.parametrize("is_full", [True, False])
def test_no_batch_leaves_beyond_the_limit_however_long_it_has_waited(*, is_full: bool) -> None:
    assert wait(is_full=is_full, in_flight=4, waited=100.0) is None


@pytest.mark.parametrize(("waited", "left"), [(0.0, 0.5), (0.25, 0.25), (0.5, 0.0), (9.0, 0.0)])
def test_a_batch_lingers_while_others_are_under_way(waited: float, left: float) -> None:
    assert wait(is_full=False, in_flight=1, waited=waited) == left


def wait(*, is_full: bool, in_flight: int, waited: float = 0.0) -> float | None:
    return linger_seconds(
        is_full=is_full,
        in_flight=in_flight,
        in_flight_max=4,
        waited_seconds=waited,
        linger_seconds_max=0.5,
    )


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_batch_takes_turns_with_another_one_while_few_are_ahead_of_it(ahead: int) -> None:
    assert full_at(Batching(), ahead, takes_turns=True) == (TURN_COUNT, TURN_BYTES)
    assert full_at(SMALL, ahead, takes_turns=True) == (100, 4_000)


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_batch_is_full_at_its_limits_where_no_other_may_be_under_way(ahead: int) -> None:
    assert full_at(LARGE, ahead, takes_turns=False) == (900, 2_000_000)


@pytest.mark.parametrize("ahead", [2, 9])
def test_a_batch_is_full_at_its_limits_behind_two_others(ahead: int) -> None:
    assert full_at(LARGE, ahead, takes_turns=True) == (900, 2_000_000)


@pytest.mark.parametrize(
    ("count_max", "size_max"), [(0, 1), (BATCH_COUNT_MAX + 1, 1), (1, 0), (1, BODY_SIZE_MAX + 1)]
)
def test_limits_keep_within_the_contracts(count_max: int, size_max: int) -> None:
    with pytest.raises(ValidationError):
        Batching(count_max=count_max, bytes_max=size_max)
