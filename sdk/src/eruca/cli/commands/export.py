"""``eruca export``: a topic as a file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from eruca.cli.command import command
from eruca.cli.commands.reading import checked_start
from eruca.cli.commands.topics import TopicArgument
from eruca.cli.counts import counted
from eruca.cli.session import Session
from eruca.cli.starts import QueueEnd

if TYPE_CHECKING:
    from datetime import datetime

    from eruca.cli.exporting.damage import DamagedPlace
    from eruca.cli.exporting.files import FileFormat
    from eruca.cli.exporting.parts import ExportParts, ExportRequest
    from eruca.cli.exporting.service import ExportService
    from eruca.contract.errors import RangeDeletedError
    from eruca.contract.exports import ExportPartition, ExportPlan, ExportRange

PART_ROWS: Final = 100_000  # what a broken connection has to read again, at most
TRIES: Final = 5  # of one part, in a row
_DAMAGED_TOLD_MAX: Final = 20  # messages; all of them are in the file
_PAUSE_SECONDS: Final = 0.5  # before the second try; doubles


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "export")(export)


async def export(
    session: Session,
    *,
    topic: TopicArgument,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="FILE",
            help="The file: .ndjson, .arrow or .parquet. The last two need the extra 'arrow'.",
        ),
    ],
    columns: Annotated[
        str | None, typer.Option(help="Names of columns, parted by ','; by default all.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Stored then or later: a time, or so long ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Stored before then.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it is there.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Drop what an interrupted run has left.")
    ] = False,
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete",
            help="Leave out brokers that nobody can find, and say which.",
        ),
    ] = False,
    damaged: Annotated[
        Literal["refuse", "mark"],
        typer.Option(
            help="Where a message is damaged: end with an error that names it; or go on, with a "
            "row that has its place and what is wrong with it."
        ),
    ] = "refuse",
    query_url: Annotated[
        str | None,
        typer.Option(
            "--query",
            metavar="URL",
            help="Query services, parted by ';' [ERUCA_QUERY_URLS, else by the name servers].",
        ),
    ] = None,
) -> None:
    """Export what a topic holds now to a file, all of it, each message once.

    Where the query service knows of messages on a broker that no name server knows now, that is an
    error, unless --allow-incomplete is given.

    Interrupted, the same command goes on where it was: what has been read is kept beside the file,
    in FILE.parts, until the file is whole. Dead letters are in %DLQ%GROUP, what brokers record of
    themselves is in ERUCA_SYS_EVENTS.
    """
    from eruca.aio.http.clients import httpx_client
    from eruca.cli.exporting.files import check_available, format_of
    from eruca.cli.exporting.parts import ExportRequest, reserved
    from eruca.cli.exporting.service import STALL_SECONDS, ExportService
    from eruca.cli.found_messages import say_missing
    from eruca.contract.errors import MessageDamagedError, RangeDeletedError
    from eruca.core.routing.services import QUERY_SERVICE

    file_format = format_of(to)
    check_available(file_format)
    with reserved(to):
        _check_target(to, force=force)
        async with (
            session.client() as client,
            httpx_client(client.context.credentials, timeout=STALL_SECONDS) as http,
        ):
            urls = QUERY_SERVICE.given({}, query_url, "--query") or await client.query.urls()
            service = ExportService(http, urls, topic)
            request = ExportRequest(topic, file_format.media_type, columns, since, until, damaged)
            for left in reversed(range(TRIES)):
                parts = await _parts(
                    service, to, request, restart=restart, allow_incomplete=allow_incomplete
                )
                say_missing(session, parts.plan.incomplete)
                try:
                    await _export(session, service, parts, to, file_format)
                except RangeDeletedError as error:
                    if not (left and parts.is_empty):
                        raise _too_late(error, parts) from error
                    restart = True  # retention was faster than the first of what was planned
                except MessageDamagedError as error:
                    parts.delete_if_empty()
                    error.fix = (
                        "with --damaged mark it goes on: such a row has its place and what is "
                        "wrong with it; or restore its log's file from a backup, and repeat"
                    )
                    raise
                except BaseException:
                    parts.delete_if_empty()  # a run that asks for something else may follow
                    raise
                else:
                    break
        places = await _damaged(parts)
        parts.delete()
    _show(session, to, parts.plan, places)


def _too_late(error: RangeDeletedError, parts: ExportParts) -> RangeDeletedError:
    """Return the error that says what can be done where retention has deleted of a plan."""
    if parts.is_empty:
        parts.delete()
        return error
    kept = counted(parts.plan.rows - sum(part.rows for part in parts.missing()), "message")
    error.fix = (
        f"with --restart it begins anew with what is left; {kept} had been read, "
        "and --since or --columns makes it shorter"
    )
    return error


async def _export(
    session: Session,
    service: ExportService,
    parts: ExportParts,
    target: Path,
    file_format: FileFormat,
) -> None:
    """Read what is missing, and make the file of it."""
    from rich.progress import MofNCompleteColumn

    from eruca.cli.exporting.files import write_file
    from eruca.cli.sending.progress import progress_bar

    plan, missing = parts.plan, parts.missing()
    done = plan.rows - sum(partition.rows for partition in missing)
    if done:
        session.say(f"goes on: {done:,} of {counted(plan.rows, 'message')} had been read before")
    with progress_bar(MofNCompleteColumn()) as progress:
        reading = progress.add_task(plan.topic, total=plan.rows, completed=done)
        columns = parts.request.columns
        query = {"codec": file_format.codec} | ({} if columns is None else {"columns": columns})
        if parts.request.damaged != "refuse":  # which services of earlier versions do, too
            query["damaged"] = parts.request.damaged
        for partition in missing:
            await _read_part(service, parts, partition, file_format, query)
            progress.advance(reading, partition.rows)
        writing = progress.add_task(target.name, total=plan.rows)
        paths = [parts.path(partition) for partition in plan.partitions]
        await asyncio.to_thread(
            write_file,
            target,
            file_format,
            paths,
            plan.rows,
            lambda rows: progress.advance(writing, rows),
        )


def _check_target(target: Path, *, force: bool) -> None:
    from eruca.contract.errors import ConflictError

    if target.is_dir():
        raise ConflictError(f"{target} is a directory", fix="name a file in it")
    if target.exists() and not force:
        raise ConflictError(f"{target} is there already", fix="give --force to replace it")


async def _parts(
    service: ExportService,
    target: Path,
    request: ExportRequest,
    *,
    restart: bool,
    allow_incomplete: bool,
) -> ExportParts:
    """Return the parts that an earlier run has left, else those of a new plan."""
    from eruca.aio.cluster.requests import utc_text
    from eruca.cli.exporting.parts import ExportParts

    found = None if restart else ExportParts.found(target, request)
    if found is not None:
        return found
    times = {"from": request.since, "to": request.until}
    moments = {name: _moment(text) for name, text in times.items() if text is not None}
    if len(moments) == len(times) and moments["to"] < moments["from"]:
        raise typer.BadParameter(f"--until {request.until} is before --since {request.since}")
    query = {name: utc_text(moment) for name, moment in moments.items()}
    plan = await service.plan({**query, "partition_rows": str(PART_ROWS)})
    if not allow_incomplete:
        _refuse_incomplete(plan)
    return ExportParts.begun(target, request, _with_a_partition(plan))


def _refuse_incomplete(plan: ExportPlan) -> None:
    from eruca.contract.errors import BrokerUnreachableError

    if plan.incomplete:
        away = "; ".join(f"{missing.broker_name}: {missing.detail}" for missing in plan.incomplete)
        raise BrokerUnreachableError(
            f"not all of {plan.topic} can be exported: {away}",
            fix="wait until it is back, or give --allow-incomplete to export the rest; one that "
            "was taken away for good: eruca query forget",
        )


def _moment(text: str) -> datetime:
    start = checked_start(text)
    if isinstance(start, QueueEnd):
        raise typer.BadParameter(f"{text!r} is no time")
    return start


def _with_a_partition(plan: ExportPlan) -> ExportPlan:
    """Return *plan* with a partition without rows, where it has none: it tells the columns.

    Raises:
        BrokerUnreachableError: There is no queue to read even that from.
    """
    from eruca.contract.errors import BrokerUnreachableError
    from eruca.contract.exports import ExportPartition, ExportRange

    if plan.partitions:
        return plan
    if not plan.queues:
        raise BrokerUnreachableError(
            f"nothing of {plan.topic} can be exported: no broker that has it is there",
            fix="wait until one is back",
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
    """Read a partition into its part, again where it breaks off."""
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
        # What an answer breaks off for is told by the one that begins there.
        await service.check(_behind(partition.ranges, rows), query, media_type)
        raise broken or TransportError(
            f"expected {partition.rows} rows, and {rows} came: the answer ended early"
        )
    parts.keep(partition)


def _behind(ranges: Sequence[ExportRange], rows: int) -> list[ExportRange]:
    """Return what is left of *ranges* behind their first *rows*."""
    left = []
    for a_range in ranges:
        begin = min(a_range.from_offset + rows, a_range.to_offset)
        rows -= begin - a_range.from_offset
        if begin < a_range.to_offset:
            left.append(a_range.model_copy(update={"from_offset": begin}))
    return left


async def _damaged(parts: ExportParts) -> list[DamagedPlace]:
    """Return which messages have rows that say that they are damaged."""
    from eruca.cli.exporting.damage import damaged_places

    if parts.request.damaged == "refuse":
        return []
    paths = [parts.path(partition) for partition in parts.plan.partitions]
    return await asyncio.to_thread(damaged_places, paths, parts.request.media_type)


def _show(session: Session, target: Path, plan: ExportPlan, damaged: list[DamagedPlace]) -> None:
    size = target.stat().st_size
    if session.is_json:
        missing = [missing.model_dump(mode="json") for missing in plan.incomplete]
        session.show_json(
            {
                "file": str(target),
                "rows": plan.rows,
                "size": size,
                "incomplete": missing,
                "damaged": len(damaged),
            }
        )
        return
    session.say(f"{target}: {counted(plan.rows, 'message')}, {counted(size, 'byte')}")
    if damaged:
        session.say(f"of them damaged, and marked so: {len(damaged):,}")
    for place in damaged[:_DAMAGED_TOLD_MAX]:
        session.say(f"  {place}")
    if len(damaged) > _DAMAGED_TOLD_MAX:
        session.say(f"  and {counted(len(damaged) - _DAMAGED_TOLD_MAX, 'other')}")
