"""Texts of cells, on the screen and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from eruca_spark.charts import printable
from eruca_spark.reports.findings import moment


def shown_column(values: Sequence[Any]) -> list[str]:
    """Return the texts of a column's cells: decimals for all of its numbers, or for none."""
    has_fractions = any(isinstance(value, float) and not value.is_integer() for value in values)
    return [shown(value, decimals=2 if has_fractions else 0) for value in values]


def shown(value: Any, *, decimals: int = 2) -> str:  # noqa: ANN401 - whatever a cell may hold
    """Return a cell's text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.{decimals}f}"
    if isinstance(value, datetime):
        return moment(value)
    return printable(str(value))
