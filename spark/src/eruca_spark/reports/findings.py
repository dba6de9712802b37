"""Findings: the meaning of a report's numbers, in words.

Each report has a pure function from its rows to findings, in a module of this folder. The first
finding is the report's headline. Thresholds are constants beside their use; a finding names the
number that it judges, so that a reader may disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

from eruca_spark.reports.words import N_, Words, words

Level = Literal["good", "note", "warn", "bad"]


class TableRow(Protocol):
    """A row of a table: a row of Spark, or a mapping."""

    def __getitem__(self, name: str, /) -> Any:  # noqa: ANN401 - whatever a cell may hold
        """Return the cell of a column."""


TableRows = Sequence[TableRow]

LEVELS: Final[Mapping[Level, str]] = {
    "good": N_("good"),
    "note": N_("note"),
    "warn": N_("look here"),
    "bad": N_("fault"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence on the numbers, and how urgent it is."""

    level: Level
    words: Words


def finding(level: Level, template: str, /, **values: Any) -> Finding:  # noqa: ANN401
    """Return a finding."""
    return Finding(level, words(template, **values))


def moment(at: datetime) -> str:
    """Return a row's time, in UTC; Spark returns it in the process's zone, without the zone."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def share_text(share: float) -> str:
    """Return a share in percent, with a decimal only where it matters."""
    percent = share * 100
    if 0 < percent < 0.1:
        return "< 0.1 %"
    digits = 1 if percent < 10 and round(percent, 1) != round(percent) else 0
    if share < 1:
        percent = min(percent, 99.0) if digits == 0 else percent
    return f"{percent:.{digits}f} %"


def ms_text(ms: float) -> str:
    """Return a duration, in the unit in which it is read easily."""
    if abs(ms) < 1_000:
        return f"{ms:,.0f} ms"
    if abs(ms) < 120_000:
        return f"{ms / 1_000:,.1f} s"
    if abs(ms) < 7_200_000:
        return f"{ms / 60_000:,.0f} min"
    return f"{ms / 3_600_000:,.1f} h"
