"""``eruca export``: export a topic to a file or to a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from eruca.cli.command import command
from eruca.cli.commands.reading import checked_time
from eruca.cli.commands.topics import TopicArgument
from eruca.cli.session import Session

ROWS_PER_BATCH: Final = 1_000_000
RETRY_SECONDS: Final = 300.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "export")(export)


async def export(
    session: Session,
    *,
    topic: TopicArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="A file: .ndjson, .arrow or .parquet; the last two need the extra 'arrow'. Or a"
            " table: delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE, with the extra 'tables'.",
        ),
    ],
    columns: Annotated[
        str | None, typer.Option(help="Column names, separated by ','; default: all.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only messages stored at this time or later: a time, or a span before now; for a"
            " table, only its first batch begins there."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="For files: only messages stored before this time.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="For files: discard the parts of an interrupted run."),
    ] = False,
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete",
            help="For files: omit brokers that are unreachable, and list them.",
        ),
    ] = False,
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss",
            help="For tables: continue if messages were deleted before they were exported, or if"
            " a broker with messages is unreachable.",
        ),
    ] = False,
    damaged: Annotated[
        Literal["refuse", "mark"],
        typer.Option(
            help="For a damaged message: refuse ends with an error that names it; mark writes a"
            " row with its place and its fault."
        ),
    ] = "refuse",
    rows_per_batch: Annotated[
        int | None,
        typer.Option(
            help=f"For tables: messages in one commit, which a crash repeats [{ROWS_PER_BATCH:,}].",
            min=1,
        ),
    ] = None,
    retry_seconds: Annotated[
        float | None,
        typer.Option(
            help="For tables: time to wait for a service without progress"
            f" [{RETRY_SECONDS:.0f}]; after that the exit code is 75.",
            min=0.1,
        ),
    ] = None,
    table_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A property of Iceberg's catalogue, or a storage option of Delta Lake.",
        ),
    ] = None,
    adopt: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSETS",
            help="Continue a table whose commits do not say where, behind its last row of each"
            """ queue: '{"TOPIC/BROKER/QUEUE": OFFSET}'.""",
        ),
    ] = None,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write metrics of the run to this file, NAME.prom, for node_exporter's textfile"
            " collector; needs the extra 'prometheus'.",
        ),
    ] = None,
    push_gateway: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Push metrics of the run to this Pushgateway."),
    ] = None,
    query_url: Annotated[
        str | None,
        typer.Option(
            "--query",
            metavar="URL",
            help="Query services, separated by ';' [ERUCA_QUERY_URLS, else from the name servers].",
        ),
    ] = None,
) -> int | None:
    """Export a topic: to a file, with all messages it has now; or to a table, with all new ones.

    Each message is there once. If it is interrupted, run the same command again: it continues. A
    file has its parts in FILE.parts until it is complete. A table gets batches, each by one commit
    that says where the next one begins; only one export at a time may write to it (exit code 75).

    For a table, TOPIC may be several topics, separated by ','. The topic %DLQ%GROUP has a group's
    dead letters. The topic ERUCA_SYS_EVENTS has the brokers' own records.

    If the query service knows messages on a broker that is registered at no name server, or cannot
    tell because its database is unreachable, the command fails, unless --allow-incomplete or
    --allow-loss is given.
    """
    from eruca.cli.exporting.file_export import FileRequest, export_to_file
    from eruca.cli.exporting.table_export import TableRequest, export_to_table
    from eruca.tables.targets import is_table

    only_files = {
        "--until": until is not None,
        "--force": force,
        "--restart": restart,
        "--allow-incomplete": allow_incomplete,
    }
    only_tables = {
        "--allow-loss": allow_loss,
        "--rows-per-batch": rows_per_batch is not None,
        "--retry-seconds": retry_seconds is not None,
        "--table-option": bool(table_option),
        "--adopt": adopt is not None,
    }
    if not is_table(to):
        _refuse(only_tables, "tables, delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE")
        wanted = FileRequest(
            topic=topic,
            to=Path(to),
            columns=columns,
            since=since,
            until=until,
            since_time=checked_time(since),
            until_time=checked_time(until),
            force=force,
            restart=restart,
            allow_incomplete=allow_incomplete,
            damaged=damaged,
            metrics_file=metrics_file,
            push_gateway=push_gateway,
            query_url=query_url,
        )
        return await export_to_file(session, wanted)
    _refuse(only_files, "files")
    request = TableRequest(
        topics=topic,
        target=to,
        columns=columns,
        since=checked_time(since),
        allow_loss=allow_loss,
        damaged=damaged,
        rows_per_batch=rows_per_batch or ROWS_PER_BATCH,
        retry_seconds=retry_seconds or RETRY_SECONDS,
        table_options=_pairs(table_option or []),
        adopt=adopt,
        metrics_file=metrics_file,
        push_gateway=push_gateway,
        query_url=query_url,
    )
    return await export_to_table(session, request)


def _refuse(given: dict[str, bool], kind: str) -> None:
    """Refuse options that have no meaning for the target."""
    names = [name for name, is_given in given.items() if is_given]
    if names:
        raise typer.BadParameter(f"only for {kind}: {', '.join(names)}")


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"--table-option: expected NAME=VALUE, found {text!r}")
        pairs[name] = value
    return pairs
