"""A list as a file of comma-separated values (RFC 4180).

Spreadsheets run a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula. Names here may
come from anybody who may create a topic, so such a text gets an apostrophe before it, as OWASP's
"CSV Injection" recommends. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from eruca_console.core.figures import exact

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the file's text; None is an empty cell, and a time is written as the API does."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(headings)
    for row in rows:
        assert len(row) == len(headings), "a row has a cell for each heading"
        writer.writerow([_cell(value) for value in row])
    return text.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return exact(value)
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
