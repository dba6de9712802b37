"""Reports: tables, findings and charts; shown, and saved as Parquet, PNG and HTML.

A report's tables are aggregates, so they are small, whatever the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pyspark.sql import DataFrame, Row, SparkSession
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eruca_spark.parquet import parquet_settings
from eruca_spark.reports.basis import Basis, Lacks, basis_table
from eruca_spark.reports.cells import shown_column
from eruca_spark.reports.chart import Chart
from eruca_spark.reports.findings import Finding, TableRows
from eruca_spark.reports.page import Origin, PageContent, PageTable, page_of
from eruca_spark.reports.picture import picture_of
from eruca_spark.reports.targets import Targets
from eruca_spark.reports.words import Language

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
    """Tables, and pure functions that draw them and say what they mean."""

    name: str
    title: str
    tables: Sequence[ReportTable]
    charts: Callable[[Mapping[str, TableRows]], list[Chart]]
    findings: Callable[[Mapping[str, TableRows]], list[Finding]]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The things that a page says of its report's input and command."""

    messages: DataFrame  # with ``BASIS_COLUMNS``, including damaged messages
    topics: Sequence[str]  # those that were asked for
    lacks: Lacks
    origin: Origin


@dataclass(frozen=True, slots=True)
class FinishedReport:
    """A report's rows by table, its findings, and the paths of its files."""

    rows: dict[str, Rows]
    findings: Sequence[Finding]
    tables: dict[str, Path]
    picture: Path | None = None
    page: Path | None = None
    basis: Basis | None = None  # if it was wanted

    @property
    def files(self) -> list[Path]:
        """The paths of all files: page, picture, tables."""
        found = (self.page, self.picture, *self.tables.values())
        return [path for path in found if path is not None]


def finish(
    spark: SparkSession,
    report: Report,
    targets: Targets,
    console: Console,
    request: PageRequest,
    *,
    language: Language = "en",
    needs_basis: bool = False,
) -> FinishedReport:
    """Run a report; show its headline and its tables, and save its files.

    Each table is computed once. Files of an earlier run are replaced. The basis is known if there
    is a page, or with *needs_basis*.
    """
    rows: dict[str, Rows] = {}
    tables: dict[str, Path] = {}
    for table in report.tables:
        kept = table.rows.limit(KEPT_ROWS_MAX).collect()
        rows[table.name] = kept
        show(console, table.title, table.rows.columns, kept)
        if targets.directory is not None:
            path = targets.directory / f"{report.name}-{table.name}.parquet"
            tables[table.name] = path
            frame = spark.createDataFrame(kept, table.rows.schema)
            with parquet_settings(spark):
                frame.coalesce(1).write.mode("overwrite").parquet(str(path))
    findings, charts = report.findings(rows), report.charts(rows)
    if targets.picture is not None:
        picture_of(report.title, charts, language).save(targets.picture)
    basis = None
    if needs_basis or targets.page is not None:
        basis = Basis(basis_table(request.messages).collect(), request.topics, request.lacks)
    if targets.page is not None:
        assert basis is not None, "a page needs it"
        content = PageContent(
            report.title,
            findings,
            basis,
            charts,
            [
                PageTable(table.title, table.rows.columns, rows[table.name])
                for table in report.tables
            ],
        )
        page = page_of(content, request.origin, language)
        targets.page.write_text(page, encoding="utf-8")
    console.print(f"\n{findings[0].words.text('en')}")
    done = FinishedReport(rows, findings, tables, targets.picture, targets.page, basis)
    names = ", ".join(path.name for path in done.files)
    console.print(f"saved in {done.files[0].parent}: {names}")
    return done


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
