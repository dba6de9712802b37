"""``eruca group``: consumer groups, their members and offsets, and resets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eruca.cli import silent_brokers
from eruca.cli.as_of import AtOption, place_of, show_group
from eruca.cli.asking import YesOption, confirmed
from eruca.cli.changes import change_lines
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.counts import counted
from eruca.cli.group_lags import (
    LAG_HEADINGS,
    TRAFFIC_HEADINGS,
    age_text,
    lag_document,
    lag_rows,
    partial,
    queue_documents,
    total_text,
    traffic_documents,
    traffic_rows,
    watch_lag,
)
from eruca.cli.session import Session
from eruca.cli.starts import START_HELP, QueueEnd, start_of
from eruca.contract.limits import RETRY_TIMES_DEFAULT, RETRY_TIMES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal

    from eruca.contract.errors import ErucaError
    from eruca.contract.groups import GroupConfig, MemberHandling, MemberList, QueueReset
    from eruca.core.messages.message_queue import MessageQueue

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]

_WATCH_SECONDS: Final = 2.0
_CONFIG_HEADINGS: Final = ("start", "max retries", "ordered", "enabled", "subscriptions")
_HANDLING: Final = ("handled/s", "mean ms", "failed", "running s")
_OFFSET_PREFIX: Final = "offset:"


class SubscriptionModeChoice(StrEnum):
    """The subscription mode of a group, as an option."""

    SHARED = "shared"
    PER_MEMBER = "per_member"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Show consumer groups, their members and their lag; reset their offsets.",
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
    retries_max: Annotated[
        int | None,
        typer.Option(
            "--retries-max",
            help="Maximum number of retries before a message becomes a dead letter [a new"
            f" group: {RETRY_TIMES_DEFAULT}].",
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
        typer.Option("--enabled/--disabled", help="Whether members receive messages."),
    ] = None,
    subscription_mode: Annotated[
        SubscriptionModeChoice | None,
        typer.Option(
            help="Whether all members must have the same subscriptions [a new group: shared]."
        ),
    ] = None,
) -> int:
    """Create a group on every broker, or change its settings.

    A setting that is not given keeps its value. Exit code 1 if a broker is away: it is not changed,
    but the others are.
    """
    from eruca.contract.errors import GroupNotFoundError

    options: dict[str, Any] = {
        "start": None if start is None else start_of_option(start),
        "retries_max": retries_max,
        "ordered": ordered,
        "consume_enabled": enabled,
        "subscription_mode": None if subscription_mode is None else subscription_mode.value,
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
    return silent_brokers.report_unreached(session, missed)


async def list_(
    session: Session,
    *,
    system: Annotated[bool, typer.Option("--system", help="Include system groups.")] = False,
) -> int:
    """List groups with the number of their members and their lag; a dash means unknown.

    Exit code 1 if a broker does not answer; the groups of the others are shown.
    """
    from eruca.aio.group_admin import TotalLag

    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        admin = client.admin.groups
        groups = await admin.list(include_system=system, unanswered=unanswered)
        lags = await admin.lags(include_system=system, unanswered=unanswered)
        if away := await silent_brokers.away(client):
            unanswered |= away
            lags = {}
    unknown = TotalLag(None, None)
    rows = [
        (
            name,
            max(config.members for config in configs.values()),
            sorted({s.topic for config in configs.values() for s in config.subscriptions}),
            lags.get(name, unknown).lag,
            lags.get(name, unknown).oldest_unconsumed_at,
        )
        for name, configs in groups.items()
    ]
    if session.is_json:
        fields = ("group", "members", "topics", "lag", "oldest_unconsumed_at")
        session.show_json([dict(zip(fields, row, strict=True)) for row in rows])
        return silent_brokers.said(session, unanswered, is_in_document=False)
    now = datetime.now(UTC)
    session.show_table(
        ["group", "members", "topics", "lag", "oldest unread"],
        (
            (name, members, ", ".join(topics) or None, behind, age_text(oldest, now))
            for name, members, topics, behind, oldest in rows
        ),
        none="no groups",
    )
    return silent_brokers.said(session, unanswered)


async def show(session: Session, *, group: GroupArgument, at: AtOption = None) -> int:
    """Show a group's settings, subscriptions, members, offsets and traffic.

    The messages and bytes read are those that its commits moved past or that it acknowledged.

    Exit code 1 if a broker does not answer; the data of the others is shown.

    With --at, the group at one broker as of an earlier offset of its log: its positions, its lag,
    and which member had locked which queue. Exit code 1 if the log does not have them any more.
    """
    if at is not None:
        place = place_of(at)
        async with session.client() as client:
            past = await client.admin.groups.as_of(
                group, broker_name=place.broker_name, log_offset=place.log_offset
            )
        show_group(session, place, past)
        return EXIT_FAILED if past.unknown is not None else 0
    from eruca.core.consuming.slow_members import latest_members, slow_members

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
    slow = slow_members(latest_members(members.values()))
    if session.is_json:
        session.show_json(
            {
                "group": group,
                "brokers": configs,
                "members": members,
                "slow_members": slow,
                "lag": behind.lag,
                "queues": queue_documents(behind),
                "traffic": traffic_documents(behind),
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
        [*("member", "model", "from", "joined", "last seen"), *_HANDLING, "queues by broker"],
        _member_rows(members),
    )
    for client_id in slow:
        session.show_text(f"{client_id} is slow: its handlers take far longer than the others'")
    session.show_text("")
    session.show_table(LAG_HEADINGS, lag_rows(behind, datetime.now(UTC)))
    session.show_text("")
    session.show_table(TRAFFIC_HEADINGS, traffic_rows(behind))
    return silent_brokers.said(session, unanswered)


async def lag(
    session: Session,
    *,
    group: GroupArgument,
    topic: TopicOption = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    every_seconds: Annotated[
        float, typer.Option("--every-seconds", help="Seconds between two repetitions.", min=0.1)
    ] = _WATCH_SECONDS,
) -> int:
    """Show a group's lag, in total and in each queue; a dash means unknown.

    Exit code 1 if a broker does not answer; the data of the others is shown.

    With --watch and --output json, each repetition prints one line. In a pipe, it prints one table
    after another. If a repetition fails, for example because a broker restarts, the error is shown
    and the command retries.
    """
    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        # Raises for a group that no broker knows; otherwise it would have no lag.
        await client.admin.groups.get(group, unanswered=unanswered)
        if watch:
            await watch_lag(session, client, group, topic, every_seconds)
            return 0
        unanswered.clear()  # the topic's brokers are called again
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
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic.")],
    to: Annotated[
        str, typer.Option("--to", help=f"{START_HELP} Or an offset, such as {_OFFSET_PREFIX}1000.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would happen.")
    ] = False,
    yes: YesOption = False,
) -> int:
    """Reset a group's offsets in a topic; this interrupts the members that read it.

    Exit code 1 if a broker is away: the offsets of its queues do not change.
    """
    place = _place_of_option(to)
    async with session.client() as client:
        await client.admin.groups.get(group)  # raises for a group that no broker knows
        missed = await silent_brokers.missed(client)
        # before anything changes, because a repetition would reset all brokers again
        for name in missed:
            session.say(
                f"{name} is away (registered at no name server): the offsets of {group} there"
                " do not change"
            )
        planned = await client.admin.groups.reset(group, topic, place, dry_run=True)
        if not dry_run:
            if not yes and not await confirmed(f"Reset {group} in {_moves(planned)} of {topic}?"):
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
    session.say("nothing was changed" if dry_run else f"offsets of {group} reset")
    return EXIT_FAILED if missed else 0


async def delete(session: Session, *, group: GroupArgument, yes: YesOption = False) -> int:
    """Delete a group and its offsets on every broker; it must have no members.

    Exit code 1 if a broker is away: the group stays there, and is deleted on the others.
    """
    if not yes and not await confirmed(f"Delete {group} and its offsets?"):
        return EXIT_FAILED
    async with session.client() as client:
        brokers = await client.admin.groups.delete(group)
        missed = await silent_brokers.missed(client)
    if session.is_json:
        session.show_json({"group": group, "deleted_on": brokers})
    else:
        session.say(f"{group} deleted on {', '.join(brokers)}")
    return silent_brokers.report_unreached(session, missed)


def start_of_option(text: str) -> Literal["earliest", "latest"] | datetime:
    """Return the start position that *text* means; refuse an invalid option value."""
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
            raise typer.BadParameter(
                f"expected an offset such as {_OFFSET_PREFIX}1000, found {text!r}"
            )
        return int(number)
    try:
        return start_of_option(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(
            f"{error.message}; or use an offset such as {_OFFSET_PREFIX}1000"
        ) from None


def _moves(planned: Mapping[MessageQueue, QueueReset]) -> str:
    moved = sum(one.from_offset != one.to_offset for one in planned.values())
    return f"{moved:,} of {counted(len(planned), 'queue')}"


def _member_rows(members: Mapping[str, MemberList]) -> Iterable[Sequence[object]]:
    """Return a row for each member, merged over all brokers."""
    from eruca.cli.shown_messages import time_text
    from eruca.core.consuming.slow_members import latest_members

    for client_id, member in latest_members(members.values()).items():
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
            *_handling_cells(member.handling),
            " ".join(queues) or None,
        )


def _handling_cells(handling: MemberHandling | None) -> Sequence[object]:
    """Return what a member's handlers did, below ``_HANDLING``; nothing known is None."""
    if handling is None:
        return (None, None, None, None)
    rate = handling.message_count / max(handling.covered_seconds, 1.0)
    mean = handling.mean_seconds
    running = handling.longest_running_seconds
    return (
        f"{rate:.3g}",
        None if mean is None else f"{mean * 1_000:.3g}",
        handling.failed_count,
        f"{running:.3g}" if running else None,
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
    """Return each broker's settings as table cells, below ``_CONFIG_HEADINGS``."""
    from eruca.cli.shown_messages import time_text

    return {
        name: (
            time_text(config.start) if isinstance(config.start, datetime) else config.start,
            config.retries_max,
            "yes" if config.ordered else "no",
            "yes" if config.consume_enabled else "no",
            config.subscription_mode,
        )
        for name, config in configs.items()
    }
