"""``eruca group``: consumer groups, who is in them, where they stand, and moving them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eruca.cli import silent_brokers
from eruca.cli.asking import YesOption, confirmed
from eruca.cli.changes import change_lines
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.group_lags import (
    LAG_HEADINGS,
    age_text,
    lag_document,
    lag_rows,
    partial,
    queue_documents,
    total_text,
    watch_lag,
)
from eruca.cli.session import Session
from eruca.cli.starts import START_HELP, QueueEnd, start_of
from eruca.contract.limits import RETRY_TIMES_DEFAULT, RETRY_TIMES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal

    from eruca.contract.errors import ErucaError
    from eruca.contract.groups import GroupConfig, MemberList, QueueReset
    from eruca.core.messages.message_queue import MessageQueue

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]

_WATCH_SECONDS: Final = 2.0
_CONFIG_HEADINGS: Final = ("start", "max retries", "ordered", "enabled", "subscriptions")
_OFFSET_PREFIX: Final = "offset:"


class SubscriptionModeChoice(StrEnum):
    """The subscription mode of a group, as an option."""

    SHARED = "shared"
    PER_MEMBER = "per_member"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="See who is in consumer groups and where they stand; move them."
    )
    command(group, "create")(create)
    command(group, "list")(list_)
    command(group, "show")(show)
    command(group, "lag")(lag)
    command(group, "reset")(reset)
    command(group, "delete")(delete)
    app.add_typer(group, name="group")


async def create(
    session: Session,
    *,
    group: GroupArgument,
    start: Annotated[
        str | None, typer.Option("--start", help=f"{START_HELP} [a new group: latest]")
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            "--retries",
            help="How often a message is retried before it is a dead letter "
            f"[a new group: {RETRY_TIMES_DEFAULT}].",
            min=0,
            max=RETRY_TIMES_MAX,
        ),
    ] = None,
    ordered: Annotated[
        bool | None,
        typer.Option("--ordered/--no-ordered", help="Whether each queue is consumed in order."),
    ] = None,
    enabled: Annotated[
        bool | None,
        typer.Option("--enabled/--disabled", help="Whether members get anything."),
    ] = None,
    subscriptions: Annotated[
        SubscriptionModeChoice | None,
        typer.Option(help="Whether members must subscribe to the same [a new group: shared]."),
    ] = None,
) -> int:
    """Create a group on every broker, or change its settings.

    Where it is there already, what is not named stays as it is. Exit code 1 when a broker is away,
    which is not told; it is done at the others.
    """
    from eruca.contract.errors import GroupNotFoundError

    options: dict[str, Any] = {
        "start": None if start is None else start_of_option(start),
        "retry_max_times": retries,
        "ordered": ordered,
        "consume_enabled": enabled,
        "subscription_mode": None if subscriptions is None else subscriptions.value,
    }
    named = {name: value for name, value in options.items() if value is not None}
    async with session.client() as client:
        before: dict[str, GroupConfig] = {}
        with suppress(GroupNotFoundError):
            before = await client.admin.groups.get(group)

        configs = await client.admin.groups.create(group, **named)
        missed = await silent_brokers.missed(client)
    _show_configs(session, configs)
    for line in change_lines(group, _CONFIG_HEADINGS, _cells(before), _cells(configs)):
        session.say(line)
    return silent_brokers.untold(session, missed)


async def list_(
    session: Session,
    *,
    system: Annotated[bool, typer.Option("--system", help="The system's own as well.")] = False,
) -> int:
    """List groups: how many members each has, and how far it is behind; a dash is unknown.

    Exit code 1 when a broker does not answer; what the others say is shown.
    """
    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        admin = client.admin.groups
        groups = await admin.list(include_system=system, unanswered=unanswered)
        lags = await asyncio.gather(*(admin.lag(name, unanswered=unanswered) for name in groups))
        if away := await silent_brokers.away(client):
            unanswered |= away
            lags = [partial(behind) for behind in lags]
    rows = [
        (
            name,
            max(config.members for config in configs.values()),
            sorted({s.topic for config in configs.values() for s in config.subscriptions}),
            behind.lag,
            behind.oldest_unconsumed_at,
        )
        for (name, configs), behind in zip(groups.items(), lags, strict=True)
    ]
    if session.is_json:
        fields = ("group", "members", "topics", "lag", "oldest_unconsumed_at")
        session.show_json([dict(zip(fields, row, strict=True)) for row in rows])
        return silent_brokers.said(session, unanswered, is_in_document=False)
    now = datetime.now(UTC)
    session.show_table(
        ["group", "members", "topics", "lag", "oldest waits"],
        (
            (name, members, ", ".join(topics) or None, behind, age_text(oldest, now))
            for name, members, topics, behind, oldest in rows
        ),
        none="no groups",
    )
    return silent_brokers.said(session, unanswered)


async def show(session: Session, *, group: GroupArgument) -> int:
    """Show a group's settings and subscriptions, its members, and where it stands.

    Exit code 1 when a broker does not answer; what the others say is shown.
    """
    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        admin = client.admin.groups
        configs = await admin.get(group, unanswered=unanswered)
        members, behind = await asyncio.gather(
            admin.members(group, unanswered=unanswered), admin.lag(group, unanswered=unanswered)
        )
        if away := await silent_brokers.away(client):
            unanswered |= away
            behind = partial(behind)
    if session.is_json:
        session.show_json(
            {
                "group": group,
                "brokers": configs,
                "members": members,
                "lag": behind.lag,
                "queues": queue_documents(behind),
                "unanswered": silent_brokers.documents(unanswered),
            }
        )
        return silent_brokers.said(session, unanswered)
    _show_configs(session, configs)
    session.show_text("")
    session.show_table(
        ["broker", "topic", "filter", "version"],
        (
            (name, s.topic, s.filter, config.subscription_version)
            for name, config in sorted(configs.items())
            for s in config.subscriptions
        ),
    )
    session.show_text("")
    session.show_table(
        ["member", "model", "from", "joined", "heard of", "queues by broker"],
        _member_rows(members),
    )
    session.show_text("")
    session.show_table(LAG_HEADINGS, lag_rows(behind, datetime.now(UTC)))
    return silent_brokers.said(session, unanswered)


async def lag(
    session: Session,
    *,
    group: GroupArgument,
    topic: TopicOption = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", help="Seconds between two looks.", min=0.1)
    ] = _WATCH_SECONDS,
) -> int:
    """Show how far a group is behind, in all and in each queue; a dash is unknown.

    Exit code 1 when a broker does not answer; what the others say is shown.

    With --watch and --output json each look is one line; in a pipe, one table follows the other. A
    look that fails, since a broker restarts, say, is told and made again.
    """
    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        # One that nobody knows is behind in nothing.
        await client.admin.groups.get(group, unanswered=unanswered)
        if watch:
            await watch_lag(session, client, group, topic, every)
            return 0
        unanswered.clear()  # of these, the topic's are asked again
        behind = await client.admin.groups.lag(group, topic=topic, unanswered=unanswered)
        if away := await silent_brokers.away(client):
            unanswered |= away
            behind = partial(behind)
    if session.is_json:
        missing = silent_brokers.documents(unanswered)
        session.show_json(lag_document(behind) | {"unanswered": missing})
    else:
        session.show_table(LAG_HEADINGS, lag_rows(behind, datetime.now(UTC)))
        session.say(total_text(behind, datetime.now(UTC)))
    return silent_brokers.said(session, unanswered)


async def reset(
    session: Session,
    *,
    group: GroupArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="In this topic.")],
    to: Annotated[
        str, typer.Option("--to", help=f"{START_HELP} Or an offset, such as {_OFFSET_PREFIX}1000.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would happen.")
    ] = False,
    yes: YesOption = False,
) -> int:
    """Have a group go on elsewhere in a topic; what it reads just now is interrupted.

    Exit code 1 when a broker is away, whose queues stay where they are.
    """
    place = _place_of_option(to)
    async with session.client() as client:
        await client.admin.groups.get(group)  # one that nobody knows has nothing to move
        missed = await silent_brokers.missed(client)
        for name in missed:  # before anything is moved: doing it again later would move all
            session.say(
                f"{name} is away: no name server knows it now, and {group} stays where it is there"
            )
        planned = await client.admin.groups.reset(group, topic, place, dry_run=True)
        if not dry_run:
            if not yes and not confirmed(f"Move {group} in {_moves(planned)} of {topic}?"):
                return EXIT_FAILED
            planned = await client.admin.groups.reset(group, topic, place)
    if session.is_json:
        session.show_json(
            [
                {"broker_name": queue.broker_name} | moved.model_dump(mode="json")
                for queue, moved in sorted(planned.items())
            ]
        )
        return EXIT_FAILED if missed else 0
    session.show_table(
        ["broker", "queue", "from offset", "to offset", "min offset", "max offset"],
        (
            (q.broker_name, q.queue_id, m.from_offset, m.to_offset, m.min_offset, m.max_offset)
            for q, m in sorted(planned.items())
        ),
    )
    session.say("nothing was changed" if dry_run else f"{group} moved")
    return EXIT_FAILED if missed else 0


async def delete(session: Session, *, group: GroupArgument, yes: YesOption = False) -> int:
    """Delete a group and its positions on every broker; it may have no members.

    Exit code 1 when a broker is away, which is not told; it is done at the others.
    """
    if not yes and not confirmed(f"Delete {group} and where it stands?"):
        return EXIT_FAILED
    async with session.client() as client:
        brokers = await client.admin.groups.delete(group)
        missed = await silent_brokers.missed(client)
    if session.is_json:
        session.show_json({"group": group, "deleted_on": brokers})
    else:
        session.say(f"{group} deleted on {', '.join(brokers)}")
    return silent_brokers.untold(session, missed)


def start_of_option(text: str) -> Literal["earliest", "latest"] | datetime:
    """Return where *text* says that something begins, or refuse the option's value."""
    try:
        start = start_of(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if isinstance(start, datetime):
        return start
    return "earliest" if start is QueueEnd.EARLIEST else "latest"


def _place_of_option(text: str) -> Literal["earliest", "latest"] | datetime | int:
    number = text.removeprefix(_OFFSET_PREFIX)
    if number != text:
        if not (number.isascii() and number.isdigit()):
            raise typer.BadParameter(f"{text!r} is no offset; such as {_OFFSET_PREFIX}1000")
        return int(number)
    try:
        return start_of_option(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(
            f"{error.message}, nor an offset such as {_OFFSET_PREFIX}1000"
        ) from None


def _moves(planned: Mapping[MessageQueue, QueueReset]) -> str:
    moved = sum(one.from_offset != one.to_offset for one in planned.values())
    return f"{moved} of {len(planned)} queues"


def _member_rows(members: Mapping[str, MemberList]) -> Iterable[Sequence[object]]:
    """Return a row for each member, with what all brokers know of it."""
    from eruca.cli.shown_messages import time_text

    seen = {member.client_id: member for found in members.values() for member in found.members}
    for client_id, member in sorted(seen.items()):
        queues = [
            f"{broker_name}/{lock.topic}/{lock.queue_id}"
            for broker_name, found in sorted(members.items())
            for other in found.members
            if other.client_id == client_id
            for lock in other.locks
        ]
        yield (
            client_id,
            member.message_model,
            member.address,
            time_text(member.joined_at),
            time_text(member.last_seen_at),
            " ".join(queues) or None,
        )


def _show_configs(session: Session, configs: Mapping[str, GroupConfig]) -> None:
    if session.is_json:
        session.show_json(configs)
        return
    session.show_table(
        ["broker", *_CONFIG_HEADINGS, "members"],
        ((name, *cells, configs[name].members) for name, cells in sorted(_cells(configs).items())),
    )


def _cells(configs: Mapping[str, GroupConfig]) -> dict[str, tuple[object, ...]]:
    """Return each broker's settings as a table shows them, below ``_CONFIG_HEADINGS``."""
    from eruca.cli.shown_messages import time_text

    return {
        name: (
            time_text(config.start) if isinstance(config.start, datetime) else config.start,
            config.retry_max_times,
            "yes" if config.ordered else "no",
            "yes" if config.consume_enabled else "no",
            config.subscription_mode,
        )
        for name, config in configs.items()
    }
