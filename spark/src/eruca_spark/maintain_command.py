"""The command ``eruca-spark maintain``, which needs neither Spark's JVM nor a service."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from eruca.exporting.job_metrics import MetricTargets, measured
from eruca_spark.command_options import MetricsFile, Output, PushGateway
from eruca_spark.lake import LakeError
from eruca_spark.layout import DEFAULT_TARGET_MIB, Layout, stored_layout
from eruca_spark.maintenance.folders import LocalFolders
from eruca_spark.maintenance.running import Maintained, Maintenance
from eruca_spark.outcomes import INTERRUPTED, line_of, outcome_of, told_errors
from eruca_spark.shell import counted, interruption, output_console

_MIB: Final = 1024 * 1024


def maintain(
    *,
    lake: Annotated[str, typer.Argument(help="a lake on a local disk")],
    target_file_mib: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="size of merged files in MiB; files below half of it are merged; default: the"
            f" lake's, or {DEFAULT_TARGET_MIB}",
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            min=0, help="days to keep before today (UTC); older ones are deleted; default: all"
        ),
    ] = None,
    output: Output = "text",
    metrics_file: MetricsFile = None,
    push_gateway: PushGateway = None,
) -> None:
    """Merge small files of a lake, and delete days that have expired.

    It may run beside an export. Readers that list the lake see each row once at any moment.

    Ctrl-C finishes the partition that is being changed; a second one ends the command at once.

    Exit codes: 0 done, 1 fault, 2 wrong usage, 75 run it again later, 130 stopped by Ctrl-C.
    """
    places = MetricTargets(metrics_file, push_gateway)
    places.check()
    with (
        told_errors("maintain", is_told=output == "json"),
        measured("maintain", lake, places, outcome_of) as run,
        interruption() as interrupted,
    ):
        root = lake_path(lake)
        folders = LocalFolders(root)
        layout = stored_layout(folders) or Layout()
        target_bytes = (target_file_mib or layout.target_file_mib) * _MIB
        today = datetime.now(UTC).date()
        with folders.maintaining():
            maintenance = Maintenance(folders)
            done = maintenance.run(
                target_bytes,
                keep_days=keep,
                today=today,
                is_told_to_stop=interrupted.is_set,
            )
        outcome = "done" if done.has_changed else "nothing_new"
        if maintenance.is_interrupted:
            outcome = "interrupted"
        document = {"command": "maintain", "outcome": outcome, "target": lake, **asdict(done)}
        run.ended(document)
    if output == "json":
        sys.stdout.write(f"{line_of(document)}\n")
    else:
        _say(lake, done, is_interrupted=outcome == "interrupted")
    if outcome == "interrupted":
        raise typer.Exit(INTERRUPTED)


def lake_path(lake: str) -> Path:
    """Return the directory of a lake on this machine.

    Raises:
        LakeError: There is none, or the lake is on another file system.
    """
    scheme = urlsplit(lake).scheme
    if scheme not in ("", "file"):
        raise LakeError(
            f"expected a lake on a local disk, found {lake}: other file systems cannot replace"
            " files in one step; export to delta:… or iceberg:… there, and maintain the table"
        )
    root = Path(urlsplit(lake).path if scheme else lake).absolute()
    if not (root / "_manifest").is_dir():
        raise LakeError(f"there is no lake in {root}")
    return root


def _say(lake: str, done: Maintained, *, is_interrupted: bool) -> None:
    console = output_console()
    if done.recovered:
        console.print("recovered a maintenance that was interrupted")
    if done.dropped_files:
        rows, files = counted(done.dropped_rows, "message"), counted(done.dropped_files, "file")
        console.print(f"deleted: {rows} in {files}")
    if done.new_files:
        merged, new = counted(done.merged_files, "file"), counted(done.new_files, "file")
        console.print(f"merged: {merged} into {new}")
    if not done.has_changed and not is_interrupted:
        console.print(f"{lake} needs no maintenance")
