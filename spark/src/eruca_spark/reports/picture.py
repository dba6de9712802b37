"""The picture of a report."""

from __future__ import annotations

from collections.abc import Sequence

from eruca_spark.charts import Picture
from eruca_spark.reports.chart import Bars, Chart
from eruca_spark.reports.words import N_, Language, translated


def picture_of(title: str, charts: Sequence[Chart], language: Language = "en") -> Picture:
    """Return the picture of *charts*, one below another."""
    no_data = translated(N_("There is nothing to draw."), language)
    picture = Picture(translated(title, language), len(charts), no_data)
    for chart in charts:
        text, unit = chart.title.text(language), translated(chart.unit, language)
        if isinstance(chart, Bars):
            series = {translated(name, language): line for name, line in chart.values.items()}
            picture.bars(text, chart.labels, series, unit=unit, marked=chart.marked)
        else:
            picture.lines(text, chart.series, unit=unit)
    return picture
