"""Charts of reports.

Only drawing imports matplotlib: that takes most of a second, and most commands draw nothing.
"""

from __future__ import annotations

import sys
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eruca_spark.fonts import INSTALL, fonts_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

_WIDTH: Final = 10.0  # inches
_HEIGHT: Final = 4.0  # inches, of each chart
_LABEL_WIDTH_MAX: Final = 40  # columns; a Chinese character takes two
_MISSING_SHOWN: Final = 12  # missing characters named in the warning
_NUMBERS: Final = "{x:,.10g}"
_ROOM: Final = 0.1  # of the width, to the right of the longest bar, for its number
# around a line: the axis of a single point must not span years
_MARGIN: Final = timedelta(minutes=1)
_NO_DATA: Final = "There is nothing to draw."


class Picture:
    """Charts one below another, in one file."""

    def __init__(self, title: str, count: int, no_data: str = _NO_DATA) -> None:
        from matplotlib.figure import Figure

        self._figure = Figure(figsize=(_WIDTH, _HEIGHT * count), layout="constrained")
        self._figure.suptitle(title)
        self._axes: list[Axes] = [
            self._figure.add_subplot(count, 1, number) for number in range(1, count + 1)
        ]
        self._next = 0
        self._no_data = no_data  # the text of an empty chart

    def bars(
        self,
        title: str,
        labels: Sequence[str],
        values: Mapping[str, Sequence[float]],
        *,
        unit: str,
        marked: Sequence[bool] = (),
    ) -> None:
        """Draw horizontal bars; several series of values are stacked in one bar.

        The number at a bar's end is the sum of its series.

        Args:
            title: The chart's.
            labels: One for each bar, from the top.
            values: Each series' values by its name.
            unit: Of the values.
            marked: The bars to draw in red.
        """
        axes = self._axes_for(title, is_empty=not labels)
        if not labels:
            return
        drawn: BarContainer
        starts = [0.0] * len(labels)
        places = range(len(labels))
        for name, series in values.items():
            drawn = axes.barh(places, series, left=starts, label=name)
            starts = [start + value for start, value in zip(starts, series, strict=True)]
            for bar, is_marked in zip(drawn, marked, strict=False):
                if is_marked:
                    bar.set_color("tab:red")
        axes.set_yticks(places, [_shortened(label) for label in labels])
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.xaxis.set_major_formatter(_NUMBERS)
        axes.set_xlim(0, max(starts) * (1 + _ROOM) or 1)
        axes.bar_label(drawn, [f"{round(value, 2):,.10g}" for value in starts], padding=3)
        if len(values) > 1:
            # beside the bars, not over them
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    def lines(
        self,
        title: str,
        series: Mapping[str, tuple[Sequence[datetime], Sequence[float]]],
        *,
        unit: str,
    ) -> None:
        """Draw lines over time; a single point is drawn as a point."""
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        axes = self._axes_for(title, is_empty=not series)
        if not series:
            return
        for name, (times, values) in series.items():
            label = _shortened(name)
            axes.plot(times, values, marker="o", markersize=5, clip_on=False, label=label)  # type: ignore[arg-type]
        every = [time for times, _ in series.values() for time in times]
        axes.set_xlim(min(every) - _MARGIN, max(every) + _MARGIN)  # type: ignore[arg-type]
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.set_xlabel("UTC", loc="left")
        axes.set_ylabel(unit)
        axes.yaxis.set_major_formatter(_NUMBERS)
        axes.set_ylim(bottom=0)
        axes.legend()

    def save(self, path: Path) -> None:
        """Write the picture as PNG; warn once about characters that no installed font has."""
        path.parent.mkdir(parents=True, exist_ok=True)
        missing = self._set_fonts()
        with warnings.catch_warnings():
            if missing:
                # One warning names all of them; matplotlib has one for each character and place.
                sys.stderr.write(
                    f"warning: {path.name} shows boxes: no installed font has {_some(missing)};"
                    f" install one: {INSTALL}\n"
                )
                warnings.filterwarnings("ignore", message="Glyph .* missing from")
            self._figure.savefig(path, format="png")

    def _set_fonts(self) -> str:
        """Choose the fonts for the picture's texts; return the characters that none has."""
        from matplotlib.text import Text

        drawn = [text for text in self._figure.findobj(Text) if isinstance(text, Text)]
        labels = [text for axes in self._axes for text in axes.get_yticklabels()]
        fonts = fonts_for(text.get_text() for text in (*drawn, *labels))
        for text in drawn:
            text.set_fontfamily(fonts.families)
        for axes in self._axes:
            # these texts are created while drawing
            axes.tick_params(labelfontfamily=fonts.families)
        return fonts.missing

    def _axes_for(self, title: str, *, is_empty: bool) -> Axes:
        axes = self._axes[self._next]
        self._next += 1
        axes.set_title(title)
        if is_empty:
            axes.set_axis_off()
            axes.text(0.5, 0.5, self._no_data, ha="center", va="center")
        return axes


def printable(text: str) -> str:
    """Return *text* on one line, without control characters for a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def _some(characters: str) -> str:
    shown = " ".join(characters[:_MISSING_SHOWN])
    more = len(characters) - _MISSING_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _shortened(label: str) -> str:
    # A dollar sign would begin a formula.
    label = printable(label)
    text = label if _width(label) <= _LABEL_WIDTH_MAX else _cut(label, _LABEL_WIDTH_MAX - 1) + "…"
    return text.replace("$", r"\$")


def _width(text: str) -> int:
    return sum(map(_columns, text))


def _cut(text: str, width_max: int) -> str:
    """Return the longest beginning of *text* that fits in *width_max* columns."""
    width = 0
    for at, char in enumerate(text):
        width += _columns(char)
        if width > width_max:
            return text[:at]
    return text


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "FW" else 1
