"""Tables for the terminal: only whole words, so that they can be copied.

Half of an id, time or URL is useless. If a table is wider than the terminal, each row is shown as a
record instead, with one line per cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


_UNLIMITED: Final = 1_000_000  # columns: more than any table has


class WholeWords:
    """Headings and rows: a table if it fits, else records; None is shown as a dash."""

    def __init__(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        title: str | None = None,
    ) -> None:
        self._headings = headings
        self._rows = [tuple(row) for row in rows]
        self._title = title

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the form that fits the width."""
        table = self._table()
        whole = Measurement.get(console, options.update(max_width=_UNLIMITED), table)
        if whole.maximum <= options.max_width:
            yield table
            return
        if self._title is not None:
            yield Text(self._title, "italic")
        for number, row in enumerate(self._rows):
            if number:
                yield Text()
            yield from record_lines(zip(self._headings, row, strict=True))

    def _table(self) -> Table:
        table = Table(
            box=None,
            pad_edge=False,
            header_style="bold",
            title=self._title,
            title_justify="left",
        )
        for index, heading in enumerate(self._headings):
            is_number = any(isinstance(row[index], int) for row in self._rows)
            table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
        for row in self._rows:
            table.add_row(*map(_cell, row))
        return table


def record_lines(fields: Iterable[tuple[str, object]]) -> Iterable[Text]:
    """Return names and values, one per line; a long value wraps."""
    shown = [(name, _cell(value)) for name, value in fields]
    width = max((len(name) for name, _ in shown), default=0)
    return [
        Text.assemble((f"{name:<{width}}", "bold"), f"  {value}", no_wrap=True, overflow="ignore")
        for name, value in shown
    ]


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
