"""Check ids: the same for the same check, another for any other, and allowed in a path."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from eruca.contract.transactions import CheckId
from eruca_txn_checker.core.check_ids import check_id_of

checks = st.tuples(st.text(min_size=1), st.text(min_size=1), st.integers(1, 100))


@given(check=checks)
def test_an_id_is_allowed_by_the_contract_and_stays(check: tuple[str, str, int]) -> None:
    made = check_id_of(*check)

    assert TypeAdapter(CheckId).validate_python(made) == made
    assert check_id_of(*check) == made


@given(one=checks, other=checks)
def test_different_checks_have_different_ids(
    one: tuple[str, str, int], other: tuple[str, str, int]
) -> None:
    """Names hold no line ends: brokers and transactions are named without white space."""
    one, other = ((a.replace("\n", ""), b.replace("\n", ""), n) for a, b, n in (one, other))

    assert (check_id_of(*one) == check_id_of(*other)) is (one == other)
