"""``eruca topic``: create, list, show and delete topics."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from eruca.cli import silent_brokers
from eruca.cli.asking import YesOption, confirmed
from eruca.cli.changes import change_lines
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.session import Session
from eruca.contract.limits import QUEUE_COUNT_DEFAULT, QUEUE_COUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eruca.aio.client import AsyncClient
    from eruca.contract.errors import ErucaError
    from eruca.contract.topics import TopicConfig, TopicSettings

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
BrokerOption = Annotated[str | None, typer.Option("--broker", help="Only on this broker.")]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="Only on the brokers of this cluster.")
]


class PermissionChoice(StrEnum):
    """The permission of a topic, as an option."""

    READ_WRITE = "rw"
    READ = "r"
    WRITE = "w"
    NONE = "none"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Create, list, show and delete topics.")
    command(group, "create")(create)
    command(group, "list")(list_)
    command(group, "show")(show)
    command(group, "delete")(delete)
    app.add_typer(group, name="topic")


async def create(
    session: Session,
    *,
    topic: TopicArgument,
    queue_count: Annotated[
        int | None,
        typer.Option(
            help=f"Queues on each broker [a new topic: {QUEUE_COUNT_DEFAULT}].",
            min=1,
            max=QUEUE_COUNT_MAX,
        ),
    ] = None,
    permission: Annotated[
        PermissionChoice | None,
        typer.Option(help="Whether the topic may be read and written [a new topic: rw]."),
    ] = None,
    ordered: Annotated[
        bool | None,
        typer.Option(
            "--ordered/--no-ordered",
            help="Whether a sharding key keeps its queue, and waits for it, while its broker is"
            " away.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKER",
            help="For an ordered topic: move this broker's keys to others, because it will not"
            " return.",
        ),
    ] = None,
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
    yes: YesOption = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Remove queues even if groups have not read all of their messages."
        ),
    ] = False,
) -> int:
    """Create a topic on every broker, or change its settings there.

    A setting that is not given keeps its value. Messages in removed queues can no longer be read,
    so the command refuses to remove a queue with messages that a group has not read. An ordered
    topic's sharding keys are divided over its queues on all brokers. If that division changes,
    messages sent before may be read after messages sent later.

    Exit code 1 if a broker is away: it is not changed, but the others are.
    """
    from eruca.contract.errors import TopicNotFoundError

    async with session.client() as client:
        before: dict[str, TopicConfig] = {}
        with suppress(TopicNotFoundError):
            before = await client.admin.topic(topic, cluster=cluster, broker_name=broker)
        if not yes and (fewer := _fewer_queues(before, queue_count)):
            question = f"Remove queues of {topic} with their messages ({fewer})?"
            if not await confirmed(question, instead=f"to remove queues ({fewer}) give --yes"):
                return EXIT_FAILED

        settings = {
            name: _settings(before.get(name), queue_count, permission, ordered=ordered)
            for name in await masters(client, cluster=cluster, broker=broker)
        }
        configs = await client.admin.change_topic(
            topic, settings, without=without or (), force=force
        )
        for_all = cluster is None and broker is None
        missed = await silent_brokers.missed(client, without=without or ()) if for_all else ()
    _show_configs(session, configs)
    for line in change_lines(topic, _CONFIG_HEADINGS[1:], _cells(before), _cells(configs)):
        session.say(line)
    return silent_brokers.report_unreached(session, missed)


async def list_(
    session: Session,
    *,
    broker: Annotated[
        str | None,
        typer.Option("--broker", help="Only topics of this broker, with their settings."),
    ] = None,
    system: Annotated[
        bool,
        typer.Option(
            "--system", help="Include system topics, and groups' retry and dead-letter topics."
        ),
    ] = False,
) -> None:
    """List topics: the names on all live brokers, or the settings on one broker."""
    from eruca.contract.names import is_made_by_system

    async with session.client() as client:
        if broker is None:
            names = await _names(client, system=system)
            if session.is_json:
                session.show_json(names)
            else:
                session.show_table(["topic"], ([name] for name in names))
            return
        held = await client.admin.topics_of_broker(broker, include_system=system)
        configs = [config for config in held if system or not is_made_by_system(config.topic)]
    if session.is_json:
        session.show_json(configs)
    else:
        session.show_table(_CONFIG_HEADINGS, (_config_row(c.topic, c) for c in configs))


async def masters(
    client: AsyncClient, *, cluster: str | None = None, broker: str | None = None
) -> list[str]:
    """Return the names of the selected live brokers that have a master."""
    from eruca.contract.fields import MASTER_ID

    return [
        group.broker_name
        for group in await client.admin.brokers()
        if cluster in (None, group.cluster)
        and broker in (None, group.broker_name)
        and any(one.broker_id == MASTER_ID for one in group.brokers)
    ]


def _settings(
    held: TopicConfig | None,
    queue_count: int | None,
    permission: PermissionChoice | None,
    *,
    ordered: bool | None,
) -> TopicSettings:
    """Return a topic's new settings: the stored ones, with the given ones in their place."""
    from eruca.contract.topics import TopicSettings

    named = {
        "read_queue_count": queue_count,
        "write_queue_count": queue_count,
        "permission": None if permission is None else permission.value,
        "ordered": ordered,
    }
    kept = {} if held is None else held.model_dump(include={*named})
    return TopicSettings(**kept | {name: its for name, its in named.items() if its is not None})


def _fewer_queues(before: Mapping[str, TopicConfig], queue_count: int | None) -> str:
    """Return the brokers that would have fewer queues, with the new counts; empty if none."""
    if queue_count is None:
        return ""
    counts = {name: config.read_queue_count for name, config in sorted(before.items())}
    return ", ".join(
        f"{name}: {n} → {queue_count}" for name, n in counts.items() if n > queue_count
    )


async def _names(client: AsyncClient, *, system: bool) -> list[str]:
    from eruca.contract.names import is_made_by_system

    names = set(await client.admin.list_topics())
    if not system:
        return sorted(name for name in names if not is_made_by_system(name))
    # Name servers do not know the topics that brokers keep to themselves.
    for group in await client.admin.brokers():
        configs = await client.admin.topics_of_broker(group.broker_name, include_system=True)
        names.update(config.topic for config in configs)
    return sorted(names)


async def show(session: Session, *, topic: TopicArgument) -> int:
    """Show a topic's settings on each broker, and the offsets of its queues.

    Exit code 1 if a broker does not answer; the data of the others is shown.
    """
    from eruca.cli.shown_messages import time_text

    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        configs = await client.admin.topic(topic, unanswered=unanswered)
        queues = await client.admin.queues(topic, unanswered=unanswered)
        unanswered |= await silent_brokers.away(client)
    if session.is_json:
        session.show_json(
            {
                "topic": topic,
                "brokers": configs,
                "queues": [
                    {"broker_name": queue.broker_name} | offsets.model_dump(mode="json")
                    for queue, offsets in sorted(queues.items())
                ],
                "unanswered": silent_brokers.documents(unanswered),
            }
        )
        return silent_brokers.said(session, unanswered)
    _show_configs(session, configs)
    rows = (
        (
            queue.broker_name,
            queue.queue_id,
            offsets.min_offset,
            offsets.max_offset,
            offsets.max_offset - offsets.min_offset,
            time_text(offsets.earliest_stored_at) if offsets.earliest_stored_at else None,
            time_text(offsets.latest_stored_at) if offsets.latest_stored_at else None,
        )
        for queue, offsets in sorted(queues.items())
    )
    session.show_text("")
    session.show_table(
        ["broker", "queue", "min offset", "max offset", "messages", "first stored", "last stored"],
        rows,
    )
    return silent_brokers.said(session, unanswered)


async def delete(
    session: Session,
    *,
    topic: TopicArgument,
    yes: YesOption = False,
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
) -> int:
    """Delete a topic with all of its messages, on every broker that has it.

    Exit code 1 if a broker is away: the topic stays there, and is deleted on the others.
    """
    if not yes and not await confirmed(f"Delete {topic} and all of its messages?"):
        return EXIT_FAILED
    async with session.client() as client:
        brokers = await client.admin.delete_topic(topic, cluster=cluster, broker_name=broker)
        for_all = cluster is None and broker is None
        missed = await silent_brokers.missed(client) if for_all else ()
    if session.is_json:
        session.show_json({"topic": topic, "deleted_on": brokers})
    else:
        session.say(f"{topic} deleted on {', '.join(brokers)}")
    return silent_brokers.report_unreached(session, missed)


_CONFIG_HEADINGS = ("name", "read queues", "write queues", "permission", "ordered")


def _show_configs(session: Session, configs: Mapping[str, TopicConfig]) -> None:
    if session.is_json:
        session.show_json(configs)
    else:
        headings = ("broker", *_CONFIG_HEADINGS[1:])
        session.show_table(headings, (_config_row(n, c) for n, c in sorted(configs.items())))


def _cells(configs: Mapping[str, TopicConfig]) -> dict[str, tuple[object, ...]]:
    return {name: _config_row(name, config)[1:] for name, config in configs.items()}


def _config_row(name: str, config: TopicConfig) -> tuple[object, ...]:
    return (
        name,
        config.read_queue_count,
        config.write_queue_count,
        config.permission,
        _order_text(config),
    )


def _order_text(config: TopicConfig) -> str:
    if config.order_config is None:
        return "yes" if config.ordered else "no"
    queues = sorted(config.order_config.queues.items())
    return "over " + ", ".join(f"{broker_name}:{count}" for broker_name, count in queues)
