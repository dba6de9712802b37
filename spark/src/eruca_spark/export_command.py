"""The command ``eruca-spark export``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Annotated, Final, Literal

import typer
from pyspark.sql import SparkSession

from eruca.exporting.columns import arrow_schema
from eruca.exporting.errors import OptionError
from eruca.exporting.exported import Exported
from eruca.exporting.job_metrics import MetricTargets, measured
from eruca.exporting.options import Options
from eruca.tables.targets import check_no_secrets
from eruca_spark.bodies.given import given_bodies
from eruca_spark.bodies.schema import BodySchema
from eruca_spark.command_options import (
    Conf,
    Damaged,
    Master,
    MetricsFile,
    Output,
    PushGateway,
    SourceOptions,
    Url,
    pairs_of,
    settings_of,
    source_options,
)
from eruca_spark.export import LakeExported, finds_nothing, run_export, waiting_rows
from eruca_spark.lake import Lake, LakeError
from eruca_spark.lake_files import LakeBusyError, is_local
from eruca_spark.layout import Layout
from eruca_spark.outcomes import (
    DONE,
    INTERRUPTED,
    export_document,
    line_of,
    outcome_of,
    told_errors,
)
from eruca_spark.progress import RowsBar
from eruca_spark.shell import (
    Interruption,
    check_master,
    counted,
    interruptible_session,
    interruption,
    output_console,
)

PARQUET: Final = "parquet:"
TABLES: Final = ("delta:", "iceberg:")


def export(
    *,
    lake: Annotated[
        str | None,
        typer.Argument(help="a lake: a directory, or a URI that all executors can reach"),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="instead of LAKE: delta:PATH, iceberg:CATALOG.NAMESPACE.TABLE or parquet:LAKE;"
            " tables need the extra tables"
        ),
    ] = None,
    topic: Annotated[list[str], typer.Option("--topic", help="a topic; may be repeated")],
    url: Url = None,
    rows_per_batch: Annotated[
        int, typer.Option(min=1, help="messages in one batch, which a crash repeats")
    ] = 2_000_000,
    allow_loss: Annotated[
        bool,
        typer.Option(
            help="continue if messages were deleted before they were exported, or if a broker"
            " with messages is unreachable"
        ),
    ] = False,
    damaged: Damaged = "refuse",
    partition_by: Annotated[
        str | None,
        typer.Option(
            help="directories of a new lake: topic,day (default) or topic,hour; both may end with"
            " ,property:NAME"
        ),
    ] = None,
    target_file_mib: Annotated[
        int | None,
        typer.Option(min=1, help="size of files in MiB that a new lake's maintenance aims for"),
    ] = None,
    body_schema: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|ID=FILE|infer",
            help="columns from bodies, for lakes, which keep them: of JSON, FILE with an object of"
            " Spark's types by field, or infer to take the fields of a sample; of Avro, FILE.avsc;"
            " of Protobuf, a descriptor set; ID=FILE if bodies begin with the header of a schema"
            " registry, and may be repeated",
        ),
    ] = None,
    body_message: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.TYPE",
            help="Protobuf's type of bodies, in the descriptor set of --body-schema; needs the"
            " extra protobuf",
        ),
    ] = None,
    every_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="seconds; export for ever, looking for new messages at this interval"
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            help="continue a table whose commits do not say where; requires --option"
            " startingOffsets=…"
        ),
    ] = False,
    table_option: Annotated[
        list[str] | None,
        typer.Option(
            help="a property of Iceberg's catalogue, or a storage option of Delta Lake,"
            " NAME=VALUE; may be repeated"
        ),
    ] = None,
    output: Output = "text",
    metrics_file: MetricsFile = None,
    push_gateway: PushGateway = None,
    nothing_new_code: Annotated[
        int, typer.Option(min=0, max=125, help="the exit code if there was nothing to export")
    ] = DONE,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Export new messages of topics to a table or to Parquet, each once, even after a crash.

    Exit codes: 0 done, 1 fault, 2 wrong usage, 75 run it again later, 130 stopped by Ctrl-C.
    """
    target = _target_of(lake, to)
    is_table = target.startswith(TABLES)
    given = source_options(url, option)
    _check_table_options(given, is_table=is_table, adopt=adopt, table_option=table_option)
    options = {
        **given,
        "topic": ",".join(topic),
        "maxRowsPerTrigger": str(rows_per_batch),
        "failOnDataLoss": "false" if allow_loss else "true",
        "damaged": damaged,
    }
    Options.parse(options)
    table_options = pairs_of(table_option, "--table-option")
    if is_table:
        check_no_secrets(target, table_options)
    places = MetricTargets(metrics_file, push_gateway)
    places.check()
    _check_lake_options(target, partition_by, target_file_mib, body_schema, body_message)
    bodies = given_bodies(body_schema, body_message)
    check_master(master)
    settings_of(conf)
    with (
        told_errors("export", is_told=output == "json"),
        measured("export", target, places, outcome_of) as run,
        interruption() as interrupted,
    ):

        def looked(done: Exported) -> None:
            run.looked(export_document(target, done))

        if is_table:
            done, held = _to_table(
                target,
                options,
                table_options,
                (master, conf),
                every_seconds=every_seconds,
                adopts=adopt,
                interrupted=interrupted,
                looked=looked,
                is_quiet=output == "json",
            )
        else:
            done, held = _to_lake(
                target.removeprefix(PARQUET),
                options,
                (master, conf),
                partition_by=partition_by,
                target_file_mib=target_file_mib,
                body_schema=bodies,
                every_seconds=every_seconds,
                interrupted=interrupted,
                looked=looked,
                is_quiet=output == "json",
            )
        document = export_document(target, done, is_interrupted=interrupted.is_set())
        run.ended(document)
    if output == "json":
        sys.stdout.write(f"{line_of(document)}\n")
    else:
        _say(done, held)
    if interrupted.is_set():
        raise typer.Exit(INTERRUPTED)
    if not done.has_found_messages:
        raise typer.Exit(nothing_new_code)


def _target_of(lake: str | None, to: str | None) -> str:
    """Return the target, of which one form must be given."""
    if (lake is None) == (to is None):
        raise typer.BadParameter("give either LAKE or --to")
    if lake is not None:
        return f"{PARQUET}{lake}"
    target = to or ""
    if not target.startswith((PARQUET, *TABLES)) or target.endswith(":"):
        raise typer.BadParameter(
            "--to: expected delta:PATH, iceberg:CATALOG.NAMESPACE.TABLE or parquet:LAKE; found"
            f" {target}"
        )
    return target


def _check_table_options(
    given: dict[str, str], *, is_table: bool, adopt: bool, table_option: list[str] | None
) -> None:
    if not is_table and (adopt or table_option):
        raise typer.BadParameter("--adopt and --table-option are for tables: delta:… or iceberg:…")
    if adopt and not any(name.lower() == "startingoffsets" for name in given):
        raise typer.BadParameter(
            "--adopt requires --option startingOffsets=…: the offset behind the last row of each"
            " queue, from SELECT topic, broker_name, queue_id, max(queue_offset) + 1 …"
        )


def _check_lake_options(
    target: str,
    partition_by: str | None,
    target_file_mib: int | None,
    body_schema: list[str] | None,
    body_message: str | None,
) -> None:
    if target.startswith(TABLES):
        if partition_by or target_file_mib or body_schema or body_message:
            raise typer.BadParameter(
                "--partition-by, --target-file-mib, --body-schema and --body-message are for lakes"
            )
        return
    if partition_by is not None:
        Layout.parse(partition_by)


def _to_lake(
    root: str,
    options: dict[str, str],
    session: tuple[str | None, list[str] | None],
    *,
    partition_by: str | None,
    target_file_mib: int | None,
    body_schema: BodySchema | Literal["infer"] | None,
    every_seconds: float | None,
    interrupted: Interruption,
    looked: Callable[[Exported], None],
    is_quiet: bool,
) -> tuple[Exported, str]:
    """Export to a lake; for one on this machine, Spark starts only if there is something new."""
    if every_seconds is None and is_local(root):
        lake = Lake(None, root)
        if lake.exists and finds_nothing(
            lake,
            options,
            partition_by=partition_by,
            target_file_mib=target_file_mib,
            body_schema=body_schema,
        ):
            return LakeExported(), _held_by(lake)
    with interruptible_session("export", *session) as spark:
        lake = Lake(spark, root)
        total = waiting_rows(lake, options)
        with RowsBar(output_console(), total, is_quiet=is_quiet) as bar:
            done = run_export(
                spark,
                root,
                options,
                partition_by=partition_by,
                target_file_mib=target_file_mib,
                body_schema=body_schema,
                every_seconds=every_seconds,
                watch=lambda done: bar.show(done.rows),
                is_over=interrupted.is_set,
                looked=looked if every_seconds is not None else lambda _: None,
            )
        return done, _held_by(lake)


def _held_by(lake: Lake) -> str:
    manifests = lake.manifests()
    rows = counted(sum(one.rows - one.dropped_rows for one in manifests), "message")
    batches = counted(sum(one.batch - one.first + 1 for one in manifests), "batch", "batches")
    return f"{lake.root} has {rows} in {batches}"


def _to_table(
    target: str,
    options: dict[str, str],
    table_options: dict[str, str],
    session: tuple[str | None, list[str] | None],
    *,
    every_seconds: float | None,
    adopts: bool,
    interrupted: Interruption,
    looked: Callable[[Exported], None],
    is_quiet: bool,
) -> tuple[Exported, str]:
    """Export to a table; Spark starts only if there is something to export."""
    try:
        from eruca.tables.batches import TableBusyError, TableError
        from eruca.tables.committing import checked_last_batch
        from eruca.tables.targets import opened
    except ImportError as error:
        raise OptionError(
            f"tables need the package {error.name}: install eruca-spark[tables]"
        ) from error
    from eruca_spark.table_export import check_storage_options, table_exporter

    try:
        check_storage_options(target, table_options)
        columns = arrow_schema(Options.parse(options).columns)
        table = opened(target, columns, table_options, adopts=adopts)
        with ExitStack() as stack:

            @cache
            def spark() -> SparkSession:
                return stack.enter_context(interruptible_session("export", *session))

            exporter = table_exporter(spark, table, options)
            total = exporter.waiting_rows()
            bar = stack.enter_context(RowsBar(output_console(), total, is_quiet=is_quiet))
            while True:
                exporter.run(lambda done: bar.show(done.rows), interrupted.is_set)
                if every_seconds is not None:
                    looked(exporter.done)
                if every_seconds is None or interrupted.wait(every_seconds):
                    break
        last = checked_last_batch(table)
    except TableBusyError as error:
        raise LakeBusyError(str(error)) from error
    except TableError as error:
        raise LakeError(str(error)) from error
    return exporter.done, f"{target} is at batch {'-' if last is None else last.number}"


def _say(done: Exported, held: str) -> None:
    console = output_console()
    for name, rows in sorted(done.rows_by_topic.items()):
        console.print(f"{name}: {counted(rows, 'message')}")
    if done.missing_rows:
        lost = counted(done.missing_rows, "message")
        console.print(f"deleted before they were read: {lost}")
    if done.damaged_rows:
        console.print(f"damaged, see column damage: {counted(done.damaged_rows, 'message')}")
    if isinstance(done, LakeExported) and done.rejected_rows:
        rejected = counted(done.rejected_rows, "message")
        console.print(f"rejected, their bodies do not fit, see _rejected: {rejected}")
    console.print(held)
