"""``eruca route`` and ``eruca status``: a topic's brokers, and the cluster's health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from eruca.cli import silent_brokers
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.commands.topics import TopicArgument
from eruca.cli.session import Session

if TYPE_CHECKING:
    from eruca.contract.errors import ErucaError
    from eruca.contract.routes import BrokerGroup
    from eruca.contract.status import BrokerStatus, NamesrvStatus

_BROKER_HEADINGS: Final = (
    "broker",
    "cluster",
    "log min offset",
    "tier min offset",
    "log max offset",
    "flushed offset",
    "behind",
    "disk",
    "topics",
    "held",
    "flush",
    "problem",
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "route")(route)
    command(app, "status")(status)


async def route(session: Session, *, topic: TopicArgument) -> None:
    """Show the brokers of a topic, with their queues and URLs."""
    async with session.client() as client:
        found = await client.admin.route(topic)
    if session.is_json:
        session.show_json(found)
        return
    urls = {
        broker.broker_name: "; ".join(
            f"{broker_id}: {', '.join(f'{network}={url}' for network, url in by_network.items())}"
            for broker_id, by_network in sorted(broker.urls.items())
        )
        for broker in found.brokers
    }
    session.show_table(
        ["broker", "read queues", "write queues", "permission", "URLs by broker id"],
        (
            (
                queue.broker_name,
                queue.read_queue_count,
                queue.write_queue_count,
                queue.permission,
                urls.get(queue.broker_name),
            )
            for queue in found.queues
        ),
    )
    if found.order_config:
        session.say(
            "sharding keys are divided over these queues:"
            f" {', '.join(found.order_config.split(';'))}"
        )


async def status(session: Session) -> int:
    """Show every name server and broker: log, projections, disk, load.

    Exit code 1 in three cases: one of them does not answer; a broker that the query service has
    read is away; or no name server can list the brokers yet. See also: eruca doctor.
    """
    from eruca.contract.errors import ErucaError, NameServerSettlingError

    brokers: dict[str, BrokerStatus | ErucaError] = {}
    groups: list[BrokerGroup] = []
    is_whole = True
    async with session.client() as client:
        namesrvs = await client.admin.namesrv_statuses()
        if any(not isinstance(found, ErucaError) for found in namesrvs.values()):
            try:
                groups = await client.admin.brokers()
            except NameServerSettlingError as error:
                session.say(str(error))
                is_whole = False
            brokers |= await silent_brokers.away(client)
        for group in groups:
            try:
                brokers[group.broker_name] = await client.admin.broker_status(group.broker_name)
            except ErucaError as error:
                brokers[group.broker_name] = error
    if session.is_json:
        session.show_json(
            {
                "name_servers": {url: _document(found) for url, found in namesrvs.items()},
                "brokers": {name: _document(found) for name, found in brokers.items()},
            }
        )
    else:
        _show_tables(session, namesrvs, brokers)
    found = [*namesrvs.values(), *brokers.values()]
    has_failed = any(isinstance(answer, ErucaError) for answer in found)
    return EXIT_FAILED if has_failed or not is_whole else 0


def _document(found: NamesrvStatus | BrokerStatus | ErucaError) -> object:
    from eruca.contract.errors import ErucaError

    return {"error": found.problem()} if isinstance(found, ErucaError) else found


def _show_tables(
    session: Session,
    namesrvs: dict[str, NamesrvStatus | ErucaError],
    brokers: dict[str, BrokerStatus | ErucaError],
) -> None:
    session.show_table(
        ["name server", "version", "brokers", "topics", "held", "problem"],
        (_namesrv_row(url, found) for url, found in namesrvs.items()),
    )
    session.show_text("")
    session.show_table(
        _BROKER_HEADINGS,
        (_broker_row(name, found) for name, found in sorted(brokers.items())),
    )


def _namesrv_row(url: str, found: NamesrvStatus | ErucaError) -> tuple[object, ...]:
    from eruca.contract.errors import ErucaError

    if isinstance(found, ErucaError):
        return (url, None, None, None, None, found.detail)
    seconds = found.settling_seconds
    problem = f"has just started: brokers may be missing for {seconds:.0f} s" if seconds else "none"
    return (url, found.version, found.brokers, found.topics, found.held_requests, problem)


def _broker_row(name: str, found: BrokerStatus | ErucaError) -> tuple[object, ...]:
    from eruca.contract.errors import ErucaError

    if isinstance(found, ErucaError):
        return (name, *(None,) * (len(_BROKER_HEADINGS) - 2), found.detail)
    behind = max((projection.behind_bytes for projection in found.projections), default=0)
    return (
        name,
        found.cluster,
        found.log.min_offset,
        found.log.tier_min_offset,
        found.log.max_offset,
        found.log.flushed_offset,
        behind,
        f"{found.disk_used_ratio:.0%}",
        found.topics,
        found.held_requests,
        found.flush_mode,
        _problem_of(found),
    )


def _problem_of(broker: BrokerStatus) -> str:
    problems = [] if broker.is_writable else [f"refuses writes: {broker.refusal}"]
    problems += [
        f"{projection.name}: {projection.failure}"
        for projection in broker.projections
        if projection.failure is not None
    ]
    if broker.tier is not None and broker.tier.failure is not None:
        problems.append(f"tier: {broker.tier.failure}")
    return "; ".join(problems) or "none"
