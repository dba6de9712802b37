"""A budget refuses what does not fit, and nothing else."""

from __future__ import annotations

import pytest

from eruca.contract.errors import OverloadedError
from eruca_broker.core.budget import Budget


def test_what_fits_is_taken_and_what_is_given_back_fits_again() -> None:
    budget = Budget("bytes_in_flight_max", 10)

    budget.take(6)
    budget.take(4)
    with pytest.raises(OverloadedError):
        budget.take(1)
    budget.give(4)
    budget.take(4)

    assert (budget.used, budget.refused) == (10, 1)


def test_a_refusal_names_the_limit_and_when_to_come_back() -> None:
    budget = Budget("bytes_in_flight_max", 10)

    with pytest.raises(OverloadedError, match="bytes_in_flight_max: 0 of 10") as refusal:
        budget.take(11)

    assert refusal.value.retry_after_seconds == 1
    assert budget.used == 0


def test_no_more_can_be_given_back_than_was_taken() -> None:
    budget = Budget("bytes_in_flight_max", 10)
    budget.take(1)

    with pytest.raises(AssertionError):
        budget.give(2)
