"""Find a message by an id: in the rows, and in the logs' tails behind them.

PostgreSQL is asked first, for one consistent state. Its transaction ends before a broker is asked;
otherwise slow brokers would use up its connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eruca.contract.errors import (
    MessageDamagedError,
    MessageNotFoundError,
    SearchIncompleteError,
)
from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.message_ids import OffsetId, UndecodableIdError, decode_offset_id
from eruca.contract.messages import LogRecordView
from eruca.contract.properties import NAME_SEPARATOR, UNIQ_KEY
from eruca.contract.queries import MessageFound, Missing
from eruca.contract.records import Host
from eruca_postgres.database import Database
from eruca_query.core.damaged_records import DamagedRecord
from eruca_query.core.found_messages import FoundMessage, main_of
from eruca_query.core.pulled_messages import found_of
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.searching import message_sql
from eruca_query.searching.broker_directory import KnownBrokers
from eruca_query.searching.broker_logs import BrokerLogs, Fault, TailAnswer
from eruca_query.searching.completeness import (
    Completeness,
    completeness_of,
    damaged_records,
    positions_of,
)
from eruca_query.searching.read_view import ReadView, read_view
from eruca_query.searching.whole_messages import whole, with_bodies

PORT_MAX: Final = 65_535
RETRY_AFTER_SECONDS: Final = 1.0
COPIES_MAX: Final = LIST_LIMIT_MAX  # per unique id: a client may give one id to all its messages
_ID_PROPERTY: Final = (UNIQ_KEY + NAME_SEPARATOR).encode()


@dataclass(frozen=True, slots=True)
class NamedMessage:
    """The message that an offset id names."""

    message: FoundMessage
    record: LogRecordView | Fault | None


class MessageSearch:
    """Answers questions about single messages.

    Args:
        database: The read model's.
        numbers: The numbers of names; shared with the projection.
        logs: Reads from the brokers.
    """

    def __init__(self, database: Database, numbers: NameNumbers, logs: BrokerLogs) -> None:
        self._database = database
        self._numbers = numbers
        self._logs = logs

    async def by_id(self, message_id: str, *, topic: str | None = None) -> MessageFound:
        """Return the message with an offset id or a unique id.

        Args:
            message_id: Either id. A unique id is unique within its topic at best.
            topic: The message's topic; None: return the first that users see, in any topic.

        Raises:
            MessageNotFoundError: No broker has it.
            MessageDamagedError: It was not found, and may be a damaged record.
            SearchIncompleteError: It was not found, and something could not be searched.
        """
        known = await self._logs.brokers()
        named, fault = await self.by_offset_id(message_id, known)
        if named is not None and topic not in (None, named.message.topic):
            named = None
        unique_id = message_id if named is None else named.message.unique_id
        copies, completeness = await self.copies(unique_id, known)
        if named is None:
            if fault is not None:
                completeness.add(fault)
            meant = [copy for copy in copies if topic in (None, copy.topic)]
            if not meant:
                raise not_found(message_id, completeness)
            main = main_of(meant)
            [message] = await with_bodies(self._logs, [main])
        else:
            main, message = named.message, whole(named.message, named.record)
        others = sorted(
            (copy for copy in copies if copy.position != main.position),
            key=lambda copy: copy.position,
        )
        return MessageFound(
            message=message,
            also_stored=[copy.shown() for copy in others],
            read_model=completeness.read_model,
            incomplete=completeness.missing,
        )

    async def copies(
        self, unique_id: str | None, known: KnownBrokers
    ) -> tuple[list[FoundMessage], Completeness]:
        """Return the first messages with a unique id, and the completeness; None: no unique id."""
        async with read_view(self._database, self._numbers) as view:
            rows = await rows_by_id(view, unique_id, COPIES_MAX + 1)
            damaged = await view.damaged()
            serving, positions = view.by_name, positions_of(view, known)
        tails = await self._logs.tails(positions)
        found = rows
        if unique_id is not None:
            found += in_tails(unique_id, tails)
        if unique_id is not None and not found:
            found += await self.in_indexes(unique_id, tails)
        completeness = completeness_of(serving, known, tails)
        completeness.add_damaged(
            damaged_records(damaged, tails, lambda record: may_have_id(record, unique_id))
        )
        if len(found) > COPIES_MAX:
            detail = f"more than {COPIES_MAX} messages have its id; the first ones are shown"
            completeness.add(Missing(broker_name=None, reason="too_many", detail=detail))
            found = sorted(found, key=lambda copy: copy.position)[:COPIES_MAX]
        return found, completeness

    async def in_indexes(
        self, unique_id: str, tails: Mapping[str, TailAnswer]
    ) -> list[FoundMessage]:
        """Return messages by id from the indexes of brokers whose tails are too long to search."""
        behind = [name for name, answer in tails.items() if answer.is_behind]
        answers = await asyncio.gather(
            *(self._logs.by_unique_id(name, unique_id) for name in behind)
        )
        return [message for messages in answers for message in messages]

    async def by_offset_id(
        self, text: str, known: KnownBrokers
    ) -> tuple[NamedMessage | None, Missing | None]:
        """Return the message that *text* names if it is an offset id; or why that is unknown."""
        try:
            offset_id = decode_offset_id(text)
        except UndecodableIdError:
            return None, None
        if not 0 <= offset_id.host.port <= PORT_MAX or offset_id.log_offset < 0:
            return None, None  # not a place: clients make unique ids of the same form
        owners, rows = await self._owners(offset_id, known)
        fault: Missing | None = None
        for owner in owners:
            record = await self._logs.record(owner, offset_id.log_offset)
            if isinstance(record, LogRecordView):
                if record.message.offset_message_id == text.upper():
                    try:
                        return NamedMessage(found_of(owner, record.message), record), None
                    except ValueError as error:
                        detail = f"its record at {offset_id.log_offset} cannot be read: {error}"
                        record = Fault("broker_unreachable", detail)
                else:
                    record = None  # now another broker's record
            if owner in rows:
                return NamedMessage(rows[owner], record), None
            if isinstance(record, Fault):
                fault = Missing(broker_name=owner, reason=record.reason, detail=record.detail)
        return None, fault

    async def _owners(
        self, offset_id: OffsetId, known: KnownBrokers
    ) -> tuple[list[str], dict[str, FoundMessage]]:
        """Return the brokers whose records have the id's address, and the rows at its offset."""
        rows: dict[str, FoundMessage] = {}
        async with read_view(self._database, self._numbers) as view:
            owners = await view.host_owners(offset_id.host)
            for owner in owners:
                message = await _row_at(view, owner, offset_id)
                if message is not None:
                    rows[owner] = message
        now = known.hosts.get(offset_id.host)
        return sorted({*owners, *([now] if now is not None else [])}), rows


def may_have_id(record: DamagedRecord, unique_id: str | None) -> bool:
    """Tell whether a damaged record may be a message with an id, going by its bytes.

    Its id may be wrong, too; but otherwise every answer would name every damaged record.
    """
    return record.unique_id is None or record.unique_id == unique_id


def not_found(message_id: str, completeness: Completeness) -> Exception:
    """Return the error for an id that was not found: damaged, missing, or undecided."""
    undecided = completeness.undecided()
    damaged = [missing for missing in completeness.missing if missing.reason == "damaged"]
    if damaged:
        return MessageDamagedError(
            f"no valid message has the id {message_id!r}; a damaged record may have it: "
            f"{_reasons(damaged)}",
            fix="restore the log's file from a backup, and have the log read again: "
            "POST /v1/projection:rebuild",
        )
    if not undecided:
        return MessageNotFoundError(f"no broker has a message with the id {message_id!r}")
    return SearchIncompleteError(
        f"no message with the id {message_id!r} was found, but not everything could be "
        f"searched: {_reasons(undecided)}",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def _reasons(missing: Sequence[Missing]) -> str:
    return "; ".join(f"{its.broker_name or 'name servers'}: {its.detail}" for its in missing)


def in_tails(unique_id: str, tails: Mapping[str, TailAnswer]) -> list[FoundMessage]:
    """Return the messages in *tails* that have a unique id."""
    wanted = _ID_PROPERTY + unique_id.encode("utf-8", "surrogatepass")
    return [
        message
        for answer in tails.values()
        if answer.tail is not None
        for message in answer.tail.messages(containing=wanted)
        if message.unique_id == unique_id
    ]


async def rows_by_id(view: ReadView, unique_id: str | None, limit: int) -> list[FoundMessage]:
    """Return the first messages in the rows with a unique id; none if the id is None."""
    if unique_id is None:
        return []
    chunks = sorted((span.chunk for span in await view.spans()), reverse=True)
    code = unique_id.encode("utf-8", "surrogatepass")
    found: list[FoundMessage] = []
    for first in range(0, len(chunks), message_sql.CHUNKS_MAX):
        some = chunks[first : first + message_sql.CHUNKS_MAX]
        rows = await view.connection.execute(message_sql.by_unique_id(code, some, limit))
        found += await view.found(rows)
    return sorted(found, key=lambda message: message.position)[:limit]


async def _row_at(view: ReadView, owner: str, offset_id: OffsetId) -> FoundMessage | None:
    broker_no = view.by_name[owner].broker_no
    chunk = await view.chunk_at(broker_no, offset_id.log_offset)
    if chunk is None:
        return None
    rows = await view.connection.execute(
        message_sql.by_log_offset(broker_no, offset_id.log_offset, chunk)
    )
    found = [m for m in await view.found(rows) if m.store_host == Host(*offset_id.host)]
    return found[0] if found else None
