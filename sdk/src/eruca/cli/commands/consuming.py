"""``eruca consume``: a member of a group that prints what it gets."""

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
_LOOK_SECONDS: Final = 1.0  # between two looks whether somebody still reads the output


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "consume")(consume)


async def consume(
    session: Session,
    *,
    topic: TopicArgument,
    group: Annotated[str, typer.Option("--group", "-g", help="The group to be a member of.")],
    tags: FilterOption = SUBSCRIBE_ALL,
    sql: SqlOption = None,
    start: Annotated[
        str | None, typer.Option("--start", help=f"Where a new group begins. {START_HELP}")
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="One message of a queue after the other.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Stop after so many.", min=1)
    ] = None,
) -> None:
    """Consume a topic as a member of a group: print each message once, whoever else is a member.

    Unlike tail this moves the group. Ctrl-C hands the queues over to the other members.
    """
    begin = None if start is None else start_of_option(start)
    wanted = checked_filter(tags, sql)
    enough = asyncio.Event()
    left = count
    unprinted: list[OSError] = []  # why, where something could not be printed

    async def show(messages: list[ReceivedMessage] | ReceivedMessage) -> None:
        nonlocal left
        some = messages if isinstance(messages, list) else [messages]
        for message in some:
            _ = message.body  # what cannot be read is not done with: it comes again, and is buried
        try:
            session.show_messages(some)
        except OSError as error:
            unprinted.append(error)
            enough.set()
            await _left_in_hand()
        if left is not None:
            left -= 1
            if left == 0:
                await consumer.pause()  # before the next one is handed out
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
                on_assigned=lambda queues: session.say(f"reads {_names(queues)}"),
                on_revoked=lambda queues: session.say(f"hands over {_names(queues)}"),
                on_lost=lambda queues: session.say(f"has lost {_names(queues)}"),
                on_damaged=lambda message: session.say(
                    f"skips a damaged message: {message!r}, {message.damage}"
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
    """End the handler, and whoever calls it, without a verdict: the next member begins there.

    Raised as an error, that nobody reads the output would be the message's failure: it, and all
    that are handed out until the member has left, would be retries, and in the end dead letters.
    """
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _advice(client: AsyncClient, group: str, topic: str) -> str:
    """Return how a topic can be consumed although the group's members subscribe otherwise."""
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
    """Return when there is enough; raise when the consumer ends or nobody reads the output."""
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
