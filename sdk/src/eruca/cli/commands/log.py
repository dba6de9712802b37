"""``eruca log``: follow every record that a broker writes, or feed RocketMQ slaves with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

import typer

from eruca.cli.command import command
from eruca.cli.session import Session

if TYPE_CHECKING:
    from eruca.aio.client import AsyncClient
    from eruca.core.messages.log_block import LogRecord

LogStart = int | Literal["earliest", "latest"]

_ENDS: Final[dict[str, LogStart]] = {"earliest": "earliest", "latest": "latest"}
_SLAVES_ADDRESS: Final = "127.0.0.1:10912"  # RocketMQ's haListenPort
_PAUSE_SECONDS: Final = 1.0  # without a record: time to check whether the output still has a reader
_RECORDS_AHEAD: Final = 1_000  # read and not yet printed


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Read the brokers' logs.")
    command(group, "follow")(follow)
    command(group, "feed-slaves")(feed_slaves)
    app.add_typer(group, name="log")


def _checked_start(value: str) -> LogStart:
    if value in _ENDS:
        return _ENDS[value]
    if value.isascii() and value.isdecimal():
        return int(value)
    raise typer.BadParameter(f"expected earliest, latest or a log offset; found {value!r}")


async def follow(
    session: Session,
    *,
    broker: Annotated[
        str | None, typer.Option("--broker", help="The broker; default: all brokers.")
    ] = None,
    start: Annotated[
        str, typer.Option("--start", help="Where to begin: earliest, latest or a log offset.")
    ] = "latest",
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Stop after this number of records.", min=1)
    ] = None,
) -> None:
    """Follow the log of one broker, or of all: one line per record, in the log's order."""
    begin = _checked_start(start)
    async with session.client() as client:
        names = [broker] if broker is not None else await _broker_names(client)
        if isinstance(begin, int) and len(names) > 1:
            raise typer.BadParameter(
                "--broker is required with a log offset, because each broker has its own offsets"
            )
        printed = 0
        async with aclosing(_records(client, names, begin)) as records:
            async for record in records:
                if record is None:
                    session.check_reader()
                    continue
                _show(session, record)
                printed += 1
                if printed == count:
                    return


async def feed_slaves(
    session: Session,
    *,
    broker: Annotated[str, typer.Argument(metavar="NAME", help="The broker.")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where slaves connect.")
    ] = _SLAVES_ADDRESS,
    slave: Annotated[
        list[str] | None,
        typer.Option(
            "--slave",
            metavar="HOST:PORT",
            help="A RocketMQ broker to tell that this is its master; repeat it for several.",
        ),
    ] = None,
) -> None:
    """Feed RocketMQ slaves with a broker's log, until Ctrl-C: a way out of Eruca.

    A RocketMQ broker with brokerRole=SLAVE copies the log, byte for byte, as it becomes visible.
    RocketMQ's protocol has no credentials: anyone who reaches the port can read everything.
    """
    from eruca.cli.slaves.slave_feed import SlaveEvent, SlaveFeed

    host, port = _host_and_port("--listen", listen)
    slaves = [_host_and_port("--slave", text) for text in slave or ()]

    def listening(host: str, port: int) -> None:
        if session.is_json:
            session.show_line({"event": "listening", "host": host, "port": port})
            return
        session.say(f"slaves of {broker} may connect to {host}, port {port}")
        if not ip_address(host.partition("%")[0]).is_loopback:
            session.say(f"anyone who reaches {host} can read the whole log")

    def tell(event: SlaveEvent) -> None:
        if session.is_json:
            session.show_line(event.document())
        else:
            session.say(str(event))

    async with session.client() as client:
        try:
            feed = SlaveFeed(client, broker, tell)
            await feed.serve(host, port, listening=listening, slaves=slaves)
        except OSError as error:
            raise typer.BadParameter(f"--listen {listen}: {error.strerror or error}") from error


def _host_and_port(option: str, text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or port is None or "@" in text or parts.netloc != text:
        raise typer.BadParameter(f"{option}: expected HOST:PORT, found {text!r}")
    return host, port


async def _broker_names(client: AsyncClient) -> list[str]:
    from eruca.contract.errors import BrokerNotFoundError

    names = [group.broker_name for group in await client.admin.brokers()]
    if not names:
        raise BrokerNotFoundError("no broker is registered", fix="start a broker")
    return names


async def _records(
    client: AsyncClient, brokers: list[str], start: LogStart
) -> AsyncGenerator[LogRecord | None, None]:
    """Yield records of several brokers as they arrive, in order per broker; at times None."""
    ready: asyncio.Queue[LogRecord] = asyncio.Queue(_RECORDS_AHEAD)

    async def read(broker: str) -> None:
        async with client.log_follower(broker, from_offset=start) as follower:
            async for record in follower:
                await ready.put(record)

    readers = [asyncio.create_task(read(broker)) for broker in brokers]
    try:
        while True:
            while not ready.empty():
                yield ready.get_nowait()
            first = asyncio.create_task(ready.get())
            await asyncio.wait(
                [first, *readers], timeout=_PAUSE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if first.done():
                yield first.result()
                continue
            first.cancel()
            for reader in readers:
                if reader.done():
                    reader.result()  # raises: a reader never ends without an error
            yield None
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


def _show(session: Session, found: LogRecord) -> None:
    from datetime import UTC, datetime

    from eruca.cli.shown_messages import body_document, body_line, one_line, time_text
    from eruca.contract.properties import KEYS, TAGS

    record = found.decode()
    properties = record.property_map()
    stored_at = time_text(datetime.fromtimestamp(record.store_timestamp / 1000, UTC))
    if session.is_json:
        session.show_line(
            {
                "broker_name": found.broker_name,
                "log_offset": found.log_offset,
                "size": found.size,
                "topic": record.topic,
                "queue_id": record.queue_id,
                "queue_offset": record.queue_offset,
                "sys_flag": record.sys_flag,
                "prepared_offset": record.prepared_offset,
                "stored_at": stored_at,
                "properties": properties,
                "body": body_document(record.body, properties),
            }
        )
        return
    body = body_document(record.body, properties)
    words = [
        stored_at,
        f"{found.broker_name}:{found.log_offset}+{found.size}",
        f"{record.topic}/{record.queue_id}@{record.queue_offset}",
        f"[{properties[TAGS]}]" if TAGS in properties else "",
        properties.get(KEYS, ""),
        body_line(body),
    ]
    session.show_text(one_line(" ".join(filter(None, words))))
