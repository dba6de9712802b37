"""Show a group's lag, once or repeatedly."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from eruca.cli.counts import counted
from eruca.cli.session import Session, output_console

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from eruca.aio.client import AsyncClient
    from eruca.aio.group_admin import GroupLag
    from eruca.contract.groups import CommittedOffset

LAG_HEADINGS: Final = (
    "topic",
    "broker",
    "queue",
    "min offset",
    "committed offset",
    "max offset",
    "lag",
    "oldest unread",
    "owner",
)
TRAFFIC_HEADINGS: Final = ("topic", "broker", "messages read", "bytes read", "since")


async def watch_lag(
    session: Session, client: AsyncClient, group: str, topic: str | None, every: float
) -> None:
    """Show a group's lag again and again, every *every* seconds.

    Raises:
        ErucaError: The first reading failed.
    """
    from rich.live import Live

    from eruca.cli.shown_messages import time_text

    async with aclosing(_looks(session, client, group, topic, every)) as looks:
        if session.is_json:
            async for behind in looks:
                session.show_line({"at": time_text(datetime.now(UTC))} | lag_document(behind))
            return
        console = output_console()
        # A pipe cannot be redrawn: there, one table follows another.
        with (
            Live(console=console, auto_refresh=False)
            if console.is_terminal
            else nullcontext() as live
        ):
            async for behind in looks:
                now = datetime.now(UTC)
                title = f"{group}: {total_text(behind, now)}"
                table = session.table(LAG_HEADINGS, lag_rows(behind, now), title=title)
                if live is None:
                    console.print(table, crop=False)
                else:
                    live.update(table, refresh=True)


def partial(behind: GroupLag) -> GroupLag:
    """Return the lag of the known queues, if a broker that is away may have more."""
    return replace(behind, lag=None, oldest_unconsumed_at=None)


def total_text(behind: GroupLag, now: datetime) -> str:
    """Return a group's total lag, in words."""
    lag = behind.lag
    what = "an unknown number of messages" if lag is None else counted(lag, "message")
    age = age_text(behind.oldest_unconsumed_at, now)
    return f"{what} behind" + (f", the oldest for {age}" if age else "")


def lag_rows(behind: GroupLag, now: datetime) -> Iterable[Sequence[object]]:
    """Yield a row for each queue, below ``LAG_HEADINGS``."""
    for queue, committed in sorted(behind.queues.items()):
        yield (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            committed.min_offset,
            _position(committed),
            committed.max_offset,
            committed.lag,
            age_text(committed.oldest_unconsumed_at, now),
            committed.owner,
        )


def lag_document(behind: GroupLag) -> dict[str, object]:
    """Return a group's lag, in total and in each queue, as JSON data."""
    from eruca.cli.shown_messages import time_text

    oldest = behind.oldest_unconsumed_at
    return {
        "lag": behind.lag,
        "oldest_unconsumed_at": None if oldest is None else time_text(oldest),
        "queues": queue_documents(behind),
    }


def queue_documents(behind: GroupLag) -> list[dict[str, object]]:
    """Return a group's offsets in each queue, as JSON data."""
    return [
        {"broker_name": queue.broker_name} | committed.model_dump(mode="json")
        for queue, committed in sorted(behind.queues.items())
    ]


def traffic_rows(behind: GroupLag) -> Iterable[Sequence[object]]:
    """Yield a row for each topic at each broker, below ``TRAFFIC_HEADINGS``."""
    from eruca.cli.shown_messages import time_text

    for one in sorted(behind.traffic, key=lambda one: (one.topic, one.broker_name)):
        yield one.topic, one.broker_name, one.message_count, one.size_bytes, time_text(one.since)


def traffic_documents(behind: GroupLag) -> list[dict[str, object]]:
    """Return what a group took over of each topic at each broker, as JSON data."""
    from eruca.cli.shown_messages import time_text

    return [asdict(one) | {"since": time_text(one.since)} for one in behind.traffic]


def age_text(since: datetime | None, now: datetime) -> str | None:
    """Return the age of *since*, in its two largest units."""
    if since is None:
        return None
    seconds = max(int((now - since).total_seconds()), 0)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


async def _looks(
    session: Session, client: AsyncClient, group: str, topic: str | None, every: float
) -> AsyncGenerator[GroupLag, None]:
    """Yield a group's lag again and again; raises as :func:`watch_lag` does.

    After the first success, errors are reported and retried, for example while a broker restarts.
    """
    from eruca.contract.errors import ErucaError

    was_known, is_known = False, True
    while True:
        session.check_reader()
        try:
            behind = await client.admin.groups.lag(group, topic=topic)
        except ErucaError as error:
            if not was_known:
                raise
            if is_known:
                session.say(f"the lag is unknown now, retrying: {error.detail}")
            is_known = False
        else:
            if not is_known:
                session.say("the lag is known again")
            was_known = is_known = True
            yield behind
        await asyncio.sleep(every)


def _position(committed: CommittedOffset) -> str | int | None:
    """Return a group's offset, or where it will begin if it has none yet."""
    if committed.committed_offset is not None or committed.started is None:
        return committed.committed_offset
    return f"({committed.started.offset})"
