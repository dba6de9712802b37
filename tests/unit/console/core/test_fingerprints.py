"""Fingerprints of errors."""

from __future__ import annotations

import pytest

from eruca_console.core.fingerprints import SIZE_MAX, fingerprint


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (None, ""),
        (" \n ", ""),
        ("card 4711 was declined", "card # was declined"),
        ("order 1b4e28ba-2fa1-11d2-883f-0016d3cca427 at 0x7f3a", "order # at #"),
        ("no answer within 3 s\nTraceback …", "no answer within # s"),
        ("the bank is away", "the bank is away"),
        ("x" * 500, "x" * SIZE_MAX),
    ],
)
def test_numbers_make_no_difference(error: str | None, shown: str) -> None:
    assert fingerprint(error) == shown
