"""Times: there and back, whatever a producer wrote."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from eruca_txn_checker.core.moments import moment, moment_or_none, ms_of


@given(ms=st.integers(0, 10**14))
def test_milliseconds_come_back(ms: int) -> None:
    assert ms_of(moment(ms)) == ms


@given(ms=st.integers(-(2**63), 2**63 - 1))
def test_any_number_is_some_moment(ms: int) -> None:
    assert moment(ms).tzinfo is UTC


def test_none_is_no_moment() -> None:
    assert moment_or_none(None) is None
    assert moment_or_none(0) == datetime(1970, 1, 1, tzinfo=UTC)
