"""A budget refuses what does not fit, and nothing else."""

from __future__ import annotations

import pytest

from eruca.contract.errors import OverloadedError
from eruca_chassis.admission.budget import RESERVE_SIZE, Budget, client_max_of, client_of


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


def test_one_client_may_hold_its_share_and_leaves_the_rest_to_others() -> None:
    budget = Budget("bytes_in_flight_max", 10, client_max=6)

    budget.take(6, "a")
    with pytest.raises(OverloadedError, match="this client's requests use 6 of its share of 6"):
        budget.take(1, "a")
    budget.take(4, "b")
    budget.give(6, "a")
    budget.take(5, "a")

    assert (budget.used, budget.refused) == (9, 1)


def test_no_more_can_be_given_back_than_was_taken() -> None:
    budget = Budget("bytes_in_flight_max", 10)
    budget.take(1)
    budget.take(5, "another")

    with pytest.raises(AssertionError):
        budget.give(2)


def test_a_budget_is_full_once_hardly_anything_is_left() -> None:
    budget = Budget("bytes_in_flight_max", 64_000)

    budget.take(63_000)
    assert budget.exhaustion() is None
    budget.take(1)
    why = budget.exhaustion()
    assert why is not None
    assert "bytes_in_flight_max is exhausted: 63001 of 64000" in why.detail
    budget.give(1)
    assert budget.exhaustion() is None


@pytest.mark.parametrize(
    ("share", "largest", "allowed"),
    [(1, 10, 10_000), (0.5, 10, 5_000), (0.01, 900, 900 + RESERVE_SIZE)],
)
def test_a_client_may_hold_its_share_and_at_least_the_largest_request(
    share: float, largest: int, allowed: int
) -> None:
    assert client_max_of(10_000, share, largest) == allowed


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a name", "a name"),
    ],
)
def test_a_client_is_an_address_or_the_network_that_its_owner_has(host: str, client: str) -> None:
    assert client_of((host, 1234)) == client_of((host, 4321)) == client


def test_who_is_not_known_is_one_client() -> None:
    assert client_of(None) == ""
