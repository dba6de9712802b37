"""``eruca query rebuild``: rebuild the read model, and watch the progress.

The query services do the work. It continues if the command ends.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli.asking import YesOption, confirmed
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.counts import counted
from eruca.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.progress import Progress, TaskID

    from eruca.aio.client import AsyncClient
    from eruca.contract.queries import FollowedLog, QueryStatus, Rebuild

STALL_SECONDS: Final = 60.0  # without progress; a restarting broker is back by then
_LOOK_SECONDS: Final = 0.25


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "rebuild")(rebuild)


async def rebuild(
    session: Session,
    *,
    brokers: Annotated[
        list[str] | None,
        typer.Option("--broker", "-b", help="Only from this broker's log; may be repeated."),
    ] = None,
    yes: YesOption = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Watch the progress until it is done.")
    ] = True,
) -> int:
    """Rebuild the query service's read model from the brokers' logs.

    No message changes. The current read model answers queries until the new one has caught up. Rows
    of messages that a log no longer has are kept. Ctrl-C ends only the watching. The command does
    not wait for a broker that is away: its log is read again when it is back.
    """
    async with session.client() as client:
        wanted = _named((await client.query.status()).followed, brokers)
        away = await _away(client, wanted)
        if away and not session.is_json:
            session.say(_said_of(away))
        if not yes and not await confirmed(_question(wanted)):
            return EXIT_FAILED
        begun = await client.query.rebuild([log.broker_name for log in wanted])
        present = [name for name in begun if name not in away]
        done = await _watch(session, client, present) if wait else None
    if session.is_json:
        session.show_json({"brokers": begun, "away": away, "followed": done})
        return 0
    if done:
        rows = sum(log.rows for log in done)
        session.say(f"rebuilt: {', '.join(present)}; {counted(rows, 'row')}")
    if left := begun if done is None else [name for name in begun if name in away]:
        session.say(f"started: {', '.join(left)}; to see the progress: eruca query status")
    return 0


def progress_text(rebuild: Rebuild) -> str:
    """Return the progress of a rebuild."""
    done, size = progress_of(rebuild)
    return "requested" if size is None else f"{done * 100 // max(size, 1)} %"


def progress_of(rebuild: Rebuild) -> tuple[int, int | None]:
    """Return the number of log bytes read and their total; None: not started."""
    start, at, end = rebuild.from_offset, rebuild.log_offset, rebuild.end_offset
    if start is None or at is None or end is None:
        return 0, None
    return at - start, max(end, at) - start


def _named(followed: Sequence[FollowedLog], brokers: Sequence[str] | None) -> list[FollowedLog]:
    """Return the logs with these names.

    Raises:
        BrokerNotFoundError: One of them was never followed.
    """
    from eruca.contract.errors import BrokerNotFoundError

    known = {log.broker_name: log for log in followed}
    unknown = [name for name in brokers or () if name not in known]
    if unknown or not known:
        what = f"no log of {', '.join(unknown)}" if unknown else "no broker's log"
        names = ", ".join(known) or "none"
        raise BrokerNotFoundError(
            f"{what} has been followed yet", fix=f"followed logs: {names}; see eruca query status"
        )
    return [known[name] for name in dict.fromkeys(brokers or known)]


async def _away(client: AsyncClient, wanted: Sequence[FollowedLog]) -> list[str]:
    """Return the brokers that no name server knows; empty if that is unknown."""
    from eruca.contract.errors import NameServerSettlingError, NameServersUnreachableError

    try:
        living = {group.broker_name for group in await client.admin.brokers()}
    except (NameServersUnreachableError, NameServerSettlingError):
        return []
    return [log.broker_name for log in wanted if log.broker_name not in living]


def _said_of(away: Sequence[str]) -> str:
    return (
        f"not waiting for {', '.join(away)}, which no name server knows now. Its rows are"
        " rebuilt when it is back. To skip it, give --broker NAME for each of the others. For"
        " a broker that was removed for good: eruca query forget"
    )


def _question(wanted: Sequence[FollowedLog]) -> str:
    names = ", ".join(log.broker_name for log in wanted)
    rows = counted(sum(log.rows for log in wanted), "row")
    return f"Rebuild {rows} from the logs of {names}? Until then, the old ones answer queries."


async def _watch(
    session: Session, client: AsyncClient, brokers: Sequence[str]
) -> list[FollowedLog]:
    """Show the progress until it is done; return the final state.

    Raises:
        TimeoutExpiredError: There is no progress; the work continues.
        ErucaError: No query service answers for that long.
    """
    from rich.progress import DownloadColumn

    from eruca.cli.sending.progress import progress_bar
    from eruca.contract.errors import ErucaError, TimeoutExpiredError

    before: list[tuple[str, int]] = []
    moved_at = time.monotonic()
    with progress_bar(DownloadColumn(binary_units=True)) as progress:
        bars: dict[str, TaskID] = {name: progress.add_task(name, total=None) for name in brokers}
        while True:
            is_stalled = time.monotonic() - moved_at > STALL_SECONDS
            try:
                found = await client.query.status()
            except ErucaError as error:
                if is_stalled or not error.retryable:
                    raise
            else:
                logs = [log for log in found.followed if log.broker_name in bars]
                left = [log for log in logs if log.rebuild is not None]
                _show(progress, bars, logs)
                if not left:
                    return logs
                now = [
                    (log.broker_name, log.rebuild.log_offset or 0) for log in left if log.rebuild
                ]
                if now != before:
                    before, moved_at = now, time.monotonic()
                elif is_stalled:
                    raise TimeoutExpiredError(
                        f"nothing has been read for {STALL_SECONDS:.0f} s: {_faults(found, left)}",
                        fix="fix the cause; the rebuild continues by itself, see eruca query"
                        " status. For a broker that was removed for good: eruca query"
                        " forget",
                    )
            await asyncio.sleep(_LOOK_SECONDS)


def _faults(found: QueryStatus, left: Sequence[FollowedLog]) -> str:
    """Return why there is no progress."""
    reasons = []
    for log in left:
        name = log.broker_name
        nobody = None if log.followed_by else "no query service follows it"
        reasons.append(f"{name}: {found.faults.get(name) or nobody or 'no reason is known'}")
    return "; ".join(reasons)


def _show(progress: Progress, bars: Mapping[str, TaskID], logs: Sequence[FollowedLog]) -> None:
    for log in logs:
        bar = bars[log.broker_name]
        if log.rebuild is None:
            whole = progress.tasks[bar].total or 1
            progress.update(bar, total=whole, completed=whole)
        else:
            done, size = progress_of(log.rebuild)
            progress.update(bar, total=size, completed=done)
