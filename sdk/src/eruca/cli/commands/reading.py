"""``eruca tail`` and ``eruca pull``: messages as they arrive, and a part of one queue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli import silent_brokers
from eruca.cli.command import command
from eruca.cli.commands.topics import TopicArgument
from eruca.cli.counts import counted
from eruca.cli.session import Session
from eruca.cli.starts import START_HELP, Start, start_of
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL

if TYPE_CHECKING:
    from eruca.aio.client import AsyncClient
    from eruca.aio.pull_consumer import AsyncPullConsumer
    from eruca.contract.topics import QueueOffsets
    from eruca.core.filters.subscription_filter import Filter
    from eruca.core.messages.message_queue import MessageQueue
    from eruca.core.messages.received_message import ReceivedMessage

FilterOption = Annotated[
    str, typer.Option("--filter", help="Tags to select, such as 'paid || refunded'.")
]
SqlOption = Annotated[
    str | None, typer.Option("--sql", help='A condition instead of tags: "price > 20".')
]

_WAIT_SECONDS: Final = 1.0  # maximum wait for new messages
_BATCH: Final = 512  # messages printed before the next look
_QUEUES_NAMED: Final = 20  # in the error that lists them


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "tail")(tail)
    command(app, "pull")(pull)


def checked_start(value: str) -> Start:
    """Return the start position; refuse an invalid option value."""
    try:
        return start_of(value, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def checked_time(value: str | None) -> datetime | None:
    """Return an option's time; None if it is not given; refuse an invalid value."""
    if value is None:
        return None
    start = checked_start(value)
    if not isinstance(start, datetime):
        raise typer.BadParameter(f"expected a time, found {value!r}")
    return start


def checked_filter(tags: str, sql: str | None) -> Filter:
    """Return the filter; refuse tags and a condition together."""
    if sql is None:
        return tags
    if tags != SUBSCRIBE_ALL:
        raise typer.BadParameter("--filter and --sql exclude each other")
    from eruca.core.filters.subscription_filter import sql as condition

    return condition(sql)


async def tail(
    session: Session,
    *,
    topic: TopicArgument,
    start: Annotated[str, typer.Option("--start", help=START_HELP)] = "latest",
    tags: FilterOption = SUBSCRIBE_ALL,
    sql: SqlOption = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Stop after this number of messages.", min=1)
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow/--no-follow", help="Wait for more messages, or stop at the end."),
    ] = True,
) -> int:
    """Follow a topic: show its messages as they arrive, in order per queue.

    This uses no group, so no offsets change. With --output json, each message is one line. If a
    broker goes away, this is shown, and reading continues there when it is back. With --no-follow,
    the exit code is 1 if a broker is away.
    """
    begin, wanted = checked_start(start), checked_filter(tags, sql)
    async with (
        session.client() as client,
        client.pull_consumer(
            topics=topic,
            filter=wanted,
            start=begin if isinstance(begin, datetime) else begin.value,
            on_offset_out_of_range="earliest",
            wait_for_topics=follow,
        ) as consumer,
    ):
        if follow:
            await client.admin.route(topic)  # raises if the topic does not exist
            queues = counted(len(await consumer.assignment()), "queue")
            session.say(f"following {topic}, {queues}; Ctrl-C stops")
        left = count
        brokers = _Brokers(session, consumer)
        while left is None or left > 0:
            session.check_reader()
            messages = await _next(consumer, min(_BATCH, left or _BATCH), waits=follow)
            session.show_messages(messages)
            if follow:
                await brokers.look()
            if left is not None:
                left -= len(messages)
            if not messages and not follow and not any((await consumer.lag()).values()):
                return silent_brokers.said(
                    session, await silent_brokers.away(client), is_in_document=False
                )
    return 0


async def pull(
    session: Session,
    *,
    topic: TopicArgument,
    queue_id: Annotated[
        int, typer.Option("--queue", "-q", help="The queue's id on its broker.", min=0)
    ] = 0,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", help="The queue's broker; required if several brokers have the topic."
        ),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", help="Offset of the first message.", min=0)
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", help=f"Start without --offset; default: earliest. {START_HELP}"),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of messages.", min=1)
    ] = 32,
    tags: FilterOption = SUBSCRIBE_ALL,
    sql: SqlOption = None,
    wait: Annotated[
        float, typer.Option("--wait-seconds", help="Maximum wait for the first message.", min=0)
    ] = 0,
) -> None:
    """Show messages of one queue from an offset, once; print the next offset to stderr."""
    if offset is not None and start is not None:
        raise typer.BadParameter("--offset and --start exclude each other")
    begin, wanted = checked_start(start or "earliest"), checked_filter(tags, sql)
    async with session.client() as client:
        queue, held = await _queue(client, topic, broker, queue_id)
        if offset is not None:
            _check_offset(queue, held, offset)
        async with client.pull_consumer(
            queues=[queue],
            filter=wanted,
            start=begin if isinstance(begin, datetime) else begin.value,
            prefetch_count_max=count,
        ) as consumer:
            if offset is not None:
                await consumer.seek(queue, offset)
            left = count
            waited = wait
            while left:
                messages = await consumer.poll(left, max(waited, _WAIT_SECONDS))
                session.show_messages(messages)
                left -= len(messages)
                waited = 0
                if not messages and not await _lag(consumer, queue):
                    break
            session.say(f"next offset {await consumer.position(queue)}")


async def _next(
    consumer: AsyncPullConsumer, count_max: int, *, waits: bool
) -> list[ReceivedMessage]:
    """Return new messages; empty if no broker answers and the consumer *waits*."""
    from eruca.contract.errors import ErucaError

    try:
        return await consumer.poll(count_max, _WAIT_SECONDS)
    except ErucaError as error:
        # A refusal raises, because waiting would not help.
        if waits and error.retryable and error in consumer.failures.values():
            return []
        raise


class _Brokers:
    """The brokers of the topic, and those that were reported as away."""

    def __init__(self, session: Session, consumer: AsyncPullConsumer) -> None:
        self._session = session
        self._consumer = consumer
        self._seen: set[str] = set()
        self._away: set[str] = set()

    async def look(self) -> None:
        """Report the brokers that have gone or returned."""
        present = {queue.broker_name for queue in await self._consumer.assignment()}
        self._seen |= present
        away = {name: error.detail for name, error in self._consumer.failures.items()}
        away |= dict.fromkeys(self._seen - present, "it is in no route now")
        for name in sorted(away.keys() - self._away):
            self._session.say(f"{name} is away, waiting for it: {away[name]}")
        for name in sorted(self._away - away.keys()):
            self._session.say(f"{name} is back")
        self._away = set(away)


def _check_offset(queue: MessageQueue, held: QueueOffsets, offset: int) -> None:
    """Raise OffsetOutOfRangeError if *offset* is outside *queue*."""
    from eruca.contract.errors import OffsetOutOfRangeError

    first, end = held.min_offset, held.max_offset
    if not first <= offset <= end:
        raise OffsetOutOfRangeError(
            f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: expected an"
            f" offset from {first} to {end}, found {offset}",
            fix=f"give an --offset from {first} to {end}, or --start",
            min_offset=first,
            max_offset=end,
        )


async def _lag(consumer: AsyncPullConsumer, queue: MessageQueue) -> int:
    return (await consumer.lag()).get(queue, 0)


async def _queue(
    client: AsyncClient, topic: str, broker: str | None, queue_id: int
) -> tuple[MessageQueue, QueueOffsets]:
    """Return the queue that the options name, and its offsets."""
    from eruca.contract.errors import QueueNotFoundError

    held = await client.admin.queues(topic)
    queues = sorted(held)
    chosen = [q for q in queues if q.queue_id == queue_id and broker in (None, q.broker_name)]
    if len(chosen) == 1:
        return chosen[0], held[chosen[0]]
    named = ", ".join(f"{q.broker_name}/{q.queue_id}" for q in queues[:_QUEUES_NAMED])
    if chosen:
        raise typer.BadParameter(
            f"several brokers have queue {queue_id} of {topic}; choose one with --broker"
        )
    where = f" on {broker}" if broker else ""
    raise QueueNotFoundError(f"{topic} has no queue {queue_id}{where}; its queues: {named}")
