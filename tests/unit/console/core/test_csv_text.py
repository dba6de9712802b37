"""Lists as CSV."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

import pytest

from eruca_console.core.csv_text import csv_text


def test_cells_are_quoted_unknown_is_empty_and_times_are_those_of_the_api() -> None:
    text = csv_text(("name", "lag", "at"), [('a,"b"', None, datetime(2026, 1, 2, tzinfo=UTC))])

    assert list(csv.reader(io.StringIO(text))) == [
        ["name", "lag", "at"],
        ['a,"b"', "", "2026-01-02T00:00:00.000Z"],
    ]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@cmd", "\tx", "\rx"])
def test_a_name_is_never_a_formula(name: str) -> None:
    [_, [cell, number]] = csv.reader(io.StringIO(csv_text(("n", "v"), [(name, -1)]), newline=""))

    assert cell == f"'{name}"
    assert number == "-1"
