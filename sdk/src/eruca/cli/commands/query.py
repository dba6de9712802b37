"""``eruca query``: messages by id, key and time from the query service, and its status."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypedDict

import typer

from eruca.cli.command import command
from eruca.cli.commands import query_forget, query_rebuild
from eruca.cli.commands.reading import checked_time
from eruca.cli.session import Session
from eruca.contract.limits import LIST_LIMIT_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eruca.contract.queries import FollowedLog, MessagePage, Missing, WholeMessage

_BODIES_MAX: Final = 100  # messages with bodies in one answer
_STATUS_HEADINGS: Final = (
    "broker",
    "read to offset",
    "behind bytes",
    "read at",
    "rows",
    "oldest",
    "gaps",
    "followed by",
    "rebuild",
)

TopicOption = Annotated[str, typer.Option("--topic", "-t", help="The topic.")]
TagOption = Annotated[str | None, typer.Option("--tag", help="Only messages with this tag.")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Only messages stored at this time or later: a time"
        " (2026-11-01T12:00:00Z), or a span before now (15m).",
    ),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", help="Only messages stored before this time.")
]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Only messages that this group has not read yet."),
]
PastOption = Annotated[
    bool, typer.Option("--past", help="With --group: messages that the group has read, instead.")
]
BodiesOption = Annotated[bool, typer.Option("--bodies", help="Include the messages' bodies.")]
CountOption = Annotated[
    int, typer.Option("--count", "-n", help="Maximum number of messages.", min=1)
]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", help="Continue after an answer, with its next_cursor.")
]


class _Wanted(TypedDict):
    """The search criteria of all pages."""

    topic: str
    key: str | None
    tag: str | None
    since: datetime | None
    until: datetime | None
    group: str | None
    group_state: Literal["past", "not_yet"]
    bodies: bool


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Find messages by id, key or time in the query service; show how far it has read.",
    )
    command(group, "id")(id_)
    command(group, "key")(key)
    command(group, "time")(time)
    command(group, "status")(status)
    query_rebuild.register(group)
    query_forget.register(group)
    app.add_typer(group, name="query")


async def id_(
    session: Session,
    *,
    message_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="A unique id from the send's result, or an offset id."),
    ],
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="The message's topic, if several topics have the id."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the message's body unchanged, and nothing else.")
    ] = False,
) -> None:
    """Show one message with all of its fields, whatever its topic.

    If several messages have the id, the first that consumers saw is shown, and the places of the
    others are listed.
    """
    async with session.client() as client:
        found = await client.query.message(message_id, topic=topic)
    if raw:
        session.write_octets(found.message.octets())
        return
    if session.is_json:
        session.show_json(found)
        return
    from eruca.cli.found_messages import (
        PLACE_HEADINGS,
        body_text,
        message_fields,
        place_row,
        say_missing,
    )

    session.show_record(message_fields(found.message))
    session.show_text("")
    session.show_text(body_text(found.message))
    if found.also_stored:
        session.show_text("")
        session.show_table(
            ("also " + PLACE_HEADINGS[0], *PLACE_HEADINGS[1:]), map(place_row, found.also_stored)
        )
    say_missing(session, found.incomplete)


async def key(
    session: Session,
    *,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A key of the messages; the comparison is exact.")
    ],
    topic: TopicOption,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    group: GroupOption = None,
    past: PastOption = False,
    bodies: BodiesOption = False,
    count: CountOption = 100,
    cursor: CursorOption = None,
) -> None:
    """Find a topic's messages by key, newest first."""
    wanted = _wanted(topic, tag, since, until, group, past=past, bodies=bodies, key=key)
    await _find(session, wanted, count, cursor)


async def time(
    session: Session,
    *,
    topic: TopicOption,
    since: SinceOption = None,
    until: UntilOption = None,
    tag: TagOption = None,
    group: GroupOption = None,
    past: PastOption = False,
    bodies: BodiesOption = False,
    count: CountOption = 100,
    cursor: CursorOption = None,
) -> None:
    """Find a topic's messages by store time, newest first.

    Without --since and --until, the topic's newest messages are shown.
    """
    wanted = _wanted(topic, tag, since, until, group, past=past, bodies=bodies)
    await _find(session, wanted, count, cursor)


async def status(session: Session) -> None:
    """Show how far each broker's log has been read, and by which query service."""
    async with session.client() as client:
        found = await client.query.status()
    if session.is_json:
        session.show_json(found)
        return
    session.show_table(_STATUS_HEADINGS, map(_status_row, found.followed))
    for name, fault in sorted(found.faults.items()):
        session.say(f"{name}: {fault}")


def _wanted(
    topic: str,
    tag: str | None,
    since: str | None,
    until: str | None,
    group: str | None,
    *,
    past: bool,
    bodies: bool,
    key: str | None = None,
) -> _Wanted:
    if past and group is None:
        raise typer.BadParameter("--past requires --group")
    return _Wanted(
        topic=topic,
        key=key,
        tag=tag,
        since=checked_time(since),
        until=checked_time(until),
        group=group,
        group_state="past" if past else "not_yet",
        bodies=bodies,
    )


async def _find(session: Session, wanted: _Wanted, count: int, cursor: str | None) -> None:
    found = await _pages(session, wanted, count, cursor)
    if session.is_json:
        session.show_json(found)
        return
    from eruca.cli.found_messages import MESSAGE_HEADINGS, message_row, say_missing

    headings = (*MESSAGE_HEADINGS, "body") if wanted["bodies"] else MESSAGE_HEADINGS
    session.show_table(
        headings,
        (message_row(message, bodies=wanted["bodies"]) for message in found.messages),
        none=None if found.incomplete else "no message found",
    )
    if found.next_cursor is not None:
        session.say(
            f"there may be more than {count}; raise --count, or continue with --cursor"
            f" {found.next_cursor}"
        )
    say_missing(session, found.incomplete)


async def _pages(session: Session, wanted: _Wanted, count: int, cursor: str | None) -> MessagePage:
    """Return enough pages for *count* messages, joined into one page."""
    found: list[WholeMessage] = []
    missing: dict[tuple[str | None, str], Missing] = {}
    async with session.client() as client:
        while True:
            limit = min(count - len(found), _BODIES_MAX if wanted["bodies"] else LIST_LIMIT_MAX)
            page = await client.query.find(**wanted, limit=limit, cursor=cursor)
            found += page.messages
            missing |= {(its.broker_name, its.reason): its for its in page.incomplete}
            cursor = page.next_cursor
            if cursor is None or len(found) >= count:
                break
    return page.model_copy(update={"messages": found, "incomplete": [*missing.values()]})


def _status_row(log: FollowedLog) -> Sequence[object]:
    from eruca.cli.shown_messages import time_text

    return (
        log.broker_name,
        log.log_offset,
        log.behind_bytes,
        None if log.as_of is None else time_text(log.as_of),
        log.rows,
        None if log.oldest_stored_at is None else time_text(log.oldest_stored_at),
        log.gaps or None,
        log.followed_by or "nobody",
        None if log.rebuild is None else query_rebuild.progress_text(log.rebuild),
    )
