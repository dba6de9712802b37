"""Numbers as programs give them: refused by name and value, whatever stands in their place."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from eruca.contract.errors import ValidationError
from eruca.core.checked_numbers import (
    check_above_zero,
    check_count,
    check_range,
    check_wait,
    checked_seconds,
)

NOT_A_NUMBER: list[object] = ["3", None, timedelta(seconds=1), b"3", [], math.nan]


@pytest.mark.parametrize("value", NOT_A_NUMBER)
def test_what_is_no_number_is_refused_by_name_and_value(value: Any) -> None:  # noqa: ANN401
    for refuse in (
        lambda: check_count("n", value, 0),
        lambda: check_range("n", value, 0),
        lambda: check_range("n", value, 0, 9),
        lambda: check_above_zero("n", value),
        lambda: check_wait(value, "n"),
        lambda: checked_seconds(value, "n"),
    ):
        with pytest.raises(ValidationError) as refused:
            refuse()
        assert refused.value.detail.startswith("n: ")
        assert repr(value) in refused.value.detail


@pytest.mark.parametrize("value", [-1, -0.5, -math.inf])
def test_less_than_nothing_is_refused(value: float) -> None:
    for refuse in (
        lambda: check_range("n", value, 0),
        lambda: check_above_zero("n", value),
        lambda: check_wait(value, "n"),
        lambda: checked_seconds(value, "n"),
    ):
        with pytest.raises(ValidationError, match=rf"^n: expected .*, found {value}\b"):
            refuse()


def test_limits_are_told_in_all_of_their_digits() -> None:
    with pytest.raises(
        ValidationError, match=r"n: expected 1 to 1099511627776, found 0 \(give n from 1"
    ):
        check_count("n", 0, 1, 2**40)
    with pytest.raises(
        ValidationError, match=r"n: expected 0\.25 to 9, found 9\.5 \(give n from 0\.25 to 9\)$"
    ):
        check_range("n", 9.5, 0.25, 9.0)
    with pytest.raises(
        ValidationError, match=r"n: expected 0 or more, found -1 \(give n of 0 or more\)$"
    ):
        check_range("n", -1, 0.0)


def test_whatever_is_a_number_is_taken() -> None:
    check_count("n", 3, 0, 3)
    check_range("n", 0.5, 0, 1)
    check_above_zero("n", math.inf)
    check_wait(math.inf)
    check_wait(0)

    assert checked_seconds(0.5, "n") == 0.5
