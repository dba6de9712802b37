"""``eruca group``: where consumer groups stand."""

from __future__ import annotations

from typing import Annotated

import typer

from eruca.cli.command import command
from eruca.cli.session import Session


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="See where consumer groups stand.")
    command(group, "offsets")(offsets)
    app.add_typer(group, name="group")


async def offsets(
    session: Session,
    *,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")],
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="In every queue of this topic.")
    ] = None,
) -> None:
    """Show the committed offset and lag of a group in each queue; a dash is unknown."""
    async with session.client() as client:
        found = await client.admin.groups.offsets(group, topic=topic)
    if session.is_json:
        session.show_json(
            [
                {"broker_name": queue.broker_name} | committed.model_dump(mode="json")
                for queue, committed in sorted(found.items())
            ]
        )
        return
    session.show_table(
        ["topic", "broker", "queue", "min offset", "committed offset", "max offset", "lag"],
        (
            (
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                committed.min_offset,
                committed.committed_offset,
                committed.max_offset,
                committed.lag,
            )
            for queue, committed in sorted(found.items())
        ),
    )
