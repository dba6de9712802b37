"""``eruca consume``: a member of a group that prints its messages."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli.command import command
from eruca.cli.commands.groups import start_of_option
from eruca.cli.commands.reading import FilterOption, SqlOption, checked_filter
from eruca.cli.commands.topics import TopicArgument
from eruca.cli.session import Session
from eruca.cli.starts import START_HELP
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL

if TYPE_CHECKING:
    from eruca.aio.client import AsyncClient
    from eruca.aio.push_consumer import AsyncPushConsumer
    from eruca.core.messages.message_queue import MessageQueue
    from eruca.core.messages.received_message import ReceivedMessage

_BATCH: Final = 64  # messages printed at a time
_LOOK_SECONDS: Final = 1.0  # between two checks whether the output still has a reader


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "consume")(consume)


async def consume(
    session: Session,
    *,
    topic: TopicArgument,
    group: Annotated[str, typer.Option("--group", "-g", help="The group to join.")],
    tags: FilterOption = SUBSCRIBE_ALL,
    sql: SqlOption = None,
    start: Annotated[
        str | None, typer.Option("--start", help=f"Where a new group begins. {START_HELP}")
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Handle the messages of each queue one after another.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Stop after this number of messages.", min=1)
    ] = None,
) -> None:
    """Consume a topic as a member of a group: each message goes to one member, which prints it.

    Unlike tail, this command commits the group's offsets. On Ctrl-C it hands its queues over to the
    other members.
    """
    begin = None if start is None else start_of_option(start)
    wanted = checked_filter(tags, sql)
    enough = asyncio.Event()
    left = count
    unprinted: list[OSError] = []  # errors of printing

    async def show(messages: list[ReceivedMessage] | ReceivedMessage) -> None:
        nonlocal left
        some = messages if isinstance(messages, list) else [messages]
        for message in some:
            # an unreadable message is not acknowledged: it is redelivered and becomes a dead letter
            _ = message.body
        try:
            session.show_messages(some)
        except OSError as error:
            unprinted.append(error)
            enough.set()
            await _left_in_hand()
        if left is not None:
            left -= 1
            if left == 0:
                await consumer.pause()  # before the next message is handed out
                enough.set()

    from eruca.contract.errors import SubscriptionConflictError
    from eruca.core.consuming.push_options import Listeners

    async with session.client() as client:
        consumer = client.push_consumer(
            group,
            start=begin,
            ordered=ordered,
            concurrency=1,
            batch_count_max=1 if count is not None else _BATCH,
            listeners=Listeners(
                on_assigned=lambda queues: session.say(f"reading {_names(queues)}"),
                on_revoked=lambda queues: session.say(f"handing over {_names(queues)}"),
                on_lost=lambda queues: session.say(f"lost {_names(queues)}"),
                on_damaged=lambda message: session.say(
                    f"skipping a damaged message: {message!r}, {message.damage}"
                ),
            ),
        )
        consumer.subscribe(topic, wanted, show)
        try:
            async with consumer:
                session.say(f"{consumer.client_id} is a member of {group}")
                await _until_done(session, consumer, enough)
                if unprinted:
                    raise unprinted[0]
        except SubscriptionConflictError as error:
            fix = await _advice(client, group, topic)
            raise SubscriptionConflictError(error.detail, fix=fix) from None


async def _left_in_hand() -> None:
    """Stop the handler and its caller without a verdict: the next member begins at this message.

    The output's reader has left. If that raised an error, it would count as a failure of the
    message. This message and the following ones would be retried, and finally become dead letters.
    """
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _advice(client: AsyncClient, group: str, topic: str) -> str:
    """Return how to consume a topic whose group has other subscriptions."""
    own = "use a group of your own"
    configs = await client.admin.groups.get(group)
    filters = {
        (one.topic, one.filter_type, one.filter)
        for config in configs.values()
        for one in config.subscriptions
    }
    if len(filters) != 1:
        return own
    [(its_topic, filter_type, text)] = filters
    if its_topic != topic:
        return own
    option = "--filter" if filter_type == "tag" else "--sql"
    return f"give {option} {shlex.quote(text)}, or {own}"


async def _until_done(session: Session, consumer: AsyncPushConsumer, enough: asyncio.Event) -> None:
    """Return when enough is printed; raise if the consumer ends or the output has no reader."""
    stopped = asyncio.create_task(consumer.wait_stopped())
    try:
        while not enough.is_set():
            session.check_reader()
            waiting = asyncio.create_task(enough.wait())
            await asyncio.wait(
                (stopped, waiting),
                timeout=_LOOK_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            waiting.cancel()
            if stopped.done():
                await stopped
                return
    finally:
        stopped.cancel()


def _names(queues: list[MessageQueue]) -> str:
    return ", ".join(f"{q.topic} {q.broker_name}/{q.queue_id}" for q in queues)
