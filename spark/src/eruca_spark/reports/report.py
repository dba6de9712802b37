"""What a report is: tables, and a picture of them; shown, and kept as Parquet and PNG.

A report's tables are aggregates: small, whatever they were made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eruca_spark.charts import Picture, printable

SHOWN_ROWS: Final = 25  # of a table on the screen
KEPT_ROWS_MAX: Final = 100_000  # of a table in memory: more would be no aggregate

Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table: its name in file names, its title, and its rows in the order they are shown."""

    name: str
    title: str
    rows: DataFrame


@dataclass(frozen=True, slots=True)
class Report:
    """Tables, and how to draw them."""

    name: str
    title: str
    tables: Sequence[ReportTable]
    draw: Callable[[dict[str, Rows]], Picture]


@dataclass(frozen=True, slots=True)
class FinishedReport:
    """A report's rows by table, and where they are kept."""

    rows: dict[str, Rows]
    picture: Path
    tables: dict[str, Path]


def finish(spark: SparkSession, report: Report, out: Path, console: Console) -> FinishedReport:
    """Run a report; show its tables, and keep tables and picture in *out*.

    Each table is computed once. A file of an earlier run is replaced.
    """
    rows: dict[str, Rows] = {}
    tables: dict[str, Path] = {}
    for table in report.tables:
        kept = table.rows.limit(KEPT_ROWS_MAX).collect()
        rows[table.name] = kept
        show(console, table.title, table.rows.columns, kept)
        tables[table.name] = out / f"{report.name}-{table.name}.parquet"
        frame = spark.createDataFrame(kept, table.rows.schema)
        frame.coalesce(1).write.mode("overwrite").parquet(str(tables[table.name]))
    picture = out / f"{report.name}.png"
    report.draw(rows).save(picture)
    console.print(f"\nkept in {out}: {picture.name}, {', '.join(p.name for p in tables.values())}")
    return FinishedReport(rows, picture, tables)


def show(console: Console, title: str, columns: Sequence[str], rows: Rows) -> None:
    """Show the first rows of a table."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    numeric = {
        name for name in columns if any(isinstance(row[name], int | float) for row in rows[:100])
    }
    for name in columns:
        heading = name.replace("_", " ")
        # Texts may be cut where there is little room, numbers may not.
        if name in numeric:
            table.add_column(heading, justify="right", min_width=_widest(rows, name))
        else:
            table.add_column(heading)
    for row in rows[:SHOWN_ROWS]:
        table.add_row(*(Text(shown(row[name])) for name in columns))
    console.print()
    console.print(table, soft_wrap=False)
    if len(rows) > SHOWN_ROWS:
        console.print(f"… and {len(rows) - SHOWN_ROWS:,} more")
    if not rows:
        console.print("none")


def _widest(rows: Rows, name: str) -> int:
    return max(len(shown(row[name])) for row in rows[:SHOWN_ROWS])


def shown(value: Any) -> str:  # noqa: ANN401 - whatever a cell may hold
    """Return a cell's text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return f"{int(value):,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return printable(str(value))
