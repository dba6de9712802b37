"""``eruca txn``: list undecided transactions, show one, and decide it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eruca.cli import silent_brokers
from eruca.cli.as_of import AtOption, place_of, show_transaction
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eruca.contract.errors import ErucaError
    from eruca.contract.transaction_events import Outcome
    from eruca.contract.transactions import (
        TransactionDetail,
        TransactionHistoryEntry,
        TransactionSummary,
    )

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The transaction's id, which is its message's id.")
]
BrokerOption = Annotated[
    str | None, typer.Option("--broker", "-b", help="Only on this broker; default: on all.")
]
ReasonOption = Annotated[
    str, typer.Option("--reason", "-r", help="Why; recorded with the decision.")
]


class StateChoice(StrEnum):
    """States of undecided transactions, as an option."""

    PENDING = "pending"
    PARKED = "parked"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="List undecided transactions; commit or roll them back."
    )
    command(group, "list")(list_)
    command(group, "show")(show)
    command(group, "commit")(commit)
    command(group, "rollback")(rollback)
    app.add_typer(group, name="txn")


async def list_(
    session: Session,
    *,
    state: Annotated[
        StateChoice | None,
        typer.Option(
            "--state",
            help="Only pending transactions, or only parked ones: rolled back for lack of a"
            " decision.",
        ),
    ] = None,
    producer_group: Annotated[
        str | None, typer.Option("--group", "-g", help="Only transactions of this producer group.")
    ] = None,
    broker: BrokerOption = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of transactions.", min=1)
    ] = 100,
) -> int:
    """List undecided transactions, oldest first.

    A pending transaction waits for its producer, or for the answer to a check. A parked one was
    rolled back because there was no decision in time; it can still be committed. Exit code 1 if a
    broker does not answer; the transactions of the others are shown.
    """
    found: list[TransactionSummary] = []
    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        undecided = client.admin.transactions.undecided(
            state=None if state is None else state.value,
            producer_group=producer_group,
            broker_name=broker,
            unanswered=unanswered,
        )
        async for summary in undecided:
            if len(found) == count:
                session.say(f"there are more than {count}; raise --count to see them")
                break
            found.append(summary)
        if broker is None:
            unanswered |= await silent_brokers.away(client)
    if session.is_json:
        session.show_json(found)
        return silent_brokers.said(session, unanswered, is_in_document=False)
    session.show_table(
        ["transaction", "state", "group", "topic", "on", "begun at", "checks", "last check"],
        map(_row, found),
        none="no transactions",
    )
    return silent_brokers.said(session, unanswered)


async def show(
    session: Session,
    *,
    transaction_id: IdArgument,
    broker: BrokerOption = None,
    at: AtOption = None,
) -> int:
    """Show a transaction: its state, its history, and its message.

    With --at, its state as of an earlier offset of its broker's log. Exit code 1 if the log does
    not have it any more.
    """
    if at is not None:
        place = place_of(at)
        async with session.client() as client:
            past = await client.admin.transactions.as_of(
                transaction_id, broker_name=place.broker_name, log_offset=place.log_offset
            )
        show_transaction(session, place, past)
        return EXIT_FAILED if past.unknown is not None else 0
    async with session.client() as client, silent_brokers.noted(client):
        detail = await client.admin.transactions.get(transaction_id, broker_name=broker)
    if session.is_json:
        session.show_json(detail)
        return 0
    session.show_record(_fields(detail))
    session.show_text("")
    session.show_table(["at", "event", "by", "what"], map(_history_row, detail.history))
    if detail.message is not None:
        session.show_text("")
        from eruca.cli.shown_messages import body_line

        session.show_text(body_line(detail.message["body"]))
    return 0


async def commit(
    session: Session,
    *,
    transaction_id: IdArgument,
    reason: ReasonOption,
    broker: BrokerOption = None,
) -> None:
    """Commit a pending or parked transaction: its message is delivered.

    A rollback by the producer, or by the answer to a check, is final.
    """
    await _decide(session, transaction_id, "commit", reason, broker)


async def rollback(
    session: Session,
    *,
    transaction_id: IdArgument,
    reason: ReasonOption,
    broker: BrokerOption = None,
) -> None:
    """Roll back a transaction: its message is never delivered; a parked one is discarded."""
    await _decide(session, transaction_id, "rollback", reason, broker)


async def _decide(
    session: Session, transaction_id: str, outcome: Outcome, reason: str, broker: str | None
) -> None:
    async with session.client() as client, silent_brokers.noted(client):
        transactions = client.admin.transactions
        decide = transactions.commit if outcome == "commit" else transactions.rollback
        receipt = await decide(transaction_id, reason=reason, broker_name=broker)
    if session.is_json:
        session.show_json(receipt)
        return
    place = receipt.message
    line = f"{transaction_id} {receipt.state.replace('_', ' ')}"
    if receipt.repeated:
        line += f", as decided at {receipt.decided_at} by {receipt.by}"
    if place is not None:
        at = "later" if place.queue_offset is None else f"at {place.queue_offset}"
        line += f": {place.topic}/{place.queue_id} {place.deliver_at or at}"
    session.show_text(line)


def _row(summary: TransactionSummary) -> Sequence[object]:
    from eruca.cli.shown_messages import time_text

    return (
        summary.transaction_id,
        summary.state,
        summary.producer_group,
        summary.topic,
        summary.broker_name,
        time_text(summary.begun_at),
        summary.checks,
        None if summary.last_check_at is None else time_text(summary.last_check_at),
    )


def _fields(detail: TransactionDetail) -> Iterator[tuple[str, Any]]:
    from eruca.cli.shown_messages import time_text

    yield "transaction", detail.transaction_id
    yield "state", detail.state.replace("_", " ")
    yield "on", detail.broker_name
    yield "producer group", detail.producer_group
    yield "to", f"{detail.topic}/{detail.queue_id}"
    yield "begun at", time_text(detail.begun_at)
    yield "check immunity", _seconds(detail.check_immunity_seconds)
    yield "checks", detail.checks
    decision = detail.decision
    if decision is not None:
        yield "decided by", decision.by
        yield "decided at", time_text(decision.decided_at)
        yield "reason", decision.reason
    if (place := detail.committed) is not None:
        yield "stored at", f"{place.topic}/{place.queue_id}@{place.queue_offset}"
        if place.deliver_at is not None:
            yield "deliver at", time_text(place.deliver_at)
    if detail.message is not None:
        yield "tag", detail.message["tag"]
        yield "keys", " ".join(detail.message["keys"]) or None


def _history_row(entry: TransactionHistoryEntry) -> Sequence[object]:
    from eruca.cli.shown_messages import time_text

    parts = [
        None if entry.check_number is None else f"check {entry.check_number}",
        entry.checker,
        entry.reason,
    ]
    what = ", ".join(part for part in parts if part is not None)
    return time_text(entry.at), entry.event.replace("_", " "), entry.by, what or None


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:g} s"
