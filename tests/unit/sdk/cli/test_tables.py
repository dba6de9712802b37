"""Tables on a terminal: whatever its width, no id and no time is broken."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from eruca.cli.tables import WholeWords

HEADINGS = ["deliver at", "message id", "topic", "tries"]
AT = "2026-11-01T12:00:00.000Z"
ROWS: list[tuple[object, ...]] = [
    (AT, "7F000001" * 4, "orders", 1),
    (None, "0A000001" * 4, "parcels to be delivered", 12),
]


def shown(width: int) -> list[str]:
    text = StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    console.print(WholeWords(HEADINGS, ROWS), crop=False)
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("width", range(1, 140))
def test_every_word_is_whole_at_every_width(width: int) -> None:
    words = " ".join(shown(width)).split()

    for row in ROWS:
        for cell in row:
            for word in str("-" if cell is None else cell).split():
                assert word in words
    for heading in HEADINGS:
        assert set(heading.split()) <= set(words)


def test_a_table_that_fits_has_a_line_for_each_row_and_numbers_to_the_right() -> None:
    heading, first, second = shown(120)

    assert heading.split("  ")[0] == "deliver at"
    assert heading.endswith("tries")
    assert first.endswith("    1")
    assert second.endswith("   12")


def test_rows_of_a_table_that_does_not_fit_are_records() -> None:
    assert shown(80) == [
        f"deliver at  {AT}",
        f"message id  {'7F000001' * 4}",
        "topic       orders",
        "tries       1",
        "",
        "deliver at  -",
        f"message id  {'0A000001' * 4}",
        "topic       parcels to be delivered",
        "tries       12",
    ]
