"""``eruca broker``: list brokers and their replicas; switch, add, remove and elect these.

Each change replaces the arbiter's row of the group, on the condition that nobody else has replaced
it since it was read.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli.asking import YesOption, confirmed
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.replicas.controllers import ControllerOption, controller_urls
from eruca.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from eruca.cli.replicas.operated_group import OperatedGroup
    from eruca.contract.broker_groups import BrokerGroupPut, BrokerGroupView

_CHANGES_DEFAULT: Final = 20

BrokerArgument = Annotated[str, typer.Argument(metavar="NAME", help="The broker's name.")]
ReplicaOption = Annotated[int, typer.Option("--replica", metavar="ID", help="The replica.", min=1)]
LossOption = Annotated[
    bool, typer.Option("--accept-loss", help="Accept that confirmed messages may be lost.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Show and change the replicas of a broker.")
    command(group, "list")(list_brokers)
    command(group, "show")(show)
    command(group, "history")(history)
    command(group, "switch")(switch)
    command(group, "add-replica")(add_replica)
    command(group, "remove-replica")(remove_replica)
    command(group, "elect")(elect)
    command(group, "repair-arbiter")(repair_arbiter)
    app.add_typer(group, name="broker")


async def list_brokers(session: Session) -> int:
    """List all brokers with their replicas: role, epoch, end of the log, and distance.

    Exit code 1 if a replica does not answer, or a broker has no master.
    """
    from eruca.cli.replicas.listed_replicas import (
        HEADINGS,
        documents_of,
        listed_replicas,
        rows_of,
    )

    async with session.client() as client:
        groups = await client.admin.brokers()
        replicas = await listed_replicas(client, groups)
    if session.is_json:
        session.show_json(documents_of(replicas))
    else:
        session.show_table(HEADINGS, rows_of(replicas))
    masters = {one.broker_name for one in replicas if one.address.role == "master"}
    headless = [group.broker_name for group in groups if group.broker_name not in masters]
    for name in headless:
        session.say(f"broker {name} has no master now")
    is_whole = all(one.end is not None for one in replicas)
    return EXIT_FAILED if headless or not is_whole else 0


async def show(
    session: Session, *, broker: BrokerArgument, controller: ControllerOption = None
) -> None:
    """Show a broker group's row at the arbiter, and its replicas."""
    async with _operated(session, broker, controller) as operated:
        await operated.show(await operated.row())


async def history(
    session: Session,
    *,
    broker: BrokerArgument,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of changes.", min=1)
    ] = _CHANGES_DEFAULT,
    controller: ControllerOption = None,
) -> None:
    """Show who became a broker's master when, and why; the newest change first."""
    from eruca.cli.replicas.controllers import Controllers
    from eruca.cli.replicas.shown_groups import show_changes

    async with session.client() as client:
        controllers = Controllers(
            client.context.transport, await controller_urls(client, controller)
        )
        changes = await controllers.history(broker, limit=count)
    if session.is_json:
        session.show_json(changes)
    else:
        show_changes(session, changes)


async def switch(
    session: Session,
    *,
    broker: BrokerArgument,
    to: Annotated[
        int | None,
        typer.Option(metavar="ID", help="The new master [an in-sync replica].", min=1),
    ] = None,
    controller: ControllerOption = None,
) -> None:
    """Hand a broker's mastership over to another in-sync replica, without loss.

    The master accepts no requests until the other replica has everything. That takes less than a
    second, and clients retry.
    """
    from eruca.cli.replicas.group_changes import check_successor

    async with _operated(session, broker, controller) as operated:
        before = await operated.row()
        check_successor(before, to)
        after = await operated.hand_over(before, to)
        session.say(
            f"{broker}: replica {after.master.replica_id} is the master of epoch {after.epoch}"
        )
        await operated.show(after)


async def add_replica(
    session: Session,
    *,
    broker: BrokerArgument,
    replica: Annotated[
        int | None,
        typer.Option("--replica", metavar="ID", help="The new replica [the next id].", min=1),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Watch it until it is in sync.")
    ] = True,
    controller: ControllerOption = None,
) -> None:
    """Say how to start another replica of a broker, and watch it catch up.

    A replica is a broker process with the broker's name and an empty store. It joins by itself.
    Ctrl-C ends only the watching.
    """
    async with _operated(session, broker, controller) as operated:
        row = await operated.row()
        taken = {one.replica_id for one in row.replicas}
        replica_id = replica or max(taken) + 1
        settings = operated.settings_of(replica_id)
        if not session.is_json:
            session.say(f"start replica {replica_id} of {broker} on its machine:")
            for name, value in settings.items():
                session.say(f"  export {name}='{value}'")
            session.say("  python -m eruca_broker")
        after = await operated.caught_up(replica_id) if wait else None
    if session.is_json:
        session.show_json({"replica_id": replica_id, "settings": settings, "group": after})
    elif after is not None:
        session.say(f"replica {replica_id} of {broker} is in sync")


async def remove_replica(
    session: Session,
    *,
    broker: BrokerArgument,
    replica: ReplicaOption,
    yes: YesOption = False,
    controller: ControllerOption = None,
) -> int:
    """Remove a stopped replica from a broker group for good.

    Its store is not touched. If it is started again, it catches up and joins again.
    """
    from eruca.cli.replicas.group_changes import without

    async with _operated(session, broker, controller) as operated:
        before = await operated.row()
        row = without(before, replica, await operated.statuses(before.replicas))
        question = f"Remove replica {replica} from {broker}?"
        if len(row.in_sync) < row.min_in_sync:
            question += (
                f" Then {len(row.in_sync)} of at least {row.min_in_sync} replicas are in sync, and"
                " the master refuses sends."
            )
        done = f"replica {replica} is removed from {broker}"
        return await _change(session, operated, before, row, question=question, done=done, yes=yes)


async def elect(
    session: Session,
    *,
    broker: BrokerArgument,
    replica: ReplicaOption,
    accept_loss: LossOption = False,
    yes: YesOption = False,
    controller: ControllerOption = None,
) -> int:
    """Make a replica the master although the in-sync replicas are lost.

    It becomes the only in-sync replica. Confirmed messages that it lacks are lost. The other
    replicas truncate their logs to its log when they return.
    """
    from eruca.cli.replicas.group_changes import elected
    from eruca.cli.replicas.shown_groups import loss_text

    async with _operated(session, broker, controller) as operated:
        statuses = await operated.statuses((await operated.row()).replicas)
        before = await operated.row()  # last: a replica that knows a later one proves a loss
        row = elected(before, replica, statuses)
        loss = "No message is lost."
        if row.unclean:
            messages = await operated.missing_messages(replica, before.replicas, statuses)
            loss = loss_text(replica, before, statuses, messages)
        if row.unclean and not accept_loss:
            raise typer.BadParameter(f"{loss} To accept that, give --accept-loss")
        session.say(loss)
        question = f"Make replica {replica} the master of {broker} in epoch {row.epoch}?"
        done = f"replica {replica} of {broker} is elected in epoch {row.epoch}"
        return await _change(session, operated, before, row, question=question, done=done, yes=yes)


async def repair_arbiter(
    session: Session,
    *,
    broker: BrokerArgument,
    accept_loss: LossOption = False,
    yes: YesOption = False,
    controller: ControllerOption = None,
) -> int:
    """Raise an arbiter's row that is older than the replicas' logs.

    The arbiter's database may have been restored from a copy. Until the repair, the replicas refuse
    its row.
    """
    from eruca.cli.replicas.group_changes import repaired

    async with _operated(session, broker, controller) as operated:
        replicas = await operated.every_replica(await operated.row_or_none())
        statuses = await operated.statuses(replicas)
        before = (
            await operated.row_or_none()
        )  # last: else a change meanwhile would look like a loss
        row = repaired(broker, before, replicas, statuses, accepts_loss=accept_loss)
        since = "no row" if before is None else f"epoch {before.epoch}"
        question = f"Raise {broker} from {since} to epoch {row.epoch}? {row.reason}."
        done = f"{broker} is repaired: {row.reason}"
        return await _change(session, operated, before, row, question=question, done=done, yes=yes)


async def _change(
    session: Session,
    operated: OperatedGroup,
    before: BrokerGroupView | None,
    row: BrokerGroupPut,
    *,
    question: str,
    done: str,
    yes: bool,
) -> int:
    """Ask for confirmation, replace the row, and say so; return the exit code."""
    if not yes and not await confirmed(question):
        return EXIT_FAILED
    await operated.change(before, row)
    session.say(done)
    return 0


@asynccontextmanager
async def _operated(
    session: Session, broker: str, controller: str | None
) -> AsyncIterator[OperatedGroup]:
    # Imported when it runs: pydantic and rich would delay --help.
    from eruca.cli.replicas.operated_group import OperatedGroup

    async with session.client() as client:
        urls = await controller_urls(client, controller)
        yield OperatedGroup(session, client, urls, broker)
