"""``--at BROKER:OFFSET``: a place in a broker's log, as of which a state is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from eruca.cli.session import Session
    from eruca.contract.groups import GroupAsOf
    from eruca.contract.transactions import TransactionAsOf

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="BROKER:OFFSET",
        help="As of this offset of a broker's log: the state after all records before it.",
    ),
]


class LogPlace(NamedTuple):
    """A place in a broker's log."""

    broker_name: str
    log_offset: int


def place_of(text: str) -> LogPlace:
    """Parse ``BROKER:OFFSET``; raise ``typer.BadParameter`` if it is something else."""
    broker_name, _, offset = text.rpartition(":")
    if not (broker_name and offset.isascii() and offset.isdecimal() and len(offset) < 20):
        raise typer.BadParameter(
            f"--at: expected BROKER:OFFSET, such as broker-a:8419007, found {text!r}"
        )
    return LogPlace(broker_name, int(offset))


def show_group(session: Session, place: LogPlace, past: GroupAsOf) -> None:
    """Show a group as of an earlier log offset; a question mark is unknown."""
    if session.is_json:
        session.show_json({"broker": place.broker_name, **past.model_dump(mode="json")})
        return
    if past.unknown is not None:
        session.show_text(f"? {past.unknown}")
    elif not past.exists:
        session.show_text(f"{past.group} did not exist at {place.broker_name}")
    else:
        state = "enabled" if past.consume_enabled else "disabled"
        topics = ", ".join(f"{one.topic} ({one.filter})" for one in past.subscriptions)
        session.show_text(f"{past.group}: {state}; subscribed to {topics or 'nothing'}")
        session.show_table(
            ["topic", "queue", "committed", "end", "lag", "unfinished", "reader"],
            [
                (
                    *(one.topic, one.queue_id),
                    *("-" if one.committed_offset is None else one.committed_offset,),
                    *("?" if value is None else value for value in (one.max_offset, one.lag)),
                    *(one.unfinished_count, one.owner or "-"),
                )
                for one in past.queues
            ],
            none="no positions",
        )


def show_transaction(session: Session, place: LogPlace, past: TransactionAsOf) -> None:
    """Show the state of a transaction as of an earlier log offset."""
    if session.is_json:
        session.show_json({"broker": place.broker_name, **past.model_dump(mode="json")})
    elif past.state is None:
        session.show_text(f"? {past.unknown}")
    else:
        checks = "" if past.checks is None else f", {past.checks} checks"
        session.show_text(f"{past.state.replace('_', ' ')}{checks}")
