"""``eruca message``: single messages by id or key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli import silent_brokers
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.commands.reading import checked_time
from eruca.cli.session import Session

if TYPE_CHECKING:
    from eruca.aio.client import AsyncClient
    from eruca.contract.messages import PulledMessage


_HEADINGS: Final = {
    "offset_message_id": "offset id",
    "queue_id": "queue",
    "reconsume_times": "retries",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Show a message by its id; find messages by key."
    )
    command(group, "show")(show)
    command(group, "find")(find)
    app.add_typer(group, name="message")


async def show(
    session: Session,
    *,
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="An offset id; or, with --topic, a unique id.")
    ],
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="The message's topic; required for a unique id."),
    ] = None,
) -> None:
    """Show one message with all of its fields."""
    async with session.client() as client:
        message = await _message(client, message_id, topic)
    if session.is_json:
        session.show_json(message)
        return
    from eruca.contract.messages import as_builtins

    fields = as_builtins(message)
    del fields["body"]
    session.show_record((_heading(name), _plain(value)) for name, value in fields.items())
    session.show_text("")
    session.show_text(_body_text(message))


async def find(
    session: Session,
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic.")],
    key: Annotated[str, typer.Option("--key", "-k", help="A key, or a unique id.")],
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="Only messages stored at this time or later: a time, or a span before now.",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only messages stored before this time.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of messages.", min=1)
    ] = 100,
) -> int:
    """Find messages of a topic by key, newest first.

    Exit code 1 if a broker is away, or could not search everything; what was found is shown.
    """
    incomplete: dict[str, str] = {}
    async with session.client() as client:
        found = await client.admin.messages_by_key(
            topic,
            key,
            since=checked_time(since),
            until=checked_time(until),
            limit=count + 1,
            incomplete=incomplete,
        )
        if len(found) > count:
            session.say(
                f"there are more than {count}, the newest are shown; raise --count to"
                " see the others"
            )
            found = found[:count]
        unanswered = await silent_brokers.away(client)
    for name, reason in sorted(incomplete.items()):
        session.say(f"{name} may have more messages with the key: {reason}")
    if session.is_json:
        session.show_json(found)
        code = silent_brokers.said(session, unanswered, is_in_document=False)
        return EXIT_FAILED if incomplete else code
    from eruca.cli.shown_messages import one_line

    session.show_table(
        ["stored at", "on", "queue", "queue offset", "offset id", "tag", "keys", "body"],
        (
            (
                message.stored_at,
                message.store_host,
                message.queue_id,
                message.queue_offset,
                message.offset_message_id,
                message.tag,
                ",".join(message.keys),
                one_line(_body_text(message)),
            )
            for message in found
        ),
        none=None if unanswered or incomplete else "no message found",
    )
    code = silent_brokers.said(session, unanswered)
    return EXIT_FAILED if incomplete else code


async def _message(client: AsyncClient, message_id: str, topic: str | None) -> PulledMessage:
    from eruca.contract.errors import RecordNotFoundError, ValidationError

    # One request finds an offset id. A unique id may take a search through all of the tier.
    try:
        return (await client.admin.message_by_offset_id(message_id)).message
    except (RecordNotFoundError, ValidationError) as error:
        if topic is None:
            fix = (
                f"for a unique id give --topic, or use eruca query id {message_id}, which searches "
                "for both kinds of id in all topics"
            )
            raise type(error)(error.detail, fix=fix) from None
    return await client.admin.message_by_unique_id(topic, message_id)


def _body_text(message: PulledMessage) -> str:
    body = message.body
    if body is None:
        return f"damaged: {message.damage}"
    return body.line()


def _heading(name: str) -> str:
    """Return a field of the contract under the name that all commands use."""
    return _HEADINGS.get(name) or name.replace("_", " ")


def _plain(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or None
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items()) or None
    return value
