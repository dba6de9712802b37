"""Charts as data: one description for the picture (PNG) and for the page (Vega-Lite)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from eruca_spark.reports.words import Words

LINES_MAX: Final = 8  # of one chart: more differ neither by colour nor by shape
POINTS_MAX: Final = 1_000  # of a line: a chart has about as many columns of pixels


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars; several series of values are stacked in one bar."""

    title: Words
    labels: Sequence[str]  # one for each bar, from the top
    values: Mapping[str, Sequence[float]]  # of each series, by its name, which is translated
    unit: str  # is translated
    marked: Sequence[bool] = field(default=())  # the bars that need a look


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines over time."""

    title: Words
    series: Mapping[str, tuple[Sequence[datetime], Sequence[float]]]
    unit: str  # is translated


Chart = Bars | Lines


def thinned(
    times: Sequence[datetime], values: Sequence[float], points_max: int = POINTS_MAX
) -> tuple[list[datetime], list[float]]:
    """Return at most *points_max* points: of neighbours, the one with the greatest value.

    A peak is what a reader looks for, so it must not be averaged away.
    """
    points = list(zip(times, values, strict=True))
    size = -(-len(points) // points_max) or 1
    kept = [
        max(points[at : at + size], key=lambda point: point[1])
        for at in range(0, len(points), size)
    ]
    return [time for time, _ in kept], [value for _, value in kept]
