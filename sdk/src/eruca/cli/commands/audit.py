"""``eruca audit``: who did what to the cluster, and who was refused."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eruca.cli import silent_brokers
from eruca.cli.command import command
from eruca.cli.commands.reading import checked_start, checked_time
from eruca.cli.session import Session
from eruca.cli.starts import START_HELP, QueueEnd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from eruca.aio.client import AsyncClient
    from eruca.cli.starts import Start
    from eruca.contract.errors import ErucaError

_COUNT_DEFAULT: Final = 100
_WAIT_SECONDS: Final = 20.0  # for new records, in one request
_PAUSE_SECONDS: Final = 2.0  # after a broker did not answer, or has no records yet
_MARGIN_SECONDS: Final = 5.0  # that an answer may come later than the end of its wait
_HEADINGS: Final = ["at", "event", "principal", "from", "operation", "resource", "outcome"]

PrincipalOption = Annotated[
    str | None, typer.Option("--principal", help="Only this principal, such as user:ann.")
]
OperationOption = Annotated[
    str | None, typer.Option("--operation", help="Only this operation, such as deleteTopic.")
]
DecisionOption = Annotated[
    str | None, typer.Option("--decision", help="Only what was allowed, or refused.")
]
EventOption = Annotated[
    str | None, typer.Option("--event", help="Only this event: act, refusal, rules_changed …")
]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The condition of the records to show; None: any."""

    principal: str | None
    operation: str | None
    decision: str | None
    event: str | None

    def __contains__(self, record: dict[str, Any]) -> bool:
        return all(
            value is None or record.get(name) == value
            for name, value in (
                ("principal", self.principal),
                ("operation", self.operation),
                ("decision", self.decision),
                ("event", self.event),
            )
        )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Who did what, and who was refused.")
    command(group, "tail")(tail)
    command(group, "find")(find)
    app.add_typer(group, name="audit")


async def find(
    session: Session,
    *,
    since: Annotated[
        str, typer.Option("--since", help="Recorded at or after: a time, or a span such as 2h.")
    ] = "1d",
    until: Annotated[str | None, typer.Option("--until", help="Recorded before.")] = None,
    principal: PrincipalOption = None,
    operation: OperationOption = None,
    decision: DecisionOption = None,
    event: EventOption = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of records, the latest.", min=1)
    ] = _COUNT_DEFAULT,
) -> int:
    """Find audit records, oldest first. Exit code 1 if a broker does not answer.

    Each broker has records of its own, and of services that have no log. They are kept as long as
    messages are. Reading them needs the rights to query and to consume on audit.
    """
    wanted = _wanted(principal, operation, decision, event)
    begin, end = checked_time(since), checked_time(until)
    assert begin is not None, "there is a default"
    found: deque[dict[str, Any]] = deque(maxlen=count)
    matched = 0
    unanswered: dict[str, ErucaError] = {}
    async with session.client() as client:
        records = await _all_records(client, begin, end, unanswered)
        unanswered |= await silent_brokers.away(client)
    for record in sorted(records, key=lambda record: str(record["at"])):
        if record in wanted:
            found.append(record)
            matched += 1
    if matched > count:
        session.say(f"there are {matched} records; the latest {count} are shown")
    if session.is_json:
        session.show_json(list(found))
        return silent_brokers.said(session, unanswered, is_in_document=False)
    session.show_table(_HEADINGS, map(_row, found), none="no audit records")
    return silent_brokers.said(session, unanswered)


async def tail(
    session: Session,
    *,
    start: Annotated[str, typer.Option("--start", help=START_HELP)] = "latest",
    principal: PrincipalOption = None,
    operation: OperationOption = None,
    decision: DecisionOption = None,
    event: EventOption = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Stop after this number of records.", min=1)
    ] = None,
) -> None:
    """Follow the audit: show records of all brokers as they are written.

    With --output json, each record is one line. A broker that does not answer is named, and reading
    continues there when it is back.
    """
    wanted, begin = _wanted(principal, operation, decision, event), checked_start(start)
    arrived: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=_COUNT_DEFAULT)
    async with session.client() as client:
        names = [group.broker_name for group in await client.admin.brokers()]
        readers = [_Reader(client, name) for name in names]
        session.say(f"following the audit of {', '.join(names) or 'no broker'}; Ctrl-C stops")
        tasks = [asyncio.create_task(_follow(session, r, begin, arrived)) for r in readers]
        try:
            left = count
            while left is None or left > 0:
                session.check_reader()
                record = await _next(arrived, tasks)
                if record is not None and record in wanted:
                    _show(session, record)
                    left = None if left is None else left - 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Reader:
    """Reads the audit records of one broker."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client

    async def offset_of(self, start: Start) -> int:
        """Return the queue offset of a start position; 0: there are no records yet."""
        from eruca.contract.audit import AUDIT_QUEUE_ID
        from eruca.contract.errors import TopicNotFoundError
        from eruca.contract.names import AUDIT_TOPIC

        url = await self._client.admin.broker_url(self.name)
        api = self._client.context.broker_api
        try:
            if not isinstance(start, QueueEnd):
                found = await api.offset_by_time(
                    url, AUDIT_TOPIC, AUDIT_QUEUE_ID, start, include_system=True
                )
                return found.offset
            [queue] = (await api.topic_queues(url, AUDIT_TOPIC, include_system=True)).queues
        except TopicNotFoundError:
            return 0
        return queue.max_offset if start is QueueEnd.LATEST else queue.min_offset

    async def read(
        self, offset: int, *, wait_seconds: float = 0
    ) -> tuple[list[dict[str, Any]], int, bool]:
        """Return some records from *offset* on, the next offset, and whether there are more.

        Raises:
            TopicNotFoundError: The broker has no records yet.
        """
        import msgspec

        from eruca.aio.http.transport import UNREADABLE, problem_error, target_of
        from eruca.contract.audit import AUDIT_QUEUE_ID
        from eruca.contract.errors import TransportError
        from eruca.contract.messages import PullAnswer
        from eruca.contract.names import AUDIT_TOPIC

        url = await self._client.admin.broker_url(self.name)
        target = target_of(
            f"/v1/topics/{AUDIT_TOPIC}/queues/{AUDIT_QUEUE_ID}/messages",
            offset=offset,
            count_max=1_000,
            wait_seconds=wait_seconds,
            include_system=True,
        )
        answer = await self._client.context.transport.request(
            "GET", url, target, timeout=wait_seconds + _MARGIN_SECONDS
        )
        if answer.status >= 300:
            raise problem_error(answer, f"GET {url}{target}")
        try:
            pulled = msgspec.json.decode(answer.body, type=PullAnswer)
            records = [
                msgspec.json.decode(message.body.octets(), type=dict)
                for message in pulled.messages
                if message.body is not None  # else it is damaged
            ]
        except UNREADABLE as error:
            raise TransportError(f"{url}{target}: the answer is invalid: {error}") from error
        return records, pulled.next_offset, pulled.next_offset < pulled.max_offset


async def _all_records(
    client: AsyncClient,
    begin: datetime,
    end: datetime | None,
    unanswered: dict[str, ErucaError],
) -> list[dict[str, Any]]:
    """Return the records of all brokers in a span of time; collect brokers without an answer."""
    from eruca.contract.errors import AccessError, ErucaError
    from eruca.contract.instant_texts import instant_text

    last = None if end is None else instant_text(end)
    found: list[dict[str, Any]] = []
    for group in await client.admin.brokers():
        reader = _Reader(client, group.broker_name)
        try:
            async for record in _records_from(reader, begin):
                if last is None or str(record["at"]) < last:
                    found.append(record)
        except AccessError:
            raise
        except ErucaError as error:
            unanswered[group.broker_name] = error
    return found


async def _records_from(reader: _Reader, begin: datetime) -> AsyncIterator[dict[str, Any]]:
    """Yield the records of one broker that are recorded at a time or later."""
    from eruca.contract.errors import TopicNotFoundError
    from eruca.contract.instant_texts import instant_text

    first = instant_text(begin)
    offset, has_more = await reader.offset_of(begin), True
    while has_more:
        try:
            records, offset, has_more = await reader.read(offset)
        except TopicNotFoundError:
            return
        for record in records:
            if str(record["at"]) >= first:
                yield record


async def _follow(
    session: Session, reader: _Reader, begin: Start, arrived: asyncio.Queue[dict[str, Any]]
) -> None:
    """Put the records of one broker into a queue, for ever."""
    from eruca.contract.errors import AccessError, ErucaError, TopicNotFoundError

    offset: int | None = None
    is_silent = False
    while True:
        try:
            if offset is None:
                offset = await reader.offset_of(begin)
            records, offset, _ = await reader.read(offset, wait_seconds=_WAIT_SECONDS)
        except TopicNotFoundError:
            offset = 0  # what comes from now on is new
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        except AccessError:
            raise
        except ErucaError as error:
            if not is_silent:
                session.say(f"{reader.name} does not answer: {error.detail}")
            is_silent = True
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        if is_silent:
            session.say(f"{reader.name} answers again")
            is_silent = False
        for record in records:
            await arrived.put(record)


async def _next(
    arrived: asyncio.Queue[dict[str, Any]], tasks: list[asyncio.Task[None]]
) -> dict[str, Any] | None:
    """Return the next record; None if there was none for a while; raise as a reader has."""
    taking = asyncio.create_task(arrived.get())
    try:
        await asyncio.wait(
            (taking, *tasks), timeout=_PAUSE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for task in tasks:
            if task.done():
                task.result()
        return taking.result() if taking.done() else None
    finally:
        taking.cancel()


def _wanted(
    principal: str | None, operation: str | None, decision: str | None, event: str | None
) -> _Wanted:
    from eruca.contract.audit import AUDIT_EVENTS

    if decision not in (None, "allowed", "refused"):
        raise typer.BadParameter(f"expected allowed or refused, found {decision!r}")
    if event is not None and event not in AUDIT_EVENTS:
        raise typer.BadParameter(f"expected one of {', '.join(AUDIT_EVENTS)}; found {event!r}")
    return _Wanted(principal, operation, decision, event)


def _show(session: Session, record: dict[str, Any]) -> None:
    if session.is_json:
        session.show_line(record)
    else:
        session.show_text("  ".join("-" if cell is None else str(cell) for cell in _row(record)))


def _row(record: dict[str, Any]) -> tuple[object, ...]:
    outcome = [str(record[name]) for name in ("decision", "status", "reason") if record.get(name)]
    if record.get("count", 1) > 1:
        outcome.append(f"{record['count']} times")
    if record.get("detail"):
        outcome.append(str(record["detail"]))
    return (
        record.get("at"),
        record.get("event"),
        record.get("principal"),
        record.get("address"),
        record.get("operation"),
        record.get("resource"),
        " ".join(outcome) or None,
    )
