"""Export topics to a table of Delta Lake or Iceberg, batch by batch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from eruca.cli.command import EXIT_FAILED, EXIT_RETRY, error_line, report
from eruca.cli.counts import counted
from eruca.cli.session import Session
from eruca.cli.stoppable import stoppable

if TYPE_CHECKING:
    from eruca.exporting.exported import Exported
    from eruca.exporting.options import Options


@dataclass(frozen=True, slots=True)
class TableRequest:
    """A table, and what to export to it."""

    topics: str  # separated by commas
    target: str
    columns: str | None
    since: datetime | None
    allow_loss: bool
    damaged: str
    rows_per_batch: int
    retry_seconds: float  # without progress
    table_options: Mapping[str, str]  # of the catalogue or the storage
    adopt: str | None  # JSON: where to continue a table that does not say it
    metrics_file: Path | None
    push_gateway: str | None
    query_url: str | None


async def export_to_table(session: Session, request: TableRequest) -> int:
    """Export the new messages; return the exit code.

    Ctrl-C and SIGTERM end it within seconds. The next run continues.
    """
    from eruca.exporting.errors import OptionError, SourceError, UnavailableError
    from eruca.exporting.job_metrics import MetricTargets, measured
    from eruca.tables.batches import TableBusyError, TableError
    from eruca.tables.targets import check_no_secrets

    places = MetricTargets(request.metrics_file, request.push_gateway)
    try:
        places.check()
        check_no_secrets(request.target, request.table_options)
        with measured("export", request.target, places, _outcome_of) as run:
            urls = await _query_urls(session, request.query_url)
            options = _options(session, request, urls)
            done = await stoppable(partial(_exported, request, options))
            document = _document(request.target, done)
            run.ended(document)
    except OptionError as error:
        raise typer.BadParameter(str(error)) from error
    except (TableBusyError, UnavailableError) as error:
        report(session, str(error), {"code": "try-again-later", "detail": str(error)})
        return EXIT_RETRY
    except (TableError, SourceError) as error:
        report(session, str(error), {"code": "export-failed", "detail": str(error)})
        return EXIT_FAILED
    if session.is_json:
        session.show_json(document)
    else:
        _show(session, request.target, done)
    return 0


async def _query_urls(session: Session, given: str | None) -> list[str]:
    """Return the URLs of query services: the given ones, else those at the name servers.

    Raises:
        UnavailableError: No name server says them now.
    """
    from eruca.contract.errors import ErucaError
    from eruca.core.routing.services import QUERY_SERVICE
    from eruca.exporting.errors import UnavailableError

    if urls := QUERY_SERVICE.given({}, given, "--query"):
        return list(urls)
    try:
        async with session.client() as client:
            return list(await client.query.urls())
    except ErucaError as error:
        if not error.retryable:
            raise
        raise UnavailableError(error_line(error)) from error


def _options(session: Session, request: TableRequest, urls: list[str]) -> Options:
    """Return the options, as Spark's data source has them.

    Raises:
        OptionError: One is invalid.
    """
    from eruca.aio.cluster.requests import utc_text
    from eruca.exporting.options import Options

    given = {
        "url": ";".join(urls),
        "topic": request.topics,
        "columns": request.columns,
        "startingTimestamp": None if request.since is None else utc_text(request.since),
        "startingOffsets": request.adopt,
        "retrySeconds": str(request.retry_seconds),
        "maxRowsPerTrigger": str(request.rows_per_batch),
        "failOnDataLoss": "false" if request.allow_loss else "true",
        "damaged": request.damaged,
        "apiKeyFile": session.api_key_file,
        "caFile": session.ca_file,
    }
    return Options.parse({name: text for name, text in given.items() if text is not None})


def _exported(request: TableRequest, options: Options, stop: threading.Event) -> Exported:
    from rich.progress import MofNCompleteColumn

    from eruca.cli.sending.progress import progress_bar
    from eruca.exporting.columns import arrow_schema
    from eruca.tables.arrow_writer import ArrowWriter
    from eruca.tables.exporter import TableExporter
    from eruca.tables.targets import opened

    table = opened(
        request.target,
        arrow_schema(options.columns),
        request.table_options,
        adopts=request.adopt is not None,
    )
    with progress_bar(MofNCompleteColumn()) as progress:
        bar = progress.add_task("exporting", total=None)
        writer = ArrowWriter(options, lambda rows: progress.advance(bar, rows), stop=stop)
        exporter = TableExporter(table, options, writer, stop=stop)
        progress.update(bar, total=exporter.waiting_rows())
        exporter.run(is_over=stop.is_set)
    return exporter.done


def _outcome_of(error: BaseException) -> str:
    from eruca.exporting.errors import UnavailableError
    from eruca.tables.batches import TableBusyError

    if isinstance(error, asyncio.CancelledError):  # by a signal
        return "interrupted"
    return "retry" if isinstance(error, TableBusyError | UnavailableError) else "fault"


def _document(target: str, done: Exported) -> dict[str, Any]:
    outcome = "done" if done.has_found_messages else "nothing_new"
    return {"outcome": outcome, "target": target, **asdict(done)}


def _show(session: Session, target: str, done: Exported) -> None:
    batches = counted(done.batches, "batch", "batches")
    session.say(f"{target}: {counted(done.rows, 'message')} in {batches}")
    if done.missing_rows:
        session.say(f"deleted before they were read: {counted(done.missing_rows, 'message')}")
    if done.damaged_rows:
        session.say(f"damaged, see column damage: {counted(done.damaged_rows, 'message')}")
