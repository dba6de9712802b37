"""``eruca send``: messages from arguments, lines of text, JSON lines or CSV."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli.command import EXIT_ROWS_SKIPPED, command
from eruca.cli.counts import counted
from eruca.cli.sending.delays import Delay, delay_of
from eruca.cli.session import Session

if TYPE_CHECKING:
    from eruca.cli.sending.row_feed import RowFeed
    from eruca.cli.sending.rows import BadRow, RowFields, RowFormat
    from eruca.cli.sending.sending import SendCounts

_FORMATS: Final = ("lines", "jsonl", "csv")
_BAD_ROWS_SHOWN: Final = 20  # the others are counted


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "send")(send)


def _checked_format(value: str | None) -> str | None:
    if value is not None and value not in _FORMATS:
        raise typer.BadParameter(f"expected one of {', '.join(_FORMATS)}; found {value!r}")
    return value


def _checked_properties(values: list[str] | None) -> list[str] | None:
    for value in values or ():
        name, separator, _ = value.partition("=")
        if not name or not separator:
            raise typer.BadParameter(f"expected NAME=VALUE, found {value!r}")
    return values


def _checked_delay(value: str | None) -> Delay:
    try:
        return Delay() if value is None else delay_of(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


async def send(
    session: Session,
    *,
    bodies: Annotated[
        list[str] | None, typer.Argument(help="Messages; without any, rows are read from --file.")
    ] = None,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic.")],
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="Read rows from this file; - or not given: stdin."),
    ] = None,
    row_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="lines|jsonl|csv",
            help="Format of the rows; default: by the file's extension, else lines.",
            callback=_checked_format,
        ),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Tag of every message.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Key of every message; may be repeated.")
    ] = None,
    sharding_key: Annotated[
        str | None, typer.Option(help="Sharding key: messages with the same one stay in order.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="Property of every message; may be repeated.",
            callback=_checked_properties,
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay",
            metavar="SPAN|TIME",
            help="Schedule the delivery: after a span (90s, 15m, 2h, 3d), or at a time.",
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Idempotency key of a single message: a repeated send is stored once.",
        ),
    ] = None,
    copies: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            min=1,
            help="Store nothing while fewer replicas than this are in sync.",
        ),
    ] = 1,
    body_field: Annotated[
        str | None, typer.Option(help="Field with the body, instead of the whole row.")
    ] = None,
    tag_field: Annotated[str | None, typer.Option(help="Field with the tag.")] = None,
    key_field: Annotated[
        list[str] | None, typer.Option(help="Field with a key; may be repeated.")
    ] = None,
    sharding_key_field: Annotated[
        str | None, typer.Option(help="Field with the sharding key.")
    ] = None,
    property_field: Annotated[
        list[str] | None, typer.Option(help="Field that becomes a property; may be repeated.")
    ] = None,
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors", help="Report and count bad rows, and continue.")
    ] = False,
) -> int:
    """Send messages: from the arguments, or one for each row of a file or of stdin.

    Rows are lines of text, JSON lines, or CSV with a header, whose rows become JSON objects. A bad
    row ends the command with an error that names its line. With --skip-errors the command
    continues, and the exit code is 3.
    """
    # Imported when it runs, as everything else that --help does not need.
    from eruca.cli.sending.rows import RowFields, RowFormat, format_of

    fields = RowFields(
        tag=tag,
        keys=tuple(key or ()),
        sharding_key=sharding_key,
        properties=dict(text.split("=", 1) for text in properties or ()),
        body_field=body_field,
        tag_field=tag_field,
        key_fields=tuple(key_field or ()),
        sharding_key_field=sharding_key_field,
        property_fields=tuple(property_field or ()),
    )
    chosen_delay = _checked_delay(delay)
    if idempotency_key is not None and len(bodies or ()) != 1:
        raise typer.BadParameter(
            "--idempotency-key identifies one message; give the message as the argument"
        )
    if bodies:
        if file is not None:
            raise typer.BadParameter("give messages or --file, not both")
        if fields.are_used:
            raise typer.BadParameter("only rows have fields; the messages given here have none")
        return await _send_arguments(
            session,
            topic,
            bodies,
            fields,
            chosen_delay,
            idempotency_key=idempotency_key,
            copies=copies,
        )
    chosen = RowFormat(row_format) if row_format else format_of(file or "-")
    if fields.are_used and chosen is RowFormat.LINES:
        raise typer.BadParameter("lines have no fields; give --format jsonl or csv")
    feed = _feed(session, file, chosen, fields)
    return await _send_rows(
        session, topic, feed, chosen_delay, skip_errors=skip_errors, copies=copies
    )


async def _send_arguments(
    session: Session,
    topic: str,
    bodies: list[str],
    fields: RowFields,
    delay: Delay,
    *,
    idempotency_key: str | None,
    copies: int,
) -> int:
    from eruca.cli.shown_messages import time_text
    from eruca.core.messages.idempotency_keys import checked_key
    from eruca.core.messages.message import Message
    from eruca.core.routing.selectors import by_hash

    key = None if idempotency_key is None else checked_key(idempotency_key)
    # One broker stores a key's result, so the key selects the queue, unless an option does.
    selector = None if key is None or fields.sharding_key is not None else by_hash

    messages = [
        Message(
            topic,
            body,
            keys=fields.keys,
            tag=fields.tag,
            properties=fields.properties,
            sharding_key=fields.sharding_key,
            deliver_at=delay.deliver_at,
            delay_seconds=delay.seconds,
            message_id=key,
        )
        for body in bodies
    ]
    async with (
        session.client() as client,
        client.producer(idempotent=key is not None, copies=copies) as producer,
    ):
        results = await producer.send_many(
            messages, selector=selector, selector_arg=None if selector is None else key
        )
    receipts = [
        {
            "topic": result.queue.topic,
            "broker_name": result.queue.broker_name,
            "queue_id": result.queue.queue_id,
            "queue_offset": result.queue_offset,
            "log_offset": result.log_offset,
            "message_id": result.message_id,
            "offset_message_id": result.offset_message_id,
            "stored_at": time_text(result.stored_at),
            "durability": result.durability,
            "copies": result.copies,
            "deliver_at": None if result.deliver_at is None else time_text(result.deliver_at),
            "recall_handle": result.recall_handle,
            "replayed": result.replayed,
        }
        for result in results
    ]
    if session.is_json:
        session.show_json(receipts)
    else:
        headings = {
            "message_id": "message id",
            "broker_name": "on",
            "queue_id": "queue",
            "queue_offset": "queue offset",
            "durability": "durability",
        }
        if copies > 1 or any(result.copies > 1 for result in results):
            headings["copies"] = "copies"
        if any(result.deliver_at is not None for result in results):
            headings |= {"deliver_at": "deliver at", "recall_handle": "recall handle"}
        if key is not None:
            headings["replayed"] = "replayed"
        rows = ([receipt[name] for name in headings] for receipt in receipts)
        session.show_table([*headings.values()], rows)
    return 0


def _feed(session: Session, file: str | None, row_format: RowFormat, fields: RowFields) -> RowFeed:
    import csv

    from eruca.cli.sending.row_feed import RowFeed
    from eruca.contract.limits import BODY_SIZE_MAX

    csv.field_size_limit(BODY_SIZE_MAX)  # the default is 128 KiB
    if file is None or file == "-":
        if sys.stdin is None:
            raise typer.BadParameter("stdin is closed; give messages or --file")
        if sys.stdin.isatty():
            session.say("reading lines from the terminal; Ctrl-D ends")
        return RowFeed(os.dup(sys.stdin.fileno()), row_format, fields)
    return RowFeed(Path(file), row_format, fields)


async def _send_rows(
    session: Session, topic: str, feed: RowFeed, delay: Delay, *, skip_errors: bool, copies: int
) -> int:
    from eruca.cli.sending.progress import SendProgress
    from eruca.cli.sending.sending import RowSender

    bad_rows = 0

    def on_bad_row(row: BadRow) -> None:
        nonlocal bad_rows
        bad_rows += 1
        if bad_rows <= _BAD_ROWS_SHOWN:
            session.say(f"skipped: line {row.line}: {row.fault}")
        elif bad_rows == _BAD_ROWS_SHOWN + 1:
            session.say("skipped: more rows; they are counted, but not shown")

    progress = SendProgress(feed, topic)
    async with session.client() as client:
        sender = RowSender(
            client,
            topic,
            delay=delay,
            copies=copies,
            skip_errors=skip_errors,
            on_bad_row=on_bad_row,
            on_progress=progress.show,
        )
        try:
            with progress:
                await sender.send(feed.batches())
        except BaseException:
            with suppress(BrokenPipeError):  # report the error nevertheless
                _show_counts(session, topic, sender.counts)
            raise
        _show_counts(session, topic, sender.counts)
    return EXIT_ROWS_SKIPPED if sender.counts.skipped else 0


def _show_counts(session: Session, topic: str, counts: SendCounts) -> None:
    rate = counts.sent / counts.seconds if counts.seconds else 0.0
    if session.is_json:
        session.show_json(
            {
                "topic": topic,
                "sent": counts.sent,
                "skipped": counts.skipped,
                "bytes": counts.bytes,
                "seconds": round(counts.seconds, 3),
                "messages_per_second": round(rate),
            }
        )
        return
    skipped = f", {counted(counts.skipped, 'bad row')} skipped" if counts.skipped else ""
    session.say(
        f"{counted(counts.sent, 'message')} sent to {topic} in {counts.seconds:.1f} s "
        f"({rate:,.0f}/s){skipped}"
    )
