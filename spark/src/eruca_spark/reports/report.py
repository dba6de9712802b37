"""Reports: tables and a picture of them; shown, and saved as Parquet and PNG.

A report's tables are aggregates, so they are small, whatever the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.sql import DataFrame, Row, SparkSession
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eruca_spark.charts import Picture, printable
from eruca_spark.parquet import parquet_settings

SHOWN_ROWS: Final = 25  # of a table on the screen
KEPT_ROWS_MAX: Final = 100_000  # of a table in memory: a larger one is not an aggregate

Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table: its name in file names, its title, and its rows in display order."""

    name: str
    title: str
    rows: DataFrame


@dataclass(frozen=True, slots=True)
class Report:
    """Tables, and a function that draws them."""

    name: str
    title: str
    tables: Sequence[ReportTable]
    draw: Callable[[dict[str, Rows]], Picture]


@dataclass(frozen=True, slots=True)
class FinishedReport:
    """A report's rows by table, and the paths of its files."""

    rows: dict[str, Rows]
    picture: Path
    tables: dict[str, Path]


def finish(spark: SparkSession, report: Report, out: Path, console: Console) -> FinishedReport:
    """Run a report; show its tables, and save tables and picture in *out*.

    Each table is computed once. Files of an earlier run are replaced.
    """
    rows: dict[str, Rows] = {}
    tables: dict[str, Path] = {}
    for table in report.tables:
        kept = table.rows.limit(KEPT_ROWS_MAX).collect()
        rows[table.name] = kept
        show(console, table.title, table.rows.columns, kept)
        tables[table.name] = out / f"{report.name}-{table.name}.parquet"
        frame = spark.createDataFrame(kept, table.rows.schema)
        with parquet_settings(spark):
            frame.coalesce(1).write.mode("overwrite").parquet(str(tables[table.name]))
    picture = out / f"{report.name}.png"
    report.draw(rows).save(picture)
    console.print(f"\nsaved in {out}: {picture.name}, {', '.join(p.name for p in tables.values())}")
    return FinishedReport(rows, picture, tables)


def show(console: Console, title: str, columns: Sequence[str], rows: Rows) -> None:
    """Show the first rows of a table."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    first = rows[:SHOWN_ROWS]
    for name in columns:
        values = [row[name] for row in first]
        is_numeric = any(isinstance(value, int | float) for value in values)
        # Texts may be truncated if there is little room, numbers must not.
        widest = max(map(len, shown_column(values)), default=0) if is_numeric else None
        justify: Literal["left", "right"] = "right" if is_numeric else "left"
        table.add_column(name.replace("_", " "), justify=justify, min_width=widest)
    for cells in zip(
        *(shown_column([row[name] for row in first]) for name in columns), strict=True
    ):
        table.add_row(*map(Text, cells))
    console.print()
    console.print(table, soft_wrap=False)
    if len(rows) > SHOWN_ROWS:
        console.print(f"… and {len(rows) - SHOWN_ROWS:,} more")
    if not rows:
        console.print("none")


def in_utc(collected: datetime) -> datetime:
    """Return a row's time in UTC; Spark returns it in the process's zone, without the zone."""
    return collected.astimezone(UTC)


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
        return f"{in_utc(value):%Y-%m-%d %H:%M:%SZ}"
    return printable(str(value))
