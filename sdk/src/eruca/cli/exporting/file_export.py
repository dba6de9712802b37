"""Export a topic to a file, part by part; a run that is interrupted continues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import typer

from eruca.cli.command import EXIT_RETRY, report_error
from eruca.cli.counts import counted
from eruca.cli.session import Session
from eruca.cli.stoppable import stoppable

if TYPE_CHECKING:
    from eruca.cli.exporting.damage import DamagedPlace
    from eruca.cli.exporting.files import FileFormat
    from eruca.cli.exporting.parts import ExportParts, ExportRequest
    from eruca.cli.exporting.service import ExportService
    from eruca.contract.errors import RangeDeletedError
    from eruca.contract.exports import ExportPartition, ExportPlan, ExportRange

PART_ROWS: Final = 100_000  # maximum number of rows to read again after a broken connection
TRIES: Final = 5  # of one part, in a row
_DAMAGED_SHOWN_MAX: Final = 20  # messages; the file has all of them
_PAUSE_SECONDS: Final = 0.5  # before the second try; doubles


@dataclass(frozen=True, slots=True)
class FileRequest:
    """An export to a file: its messages, its file and its options."""

    topic: str
    to: Path
    columns: str | None = None
    since: str | None = None
    until: str | None = None
    since_time: datetime | None = None  # what since means now
    until_time: datetime | None = None
    force: bool = False
    restart: bool = False
    allow_incomplete: bool = False
    damaged: Literal["refuse", "mark"] = "refuse"
    metrics_file: Path | None = None
    push_gateway: str | None = None
    query_url: str | None = None


@dataclass(frozen=True, slots=True)
class _Exported:
    """A finished export."""

    plan: ExportPlan
    damaged: Sequence[DamagedPlace]  # the messages that are marked in the file
    size: int  # of the file, in bytes


async def export_to_file(session: Session, wanted: FileRequest) -> int:
    """Export all messages that the topic has now, each once; return the exit code.

    Raises:
        ErucaError: The file exists, or the service refuses.
    """
    from eruca.contract.errors import ErucaError
    from eruca.exporting.errors import OptionError
    from eruca.exporting.job_metrics import MetricTargets, measured

    places = MetricTargets(wanted.metrics_file, wanted.push_gateway)
    try:
        places.check()
    except OptionError as error:
        raise typer.BadParameter(str(error)) from error
    # The topic instead of the file, whose name often has a date: another target would be another
    # job, and its last success would be unknown.
    try:
        with measured("export", f"file:{wanted.topic}", places, _outcome_of) as run:
            done = await _exported(session, wanted)
            named = {missing.broker_name for missing in done.plan.incomplete}
            run.ended(
                {
                    "outcome": "done",
                    "rows": done.plan.rows,
                    "damaged_rows": len(done.damaged),
                    "size_bytes": done.size,
                    "missing_brokers": len(named - {None}),
                    "missing_brokers_unknown": int(None in named),
                }
            )
    except ErucaError as error:
        if not error.retryable:
            raise
        report_error(session, error)
        return EXIT_RETRY
    _show(session, wanted.to, done)
    return 0


def _outcome_of(error: BaseException) -> str:
    from eruca.contract.errors import ErucaError

    if isinstance(error, asyncio.CancelledError):  # by a signal
        return "interrupted"
    return "retry" if isinstance(error, ErucaError) and error.retryable else "fault"


async def _exported(session: Session, wanted: FileRequest) -> _Exported:
    from eruca.aio.http.clients import httpx_client
    from eruca.cli.exporting.files import check_available, format_of
    from eruca.cli.exporting.parts import ExportRequest, reserved
    from eruca.cli.exporting.service import STALL_SECONDS, ExportService
    from eruca.cli.found_messages import say_missing
    from eruca.contract.errors import MessageDamagedError, RangeDeletedError
    from eruca.core.routing.services import QUERY_SERVICE

    to, restart = wanted.to, wanted.restart
    file_format = format_of(to)
    check_available(file_format)
    with reserved(to):
        _check_target(to, force=wanted.force)
        async with (
            session.client() as client,
            httpx_client(client.context.credentials, timeout=STALL_SECONDS) as http,
        ):
            urls = QUERY_SERVICE.given({}, wanted.query_url, "--query") or await client.query.urls()
            service = ExportService(http, urls, wanted.topic)
            request = ExportRequest(
                wanted.topic,
                file_format.media_type,
                wanted.columns,
                wanted.since,
                wanted.until,
                wanted.damaged,
            )
            for left in reversed(range(TRIES)):
                parts = await _parts(service, wanted, request, restart=restart)
                say_missing(session, parts.plan.incomplete)
                try:
                    await _export(session, service, parts, to, file_format)
                except RangeDeletedError as error:
                    if not (left and parts.is_empty):
                        raise _too_late(error, parts) from error
                    restart = True  # retention has deleted messages before the first part was read
                except MessageDamagedError as error:
                    parts.delete_if_empty()
                    error.fix = (
                        "use --damaged mark to write a row with its place and its fault; or"
                        " restore its log file from a backup and retry"
                    )
                    raise
                except BaseException:
                    parts.delete_if_empty()  # allows a later run with other options
                    raise
                else:
                    break
        places = await _damaged(parts)
        parts.delete()
        size = to.stat().st_size
    return _Exported(parts.plan, places, size)


def _too_late(error: RangeDeletedError, parts: ExportParts) -> RangeDeletedError:
    """Return the error for a plan whose messages retention has deleted."""
    if parts.is_empty:
        parts.delete()
        return error
    kept = counted(parts.plan.rows - sum(part.rows for part in parts.missing()), "message")
    error.fix = (
        f"use --restart to begin again with the remaining messages; {kept} had been read, and"
        " --since or --columns shortens the export"
    )
    return error


async def _export(
    session: Session,
    service: ExportService,
    parts: ExportParts,
    target: Path,
    file_format: FileFormat,
) -> None:
    """Read the missing parts, then write the file from all of them."""
    from rich.progress import MofNCompleteColumn

    from eruca.cli.exporting.files import write_file
    from eruca.cli.sending.progress import progress_bar
    from eruca.exporting.errors import StoppedError

    plan, missing = parts.plan, parts.missing()
    done = plan.rows - sum(partition.rows for partition in missing)
    if done:
        session.say(f"continuing: {done:,} of {counted(plan.rows, 'message')} are already there")
    with progress_bar(MofNCompleteColumn()) as progress:
        reading = progress.add_task(plan.topic, total=plan.rows, completed=done)
        columns = parts.request.columns
        query = {"codec": file_format.codec} | ({} if columns is None else {"columns": columns})
        if parts.request.damaged != "refuse":  # services of earlier versions support this, too
            query["damaged"] = parts.request.damaged
        for partition in missing:
            await _read_part(service, parts, partition, file_format, query)
            progress.advance(reading, partition.rows)
        writing = progress.add_task(target.name, total=plan.rows)
        paths = [parts.path(partition) for partition in plan.partitions]

        def write(stop: threading.Event) -> None:
            def count(rows: int) -> None:
                progress.advance(writing, rows)
                if stop.is_set():
                    raise StoppedError

            write_file(target, file_format, paths, plan.rows, count)

        await stoppable(write)


def _check_target(target: Path, *, force: bool) -> None:
    from eruca.contract.errors import ConflictError

    if target.is_dir():
        raise ConflictError(f"{target} is a directory", fix="name a file in it")
    if target.exists() and not force:
        raise ConflictError(f"{target} already exists", fix="use --force to replace it")


async def _parts(
    service: ExportService,
    wanted: FileRequest,
    request: ExportRequest,
    *,
    restart: bool,
) -> ExportParts:
    """Return the parts of an earlier run, else the parts of a new plan."""
    from eruca.aio.cluster.requests import utc_text
    from eruca.cli.exporting.parts import ExportParts

    found = None if restart else ExportParts.found(wanted.to, request)
    if found is not None:
        return found
    since, until = wanted.since_time, wanted.until_time
    if since is not None and until is not None and until < since:
        raise typer.BadParameter(f"--until {request.until} is before --since {request.since}")
    times = {"since": since, "until": until}
    query = {name: utc_text(time) for name, time in times.items() if time is not None}
    plan = await service.plan({**query, "partition_rows": str(PART_ROWS)})
    if not wanted.allow_incomplete:
        _refuse_incomplete(plan)
    return ExportParts.begun(wanted.to, request, _with_a_partition(plan))


def _refuse_incomplete(plan: ExportPlan) -> None:
    from eruca.cli.found_messages import missing_line
    from eruca.contract.errors import BrokerUnreachableError, DatabaseUnavailableError

    if not plan.incomplete:
        return
    lacking = "; ".join(map(missing_line, plan.incomplete))
    detail = f"cannot export all of {plan.topic}: {lacking}"
    if all(missing.broker_name is None for missing in plan.incomplete):
        raise DatabaseUnavailableError(
            detail,
            fix="wait until the query service's database is back, or use --allow-incomplete to"
            " export what live brokers have",
        )
    raise BrokerUnreachableError(
        detail,
        fix="wait until the broker is back, or use --allow-incomplete to export the rest;"
        " for a broker that was removed for good: eruca query forget",
    )


def _with_a_partition(plan: ExportPlan) -> ExportPlan:
    """Return *plan* with an empty partition if it has no partition: it provides the columns.

    Raises:
        BrokerUnreachableError: No queue is left to read the columns from.
    """
    from eruca.contract.errors import BrokerUnreachableError
    from eruca.contract.exports import ExportPartition, ExportRange

    if plan.partitions:
        return plan
    if not plan.queues:
        raise BrokerUnreachableError(
            f"cannot export {plan.topic}: none of its brokers is live",
            fix="wait until a broker is back",
        )
    queue = plan.queues[0]
    nothing = ExportRange(
        broker_name=queue.broker_name,
        queue_id=queue.queue_id,
        from_offset=queue.max_offset,
        to_offset=queue.max_offset,
    )
    empty = ExportPartition(index=0, rows=0, ranges=[nothing])
    return plan.model_copy(update={"partitions": [empty]})


async def _read_part(
    service: ExportService,
    parts: ExportParts,
    partition: ExportPartition,
    file_format: FileFormat,
    query: Mapping[str, str],
) -> None:
    """Read a partition into its part; retry where the answer breaks off."""
    from eruca.contract.errors import ErucaError

    pause = _PAUSE_SECONDS
    for left in reversed(range(TRIES)):
        try:
            await _read_once(service, parts, partition, file_format, query)
        except ErucaError as error:
            if not (left and error.retryable):
                raise
            service.turn_away()
            await asyncio.sleep(max(pause, error.retry_after_seconds or 0.0))
            pause *= 2
        else:
            return


async def _read_once(
    service: ExportService,
    parts: ExportParts,
    partition: ExportPartition,
    file_format: FileFormat,
    query: Mapping[str, str],
) -> None:
    from eruca.cli.exporting.files import row_count
    from eruca.contract.errors import TransportError

    media_type = file_format.media_type
    broken: TransportError | None = None
    try:
        with parts.open_part(partition) as file:
            async with aclosing(service.rows(partition.ranges, query, media_type)) as pieces:
                async for piece in pieces:
                    file.write(piece)
    except TransportError as error:
        broken = error
    rows = await asyncio.to_thread(row_count, parts.unfinished(partition), media_type)
    if broken is not None or rows != partition.rows:
        # A request that begins at the break returns the error that caused it.
        await service.check(_behind(partition.ranges, rows), query, media_type)
        raise broken or TransportError(
            f"expected {partition.rows} rows, found {rows}: the answer ended early"
        )
    parts.keep(partition)


def _behind(ranges: Sequence[ExportRange], rows: int) -> list[ExportRange]:
    """Return the remaining *ranges* after their first *rows*."""
    left = []
    for a_range in ranges:
        begin = min(a_range.from_offset + rows, a_range.to_offset)
        rows -= begin - a_range.from_offset
        if begin < a_range.to_offset:
            left.append(a_range.model_copy(update={"from_offset": begin}))
    return left


async def _damaged(parts: ExportParts) -> list[DamagedPlace]:
    """Return the places of messages whose rows are marked as damaged."""
    from eruca.cli.exporting.damage import damaged_places

    if parts.request.damaged == "refuse":
        return []
    paths = [parts.path(partition) for partition in parts.plan.partitions]
    return await asyncio.to_thread(damaged_places, paths, parts.request.media_type)


def _show(session: Session, target: Path, done: _Exported) -> None:
    plan, damaged = done.plan, done.damaged
    if session.is_json:
        missing = [missing.model_dump(mode="json") for missing in plan.incomplete]
        session.show_json(
            {
                "file": str(target),
                "rows": plan.rows,
                "size": done.size,
                "incomplete": missing,
                "damaged": len(damaged),
            }
        )
        return
    session.say(f"{target}: {counted(plan.rows, 'message')}, {counted(done.size, 'byte')}")
    if damaged:
        session.say(f"damaged messages, marked in the file: {len(damaged):,}")
    for place in damaged[:_DAMAGED_SHOWN_MAX]:
        session.say(f"  {place}")
    if len(damaged) > _DAMAGED_SHOWN_MAX:
        session.say(f"  and {counted(len(damaged) - _DAMAGED_SHOWN_MAX, 'other')}")
