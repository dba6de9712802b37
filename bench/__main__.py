"""``python -m bench``: run the suites, and compare the figures with the goals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import (
    ahead_rows,
    checker_rows,
    client_rows,
    cold_rows,
    console_rows,
    consume_rows,
    e2e_rows,
    export_rows,
    failover_rows,
    http_rows,
    lookup_rows,
    poll_rows,
    process_rows,
    query_rows,
    replication_rows,
    scale_rows,
    security_rows,
    size_rows,
    start_rows,
    store_rows,
    timer_rows,
    transaction_rows,
)
from bench.children import nothing_left_behind
from bench.machine import cores
from bench.report import Report

ROWS: Final = 1_000_000
SUITES: Final[dict[str, Callable[[Report, float], None]]] = {
    "http": http_rows.run,
    "store": store_rows.run,
    "poll": poll_rows.run,
    "client": client_rows.run,
    "lookups": lookup_rows.run,
    "e2e": e2e_rows.run,
    "ahead": ahead_rows.run,
    "process": process_rows.run,
    "scale": scale_rows.run,
    "start": start_rows.run,
    "timers": timer_rows.run,
    "consume": consume_rows.run,
    "cold": cold_rows.run,
    "exports": export_rows.run,
    "transactions": transaction_rows.run,
    "replication": replication_rows.run,
    "checker": checker_rows.run,
    "security": security_rows.run,
    "console": console_rows.run,
}


BY_SPARK: Final = {"spark": "spark_rows", "lake": "lake_rows", "segments": "segment_rows"}


def by_spark(suite: str, report: Report, _seconds: float, *, rows: int) -> None:
    """Measure a suite if Spark is installed; it is large and optional."""
    if find_spec("pyspark") is None:
        report.figure(suite, "skipped: pyspark is not installed")
        return
    import_module(f"bench.{BY_SPARK[suite]}").run(report, rows)


def main(
    suites: Annotated[list[str] | None, typer.Argument(help="suites to run; default: all")] = None,
    seconds: Annotated[float, typer.Option(help="duration of each measurement")] = 2.0,
    rows: Annotated[
        int,
        typer.Option(
            min=100_000,
            help="messages for query, size, spark, lake and segments; see bench/README.md",
        ),
    ] = ROWS,
    kills: Annotated[
        int, typer.Option(min=1, help="kills of a master for the suite failover; 10 s each")
    ] = failover_rows.KILLS,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Measure speed as ratios to raw limits taken in the same run."""
    report = Report()
    if cores() < 2:
        report.console.print("[yellow]One core only: server and load disturb each other.[/yellow]")
    runs: dict[str, Callable[[Report, float], None]] = {
        **SUITES,
        "query": partial(query_rows.run, rows=rows),
        "size": partial(size_rows.run, rows=rows),
        **{suite: partial(by_spark, suite, rows=rows) for suite in BY_SPARK},
        "failover": partial(failover_rows.run, kills=kills),
    }
    chosen = suites or list(runs)
    for name in chosen:
        if name not in runs:
            raise typer.BadParameter(f"unknown suite {name!r}; valid suites: {', '.join(runs)}")
    with nothing_left_behind():
        for name in chosen:
            report.console.rule(name)
            runs[name](report, seconds)
            if json_file is not None:
                report.save(json_file)  # after each suite, in case a later one is interrupted
    report.show()


if __name__ == "__main__":
    typer.run(main)
