"""``eruca backup`` and ``eruca restore``: copies of a broker's log, and stores made of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.commands.reading import checked_time
from eruca.cli.counts import counted
from eruca.cli.session import Session

if TYPE_CHECKING:
    from eruca.cli.backups.manifests import Manifest
    from eruca.objects.repositories import Repository

_HEADINGS: Final = ("backup", "begun at", "last record", "min offset", "end offset", "bytes", "new")

BrokerArgument = Annotated[str, typer.Argument(metavar="NAME", help="The broker.")]
RepositoryOption = Annotated[
    str,
    typer.Option(
        "--repository",
        "-r",
        metavar="PLACE",
        envvar="ERUCA_BACKUP_REPOSITORY",
        help="Where the backups are: a folder, or s3://BUCKET/PREFIX, gs://…, az://…, which need"
        " the extra 'backup' and the store's own environment variables.",
    ),
]
NumberOption = Annotated[
    int | None, typer.Option("--number", help="The backup; default: the latest.", min=1)
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Back up brokers' logs while they serve.")
    command(group, "create")(create)
    command(group, "list")(list_backups)
    command(group, "verify")(verify)
    app.add_typer(group, name="backup")
    command(app, "restore")(restore)


async def create(
    session: Session,
    *,
    broker: BrokerArgument,
    repository: RepositoryOption,
    keep: Annotated[
        int | None,
        typer.Option("--keep", help="Keep this number of backups, and delete older ones.", min=1),
    ] = None,
) -> None:
    """Copy what a broker has acknowledged and no earlier backup has.

    Everything that was acknowledged when the command began is in the backup, once it is durable.
    The log is read over HTTP, from a standby if there is one that is in sync. The key needs the
    right to query the log. If the command is interrupted, run it again: it continues.
    """
    from rich.progress import DownloadColumn, TaskID

    from eruca.cli.backups.copying import Plan, Told, back_up
    from eruca.cli.backups.log_source import BrokerLog
    from eruca.cli.sending.progress import progress_bar
    from eruca.objects.places import folder_of, open_repository

    opened = open_repository(repository, folder_of(broker))
    plans: list[Plan] = []
    with progress_bar(DownloadColumn(binary_units=True)) as progress:
        task: TaskID = progress.add_task(broker, total=None)

        def planned(plan: Plan) -> None:
            if plan.reused_bytes:
                reused = counted(plan.reused_bytes, "byte")
                session.say(f"copying from log offset {plan.from_offset}: {reused} are there")
            plans.append(plan)
            progress.update(task, total=plan.end_offset - plan.from_offset, completed=0)

        def copied(log_offset: int) -> None:
            progress.update(task, completed=log_offset - plans[-1].from_offset)

        async with session.client() as client:
            log = BrokerLog(client, broker)
            try:
                made = await back_up(opened, log, keep=keep, told=Told(planned, copied))
            finally:
                await log.close()
    manifest = made.manifest
    if session.is_json:
        document = _document(opened, manifest)
        document["not_durable_bytes"] = made.not_durable_bytes
        document["deleted_backups"] = made.deleted_backups
        session.show_json(document)
        return
    session.say(
        f"backup {manifest.number} of {broker}: log offsets {manifest.min_offset} to "
        f"{manifest.end_offset}, {counted(manifest.copied_bytes, 'new byte')}"
    )
    if made.not_durable_bytes:
        missing = counted(made.not_durable_bytes, "byte")
        session.say(f"not in it, because the broker has not flushed them yet: {missing}")
    if made.deleted_backups:
        session.say("deleted: backup " + ", ".join(map(str, made.deleted_backups)))


async def list_backups(
    session: Session, *, broker: BrokerArgument, repository: RepositoryOption
) -> int:
    """List a broker's backups, the latest one last; exit with 1 if one's manifest is invalid."""
    from eruca.cli.backups.copying import live_numbers, numbers
    from eruca.objects.places import folder_of, open_repository

    opened = open_repository(repository, folder_of(broker))
    found, invalid = await _manifests(opened, live_numbers(await numbers(opened)))
    for fault in invalid.values():
        session.say(f"error: {fault}")
    code = EXIT_FAILED if invalid else 0
    if session.is_json:
        session.show_json([_document(opened, manifest) for manifest in found])
        return code
    rows = [
        (
            manifest.number,
            manifest.begun_at,
            _time_of(manifest.stored_ms),
            manifest.min_offset,
            manifest.end_offset,
            manifest.size,
            manifest.copied_bytes,
        )
        for manifest in found
    ]
    none = f"{opened} has no {'other ' if invalid else ''}backup"
    session.show_table(_HEADINGS, rows, none=none)
    return code


async def verify(
    session: Session,
    *,
    broker: BrokerArgument,
    repository: RepositoryOption,
    number: Annotated[
        int | None, typer.Option("--number", help="The backup; default: all.", min=1)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare sizes only; read no record.")
    ] = False,
) -> int:
    """Verify that a broker's backups are whole; exit with 1 if one is not.

    Every byte is read and compared with its SHA-256, and the records are walked.
    """
    from rich.progress import DownloadColumn

    from eruca.cli.backups.copying import live_numbers, numbers
    from eruca.cli.backups.restoring import faults_of
    from eruca.cli.sending.progress import progress_bar
    from eruca.objects.places import folder_of, open_repository

    opened = open_repository(repository, folder_of(broker))
    if number is None:
        wanted = live_numbers(await numbers(opened))
        if not wanted:
            raise _nothing(opened)
    else:
        wanted = [number]
    manifests, invalid = await _manifests(opened, wanted)
    if not manifests and not invalid:
        raise _nothing(opened, number)
    results = {one: [fault] for one, fault in invalid.items()}
    with progress_bar(DownloadColumn(binary_units=True)) as progress:
        task = progress.add_task(broker, total=sum(manifest.size for manifest in manifests))
        for manifest in manifests:
            results[manifest.number] = await faults_of(
                opened, manifest, reads=not quick, told=lambda size: progress.advance(task, size)
            )
    results = dict(sorted(results.items()))
    if session.is_json:
        session.show_json(
            [{"number": number, "faults": faults} for number, faults in results.items()]
        )
    else:
        for one, faults in results.items():
            session.show_text(f"backup {one}: {counted(len(faults), 'fault') if faults else 'ok'}")
            for fault in faults:
                session.show_text(f"  {fault}")
    return EXIT_FAILED if any(results.values()) else 0


async def restore(
    session: Session,
    *,
    broker: BrokerArgument,
    repository: RepositoryOption,
    to: Annotated[
        Path,
        typer.Option("--to", metavar="DIRECTORY", help="The store's directory, which is empty."),
    ],
    number: NumberOption = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="End at this log offset or before, or at the last record stored at this time: a"
            " time, or a span before now."
        ),
    ] = None,
) -> None:
    """Restore a broker's store from a backup, into an empty directory.

    Start the broker on it then: it rebuilds everything else from the log. Never restore a store
    beside a running broker of that name, unless the broker has replicas.
    """
    from rich.progress import DownloadColumn

    from eruca.cli.backups.copying import live_numbers, numbers
    from eruca.cli.backups.restoring import restore as restored_from
    from eruca.cli.sending.progress import progress_bar
    from eruca.objects.places import folder_of, open_repository

    opened = open_repository(repository, folder_of(broker))
    if number is None:
        known = live_numbers(await numbers(opened))
        if not known:
            raise _nothing(opened)
        number = known[-1]
    manifest = await _manifest(opened, number)
    limit = int(until) if until and until.isascii() and until.isdecimal() else checked_time(until)
    with progress_bar(DownloadColumn(binary_units=True)) as progress:
        task = progress.add_task(broker, total=manifest.size)
        restored = await restored_from(
            opened,
            manifest,
            to,
            until=limit,
            told=lambda size: progress.advance(task, size),
        )
    if session.is_json:
        session.show_json(
            {
                "directory": str(to),
                "broker_name": broker,
                "number": number,
                "log_id": manifest.log_id,
                "min_offset": restored.min_offset,
                "end_offset": restored.end_offset,
                "last_stored_at": _time_of(restored.stored_ms),
            }
        )
        return
    session.say(
        f"{to}: log offsets {restored.min_offset} to {restored.end_offset} of {broker}, from "
        f"backup {number}; the last record was stored at {_time_of(restored.stored_ms)}"
    )


async def _manifests(
    repository: Repository, numbers: list[int]
) -> tuple[list[Manifest], dict[int, str]]:
    """Return the manifests of backups, and by number why one is invalid; without deleted ones."""
    from eruca.cli.backups.copying import read_manifest
    from eruca.contract.errors import ConflictError

    manifests: list[Manifest] = []
    invalid: dict[int, str] = {}
    for number in numbers:
        try:
            manifests.append(await read_manifest(repository, number))
        except ConflictError as error:
            invalid[number] = error.detail
        except FileNotFoundError:
            continue
    return manifests, invalid


async def _manifest(repository: Repository, number: int) -> Manifest:
    from eruca.cli.backups.copying import read_manifest

    try:
        return await read_manifest(repository, number)
    except FileNotFoundError:
        raise _nothing(repository, number) from None


def _nothing(repository: Repository, number: int | None = None) -> Exception:
    from eruca.contract.errors import ConflictError

    if number is not None:
        return ConflictError(
            f"{repository} has no backup {number}", fix="eruca backup list shows those it has"
        )
    return ConflictError(f"{repository} has no backup", fix="check --repository and the name")


def _document(repository: Repository, manifest: Manifest) -> dict[str, object]:
    return {
        "number": manifest.number,
        "broker_name": manifest.broker_name,
        "cluster": manifest.cluster,
        "repository": str(repository),
        "log_id": manifest.log_id,
        "begun_at": manifest.begun_at,
        "ended_at": manifest.ended_at,
        "min_offset": manifest.min_offset,
        "end_offset": manifest.end_offset,
        "epoch": manifest.epoch or None,
        "last_stored_at": _time_of(manifest.stored_ms),
        "bytes": manifest.size,
        "copied_bytes": manifest.copied_bytes,
        "copied_from": manifest.copied_from,
        "pieces": len(manifest.pieces),
    }


def _time_of(stored_ms: int | None) -> str | None:
    from eruca.cli.shown_messages import time_text

    return None if stored_ms is None else time_text(datetime.fromtimestamp(stored_ms / 1000, UTC))
