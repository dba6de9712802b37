"""Restart delays double up to a limit, and a long life forgets earlier deaths."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_deploy.backoff import (
    DELAY_SECONDS_MAX,
    FIRST_DELAY_SECONDS,
    SETTLED_SECONDS,
    deaths_in_a_row,
    exit_text,
    restart_delay_seconds,
)


def test_the_first_delays_double() -> None:
    assert [restart_delay_seconds(deaths) for deaths in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]


@given(st.integers(1, 10**9))
def test_a_delay_never_shrinks_and_never_exceeds_its_limit(deaths: int) -> None:
    delay = restart_delay_seconds(deaths)

    assert FIRST_DELAY_SECONDS <= delay <= restart_delay_seconds(deaths + 1) <= DELAY_SECONDS_MAX


def test_a_child_that_lived_long_starts_counting_again() -> None:
    assert deaths_in_a_row(7, SETTLED_SECONDS) == 1
    assert deaths_in_a_row(7, SETTLED_SECONDS - 0.001) == 8


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-62, "was killed by signal 62"),
    ],
)
def test_a_return_code_is_put_in_words(code: int, text: str) -> None:
    assert exit_text(code) == text
