"""``eruca scheduled``: list scheduled messages, and cancel one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eruca.cli import silent_brokers
from eruca.cli.command import command
from eruca.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eruca.aio.scheduled import HeldScheduled
    from eruca.contract.errors import ErucaError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="List scheduled messages; cancel one.")
    command(group, "list")(list_)
    command(group, "recall")(recall)
    app.add_typer(group, name="scheduled")


async def list_(
    session: Session,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only messages to this topic.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of messages.", min=1)
    ] = 100,
) -> int:
    """List scheduled messages in the order of their delivery times.

    They include messages that wait for a retry, with their retry topic. Exit code 1 if a broker
    does not answer; the messages of the others are shown.
    """
    found: list[HeldScheduled] = []
    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        async for held in client.admin.scheduled(topic, unanswered=unanswered):
            if len(found) == count:
                session.say(f"there are more than {count}; raise --count to see them")
                break
            found.append(held)
        unanswered |= await silent_brokers.away(client)
    if session.is_json:
        session.show_json(
            [{"broker_name": h.broker_name} | h.message.model_dump(mode="json") for h in found]
        )
        return silent_brokers.said(session, unanswered, is_in_document=False)
    session.show_table(
        ["deliver at", "message id", "topic", "on", "queue", "stored at", "bytes", "recall handle"],
        map(_row, found),
        none="no scheduled messages",
    )
    return silent_brokers.said(session, unanswered)


async def recall(
    session: Session,
    *,
    recall_handle: Annotated[
        str,
        typer.Argument(
            metavar="HANDLE",
            help="The message's recall handle, from eruca send --json or eruca scheduled list.",
        ),
    ],
) -> None:
    """Cancel a scheduled message: it is never delivered.

    A message id is not a handle: several messages may have it, in other topics or on other brokers.
    If an id is given, nothing is cancelled, and the handles of its messages are shown.
    """
    async with session.client() as client, silent_brokers.noted(client):
        recalled = await client.admin.recall_scheduled(recall_handle)
    if session.is_json:
        session.show_json(
            {
                "message_id": recalled.message_id,
                "topic": recalled.topic,
                "broker_name": recalled.broker_name,
            }
        )
    else:
        session.show_text(
            f"cancelled: {recalled.message_id} to {recalled.topic}, scheduled on"
            f" {recalled.broker_name}"
        )


def _row(held: HeldScheduled) -> Sequence[object]:
    from eruca.cli.shown_messages import time_text

    message = held.message
    return (
        time_text(message.deliver_at),
        message.message_id,
        message.topic,
        held.broker_name,
        message.queue_id,
        time_text(message.stored_at),
        message.size,
        message.recall_handle,
    )
