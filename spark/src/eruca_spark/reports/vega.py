"""Charts as specifications of Vega-Lite.

Colours, fonts and sizes are the page's: its script sets them, because they depend on the theme and
on the width. Texts of messages are data only; the expression of the axis looks them up by number.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from eruca_spark.charts import printable
from eruca_spark.reports.chart import Bars, Chart, Lines, thinned
from eruca_spark.reports.words import Language, translated

_ROOM: Final = 1.2  # of the longest bar: to its right is its number
_STEP: Final = 26  # pixels of a bar
_LINE_HEIGHT: Final = 260  # pixels
_DAY: Final = timedelta(days=1)
_POINTS_SHOWN_MAX: Final = 120  # of a line: more make a band
_MARK: Final = "⚠ "  # beside the colour, for those who do not see it
_AUTOSIZE: Final = {"type": "fit-x", "contains": "padding"}
_NUMBER: Final = ",.10~g"


def vega_lite(chart: Chart, language: Language) -> dict[str, Any] | None:
    """Return the specification of a chart; None if there is nothing to draw."""
    if isinstance(chart, Bars):
        return _bars(chart, language) if chart.labels else None
    return _lines(chart, language) if chart.series else None


def _bars(chart: Bars, language: Language) -> dict[str, Any]:
    marked = [*chart.marked, *[False] * (len(chart.labels) - len(chart.marked))]
    totals = [sum(values) for values in zip(*chart.values.values(), strict=True)]
    labels = [
        (_MARK if is_marked else "") + printable(label)
        for label, is_marked in zip(chart.labels, marked, strict=True)
    ]
    names = [translated(name, language) for name in chart.values]
    unit = translated(chart.unit, language)
    parts = [
        {
            "bar": at,
            "series": name,
            "order": order,
            "value": values[at],
            "marked": marked[at],
            "tip": f"{label}\n{name}: {_text(values[at])} {unit}",
        }
        for order, (name, values) in enumerate(zip(names, chart.values.values(), strict=True))
        for at, label in enumerate(labels)
    ]
    sums = [{"bar": at, "value": total, "text": _text(total)} for at, total in enumerate(totals)]
    is_stacked = len(names) > 1
    place = {"field": "bar", "type": "ordinal", "title": None}
    length = {
        "field": "value",
        "type": "quantitative",
        "title": unit,
        "scale": {"domain": [0, (max(totals) * _ROOM) or 1]},
        "axis": {"format": _NUMBER, "tickCount": 5},
    }
    color: dict[str, Any] = (
        {"field": "series", "type": "nominal", "title": None, "scale": {"domain": names}}
        if is_stacked
        else {
            "field": "marked",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": [False, True]},
        }
    )
    return {
        "width": "container",
        "autosize": _AUTOSIZE,
        "height": len(labels) * _STEP,
        "params": [{"name": "labels", "value": labels}],
        "layer": [
            {
                "data": {"values": parts},
                "mark": {"type": "bar", "cornerRadiusEnd": 0 if is_stacked else 2},
                "encoding": {
                    "y": {**place, "axis": {"labelExpr": "labels[datum.value]"}},
                    "x": {**length, "stack": "zero"},
                    "color": color,
                    "order": {"field": "order"},
                    "tooltip": {"field": "tip"},
                },
            },
            {
                "data": {"values": sums},
                "mark": {"type": "text", "align": "left", "dx": 5, "baseline": "middle"},
                "encoding": {
                    "y": place,
                    "x": {**length, "stack": None},
                    "text": {"field": "text", "type": "nominal"},
                },
            },
        ],
    }


def _lines(chart: Lines, language: Language) -> dict[str, Any]:
    unit = translated(chart.unit, language)
    thin = {printable(name): thinned(*line) for name, line in chart.series.items()}
    points = [
        {
            "at": _ms(time),
            "value": value,
            "series": name,
            "tip": f"{name}\n{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {_text(value)} {unit}",
        }
        for name, (times, values) in thin.items()
        for time, value in zip(times, values, strict=True)
    ]
    every = [time for times, _ in thin.values() for time in times]
    format_ = "%H:%M" if max(every) - min(every) < _DAY else "%m-%d %H:%M"
    shows_points = max(len(times) for times, _ in thin.values()) <= _POINTS_SHOWN_MAX
    series = {"field": "series", "type": "nominal", "title": None}
    return {
        "width": "container",
        "autosize": _AUTOSIZE,
        "height": _LINE_HEIGHT,
        "data": {"values": points},
        "mark": {
            "type": "line",
            "strokeWidth": 2,
            **({"point": {"size": 40}} if shows_points else {}),
        },
        "encoding": {
            "x": {
                "field": "at",
                "type": "temporal",
                "title": "UTC",
                "scale": {"type": "utc", "padding": 8},
                "axis": {"format": format_, "labelOverlap": True, "tickCount": 10, "grid": False},
            },
            "y": {
                "field": "value",
                "type": "quantitative",
                "title": unit,
                "scale": {"zero": True},
                "axis": {"format": _NUMBER, "tickCount": 5},
            },
            "color": series,
            "strokeDash": series,
            **({"shape": series} if shows_points else {}),
            "tooltip": {"field": "tip"},
        },
    }


def _ms(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp() * 1000)


def _text(number: float) -> str:
    return f"{round(number, 2):,.10g}"
