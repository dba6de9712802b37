"""``eruca dlq``: list a group's dead letters with their reasons, and redrive them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli import silent_brokers
from eruca.cli.asking import YesOption, confirmed
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.commands.groups import GroupArgument
from eruca.cli.session import Session, leave_unread
from eruca.cli.starts import start_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress

    from eruca.aio.dead_letters import HeldDeadLetter, Redriven, RedriveStep
    from eruca.contract.errors import ErucaError

OriginOption = Annotated[
    str | None, typer.Option("--topic", "-t", help="Only letters that came from this topic.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Only letters with this reason, such as failed.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Only letters that died at this time or later: a time or a span, such as 2h.",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until", help="Only letters that died before this time: a time or a span, such as 2h."
    ),
]

_ERROR_SHOWN: Final = 60  # characters of the last error in a list


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="List dead letters and redrive them.")
    command(group, "list")(list_)
    command(group, "show")(show)
    command(group, "redrive")(redrive)
    app.add_typer(group, name="dlq")


async def list_(
    session: Session,
    *,
    group: GroupArgument,
    topic: OriginOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of letters.", min=1)
    ] = 100,
) -> int:
    """List a group's dead letters, oldest first, broker by broker.

    Exit code 1 if a broker does not answer; the dead letters of the others are shown.
    """
    found: list[HeldDeadLetter] = []
    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        letters = client.admin.groups.dead_letters(
            group,
            topic=topic,
            reason=reason,
            since=_moment(since),
            until=_moment(until),
            unanswered=unanswered,
        )
        async for held in letters:
            if len(found) == count:
                session.say(f"there are more than {count}; raise --count to see them")
                break
            found.append(held)
        unanswered |= await silent_brokers.away(client)
    if session.is_json:
        session.show_json(
            [{"broker_name": h.broker_name} | h.letter.model_dump(mode="json") for h in found]
        )
        return silent_brokers.said(session, unanswered, is_in_document=False)
    session.show_table(
        [
            "id",
            "from",
            "message id",
            "reason",
            "attempts",
            "last error",
            "died at",
            "redriven",
        ],
        (_row(held) for held in found),
        none="no dead letters",
    )
    return silent_brokers.said(session, unanswered)


async def show(
    session: Session,
    *,
    group: GroupArgument,
    letter: Annotated[
        str,
        typer.Argument(
            metavar="BROKER/ID", help="A dead letter, as in the first column of: eruca dlq list."
        ),
    ],
) -> None:
    """Show one dead letter as JSON: its reason, its origin, and the message."""
    broker_name, dead_letter_id = _place(letter)
    async with session.client() as client:
        found = await client.admin.groups.dead_letter(group, broker_name, dead_letter_id)
    session.show_json(found)


async def redrive(
    session: Session,
    *,
    group: GroupArgument,
    letters: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BROKER/ID", help="These dead letters; default: those that the options select."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All dead letters.")] = False,
    topic: OriginOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    per_second: Annotated[
        float | None, typer.Option("--per-second", help="Maximum number per second.", min=0.01)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would happen.")
    ] = False,
    yes: YesOption = False,
) -> int:
    """Send dead letters to their topics of origin, as new messages.

    The command covers the letters that exist when it begins. If it is interrupted, run it again: it
    skips redriven letters.
    """
    is_filtered = any(value is not None for value in (topic, reason, since, until))
    if bool(letters) + is_filtered + all_ != 1:
        raise typer.BadParameter("expected one of: BROKER/ID, options that select, or --all")
    if not (dry_run or yes):
        question = f"Redrive dead letters of {group}?"
        if not await confirmed(question, instead="give --yes, or --dry-run to see the effect"):
            return EXIT_FAILED
    progress = _progress_bar()
    task = progress.add_task(group, total=None)

    def show_step(step: RedriveStep) -> None:
        progress.update(task, total=step.total, completed=step.looked_at_count)
        try:
            for done in step.outcomes:
                _show_outcome(session, done, dry_run=dry_run)
        except BrokenPipeError:  # redrive all letters, even if the output has no reader any more
            leave_unread(sys.stdout)

    async with session.client() as client:
        with progress:
            summary = await client.admin.groups.redrive(
                group,
                ids=_by_broker(letters) if letters else None,
                topic=topic,
                reason=reason,
                since=_moment(since),
                until=_moment(until),
                per_second=per_second,
                dry_run=dry_run,
                on_step=show_step,
            )
    counts = {
        "redriven": summary.redriven,
        "skipped": summary.skipped,
        "not found": summary.not_found,
    }
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    session.say(("would be: " if dry_run else "") + (told or "no dead letter matches"))
    return EXIT_FAILED if summary.not_found else 0


def _progress_bar() -> Progress:
    from rich.progress import MofNCompleteColumn

    from eruca.cli.sending.progress import progress_bar

    return progress_bar(MofNCompleteColumn())


def _show_outcome(session: Session, done: Redriven, *, dry_run: bool) -> None:
    outcome = done.outcome
    if session.is_json:
        session.show_line({"broker_name": done.broker_name} | outcome.model_dump(mode="json"))
        return
    what = outcome.outcome.replace("_", " ")
    if what == "redriven":
        what = f"{'would be ' if dry_run else ''}redriven to {outcome.topic}"
    why = f": {outcome.detail}" if outcome.detail else ""
    session.show_text(f"{done.broker_name}/{outcome.dead_letter_id} {what}{why}")


def _row(held: HeldDeadLetter) -> Sequence[object]:
    from eruca.cli.shown_messages import one_line, time_text

    letter = held.letter
    why = letter.last_error if letter.damage is None else f"damaged {letter.damage}"
    origin = letter.origin_topic
    if origin is not None and None not in (letter.origin_queue_id, letter.origin_offset):
        origin += f"/{letter.origin_queue_id}@{letter.origin_offset}"
    return (
        f"{held.broker_name}/{letter.dead_letter_id}",
        origin,
        letter.message_id,
        letter.reason,
        letter.attempts,
        None if why is None else one_line(why)[:_ERROR_SHOWN],
        None if letter.dead_at is None else time_text(letter.dead_at),
        None if letter.redriven_at is None else time_text(letter.redriven_at),
    )


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = start_of(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not isinstance(moment, datetime):
        raise typer.BadParameter(
            f"expected a time such as 2026-11-01T12:00:00Z, or a span such as 2h; found {text}"
        )
    return moment


def _place(text: str) -> tuple[str, int]:
    broker_name, _, number = text.rpartition("/")
    if not broker_name or not (number.isascii() and number.isdigit()):
        raise typer.BadParameter(f"expected BROKER/ID such as broker-a/17, found {text!r}")
    return broker_name, int(number)


def _by_broker(letters: list[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for letter in letters:
        broker_name, dead_letter_id = _place(letter)
        places.setdefault(broker_name, []).append(dead_letter_id)
    return places
