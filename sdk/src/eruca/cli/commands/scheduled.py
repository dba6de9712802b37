"""``eruca scheduled``: messages that wait for their delivery, and recalling one."""

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
    group = typer.Typer(
        no_args_is_help=True, help="See messages that are to be delivered later; recall one."
    )
    command(group, "list")(list_)
    command(group, "recall")(recall)
    app.add_typer(group, name="scheduled")


async def list_(
    session: Session,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only what goes to this topic.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="How many at most.", min=1)] = 100,
) -> int:
    """List messages that wait for their delivery, in the order they come due.

    Messages that a consumer group is to get once more are among them, with its retry topic.
    Exit code 1 when a broker does not answer; what the others have is shown.
    """
    found: list[HeldScheduled] = []
    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        async for held in client.admin.scheduled(topic, unanswered=unanswered):
            if len(found) == count:
                session.say(f"there are more than {count}; see --count")
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
        none="no message waits for its delivery",
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
    """Recall a message before it is delivered; it never is, then.

    A message's id is no handle: several messages may have it, in other topics or on other brokers.
    Given an id, the command recalls nothing and shows the handles of the messages it may mean.
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
            f"{recalled.message_id} is not delivered to {recalled.topic}; "
            f"it waited on {recalled.broker_name}"
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
