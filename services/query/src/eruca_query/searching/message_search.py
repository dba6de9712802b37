"""Finding messages: in the rows, and in what the logs hold behind them.

PostgreSQL is asked first, for one consistent state; its transaction is over before a broker is
asked, or slow brokers would use up its connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import select

from eruca.contract.errors import (
    GroupNotFoundError,
    MessageNotFoundError,
    SearchIncompleteError,
)
from eruca.contract.limits import KEY_QUERY_COUNT_MAX
from eruca.contract.message_ids import OffsetId, UndecodableIdError, decode_offset_id
from eruca.contract.messages import LogRecordView, PulledMessage
from eruca.contract.properties import NAME_SEPARATOR, UNIQ_KEY
from eruca.contract.queries import MessageFound, MessagePage, Missing
from eruca.contract.records import Host
from eruca_chassis.cursors import encode_cursor
from eruca_postgres.database import Database
from eruca_query.core.found_messages import FoundMessage, Position, main_of, moment
from eruca_query.core.group_facts import PositionMoved
from eruca_query.core.page_cursors import position_text
from eruca_query.core.page_queries import PageQuery
from eruca_query.core.pulled_messages import found_of
from eruca_query.core.time_windows import windows
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.tables import group_positions
from eruca_query.searching import message_sql
from eruca_query.searching.broker_directory import KnownBrokers
from eruca_query.searching.broker_logs import BrokerLogs, Fault, TailAnswer
from eruca_query.searching.completeness import Completeness, completeness_of, positions_of
from eruca_query.searching.read_view import ReadView, ServingGeneration, read_view
from eruca_query.searching.whole_messages import whole, with_bodies, without_body

LOOK_SECONDS: Final = 2.0  # a page that takes longer ends early; its cursor goes on from there
RETRY_AFTER_SECONDS: Final = 1.0
_ID_PROPERTY: Final = (UNIQ_KEY + NAME_SEPARATOR).encode()


@dataclass(slots=True)
class _Look:
    """What one look at the rows found."""

    found: list[FoundMessage]
    serving: Mapping[str, ServingGeneration]
    positions: dict[str, int | None]  # where the tails begin
    looked_to_ms: int = 0  # everything stored then or later has been looked at
    group_positions: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamedMessage:
    """The message that an offset id names."""

    message: FoundMessage
    record: LogRecordView | Fault | None


class MessageSearch:
    """Answers questions about messages.

    Args:
        database: The read model's.
        numbers: Of names; shared with the projection.
        logs: What the brokers know.
    """

    def __init__(self, database: Database, numbers: NameNumbers, logs: BrokerLogs) -> None:
        self._database = database
        self._numbers = numbers
        self._logs = logs

    # By an id.

    async def by_id(self, message_id: str) -> MessageFound:
        """Return the message with an offset id or a unique id.

        Raises:
            MessageNotFoundError: There is none.
            SearchIncompleteError: None was found, and not everything could be looked through.
        """
        known = await self._logs.brokers()
        named, fault = await self.by_offset_id(message_id, known)
        unique_id = message_id if named is None else named.message.unique_id
        copies, completeness = await self.copies(unique_id, known)
        if named is None:
            if fault is not None:
                completeness.add(fault)
            if not copies:
                raise not_found(message_id, completeness)
            main = main_of(copies)
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
        """Return all messages with a unique id, and how complete that is; None: of no id."""
        async with read_view(self._database, self._numbers) as view:
            rows = [] if unique_id is None else await rows_by_id(view, unique_id)
            look = _Look(rows, view.by_name, positions_of(view, known))
        tails = await self._logs.tails(look.positions)
        found = look.found
        if unique_id is not None:
            found += in_tails(unique_id, tails)
        if unique_id is not None and not found:
            found += await self.in_indexes(unique_id, tails)
        return found, completeness_of(look.serving, known, tails)

    async def in_indexes(
        self, unique_id: str, tails: Mapping[str, TailAnswer]
    ) -> list[FoundMessage]:
        """Return what brokers find by id, of whose logs the rest is too long to look through."""
        behind = [name for name, answer in tails.items() if answer.is_behind]
        answers = await asyncio.gather(
            *(self._logs.by_unique_id(name, unique_id) for name in behind)
        )
        return [
            found_of(name, message)
            for name, messages in zip(behind, answers, strict=True)
            for message in messages
        ]

    async def by_offset_id(
        self, text: str, known: KnownBrokers
    ) -> tuple[NamedMessage | None, Missing | None]:
        """Return what *text* names if it is an offset id; and what keeps that from being told."""
        try:
            offset_id = decode_offset_id(text)
        except UndecodableIdError:
            return None, None
        owners, rows = await self._owners(offset_id, known)
        fault: Missing | None = None
        for owner in owners:
            record = await self._logs.record(owner, offset_id.log_offset)
            if isinstance(record, LogRecordView):
                if record.message.offset_message_id == text.upper():
                    return NamedMessage(found_of(owner, record.message), record), None
                record = None  # another broker's by now
            if owner in rows:
                return NamedMessage(rows[owner], record), None
            if isinstance(record, Fault):
                fault = Missing(broker_name=owner, reason=record.reason, detail=record.detail)
        return None, fault

    async def _owners(
        self, offset_id: OffsetId, known: KnownBrokers
    ) -> tuple[list[str], dict[str, FoundMessage]]:
        """Return whose records bear the id's address, and the rows at its log offset."""
        rows: dict[str, FoundMessage] = {}
        async with read_view(self._database, self._numbers) as view:
            owners = await view.host_owners(offset_id.host)
            for owner in owners:
                message = await _row_at(view, owner, offset_id)
                if message is not None:
                    rows[owner] = message
        now = known.hosts.get(offset_id.host)
        return sorted({*owners, *([now] if now is not None else [])}), rows

    # By topic.

    async def page(self, query: PageQuery, *, bodies: bool) -> MessagePage:
        """Return a page of a topic's messages, the newest first.

        Raises:
            GroupNotFoundError: The group that was asked for is not known in this topic.
        """
        known = await self._logs.brokers()
        async with read_view(self._database, self._numbers) as view:
            look = await self._look_for_page(view, known, query)
        tails = await self._logs.tails(look.positions)
        completeness = completeness_of(look.serving, known, tails)
        behind = await self._newest(query, look, tails, completeness)
        candidates = {
            message.position: message
            for message in (*look.found, *behind)
            if query.fits_group(message, look.group_positions)
        }
        ordered = sorted(candidates.values(), key=lambda m: m.position, reverse=True)
        ordered = [message for message in ordered if message.stored_ms >= look.looked_to_ms]
        page, next_cursor = ordered[: query.limit], None
        if len(ordered) > query.limit:
            next_cursor = encode_cursor(position_text(page[-1].position))
        elif look.looked_to_ms > query.from_ms:
            next_cursor = encode_cursor(position_text(Position(look.looked_to_ms, 0, "")))
        return MessagePage(
            messages=await with_bodies(self._logs, page)
            if bodies
            else [without_body(message, "not_asked") for message in page],
            next_cursor=next_cursor,
            read_model=completeness.read_model,
            incomplete=completeness.missing,
        )

    async def _look_for_page(self, view: ReadView, known: KnownBrokers, query: PageQuery) -> _Look:
        look = _Look([], view.by_name, positions_of(view, known), query.from_ms)
        topic_no = await view.topic_number(query.topic)
        if topic_no is None:
            return look
        group_no = None
        if query.group is not None:
            group_no = await view.topic_number(query.group)
            if group_no is None:
                raise GroupNotFoundError(
                    f"no broker has told of a group {query.group!r}",
                    fix="see GET /v1/groups of a broker, or eruca group list",
                )
            look.group_positions = await _group_positions(view, topic_no, group_no)
        ends = await view.ends_of_topic(topic_no)
        to_ms = query.to_ms if query.before is None else min(query.to_ms, query.before.stored_ms)
        deadline = time.monotonic() + LOOK_SECONDS
        # Several brokers may have stored something at the very place the page before ended.
        limit = query.limit + 1 + len(view.by_number)
        for window in windows(
            await view.spans(),
            from_ms=query.from_ms,
            to_ms=to_ms,
            chunks_max=message_sql.CHUNKS_MAX,
        ):
            if time.monotonic() > deadline:
                look.looked_to_ms = window.to_ms + 1
                break
            statement = message_sql.page(
                query,
                window,
                topic_no=topic_no,
                group_no=group_no,
                ends=ends,
                limit=limit,
            )
            rows = await view.connection.execute(statement)
            look.found += [m for m in await view.found(rows) if query.wants(m)]
            if len(look.found) > query.limit:
                break
        return look

    async def _newest(
        self,
        query: PageQuery,
        look: _Look,
        tails: Mapping[str, TailAnswer],
        completeness: Completeness,
    ) -> list[FoundMessage]:
        """Return what the tails hold; drop from *look* what they have made obsolete."""
        found: list[FoundMessage] = []
        for name, answer in tails.items():
            if answer.tail is None:
                continue
            end = answer.tail.end_of_topic(query.topic)
            if end is not None:
                look.found = [message for message in look.found if message.broker_name != name]
            if query.group is not None and answer.tail.holds(query.group.encode()):
                _move_positions(look.group_positions, name, query, answer.tail.group_facts())
            count = 0
            for message in answer.tail.messages(
                topic=query.topic, containing=query.key or query.tag or b""
            ):
                if end is not None and message.log_offset < end:
                    break
                if query.wants(message) and query.fits_group(message, look.group_positions):
                    found.append(message)
                    count += 1
                    if count > query.limit:
                        break
        if query.key is not None:
            found += await self._from_key_indexes(query, look, tails, completeness)
        return found

    async def _from_key_indexes(
        self,
        query: PageQuery,
        look: _Look,
        tails: Mapping[str, TailAnswer],
        completeness: Completeness,
    ) -> list[FoundMessage]:
        """Return what brokers find by key, of whose logs the rest is too long to look through."""
        assert query.key is not None
        key = query.key.decode("utf-8", "surrogatepass")
        behind = [name for name, answer in tails.items() if answer.is_behind]

        async def ask(name: str) -> list[PulledMessage] | Fault:
            its = look.serving.get(name)
            since = None if its is None or its.stored_ms is None else moment(its.stored_ms)
            return await self._logs.by_key(
                name, query.topic, key, begin=since, limit=KEY_QUERY_COUNT_MAX
            )

        found: list[FoundMessage] = []
        for name, answer in zip(behind, await asyncio.gather(*map(ask, behind)), strict=True):
            if isinstance(answer, Fault):
                continue  # that the model is behind is said already
            completeness.forgive(name)
            if len(answer) >= KEY_QUERY_COUNT_MAX:
                detail = (
                    f"it has more than {KEY_QUERY_COUNT_MAX} messages with this key that the read "
                    "model does not have yet"
                )
                completeness.add(Missing(broker_name=name, reason="too_many", detail=detail))
            found += [m for m in (found_of(name, its) for its in answer) if query.wants(m)]
        return found


def not_found(message_id: str, completeness: Completeness) -> Exception:
    """Return the error for an id that was not found: surely not there, or who knows."""
    undecided = completeness.undecided()
    if not undecided:
        return MessageNotFoundError(
            f"no broker has a message with the id {message_id!r}",
            fix="compare it with what sending returned; what is older than the retention is gone",
        )
    reasons = "; ".join(
        f"{missing.broker_name or 'name servers'}: {missing.detail}" for missing in undecided
    )
    return SearchIncompleteError(
        f"no message with the id {message_id!r} was found, but not everything could be looked "
        f"through: {reasons}",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


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


async def rows_by_id(view: ReadView, unique_id: str) -> list[FoundMessage]:
    """Return the messages of the rows that have a unique id."""
    chunks = sorted((span.chunk for span in await view.spans()), reverse=True)
    code = unique_id.encode("utf-8", "surrogatepass")
    found: list[FoundMessage] = []
    for first in range(0, len(chunks), message_sql.CHUNKS_MAX):
        some = chunks[first : first + message_sql.CHUNKS_MAX]
        rows = await view.connection.execute(message_sql.by_unique_id(code, some))
        found += await view.found(rows)
    return found


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


async def _group_positions(
    view: ReadView, topic_no: int, group_no: int
) -> dict[tuple[str, int], int]:
    found = await view.connection.execute(
        select(group_positions).where(
            group_positions.c.topic_no == topic_no, group_positions.c.group_no == group_no
        )
    )
    return {
        (view.by_number[row.broker_no].broker_name, row.queue_id): row.next_offset
        for row in found
        if row.broker_no in view.by_number
        and view.by_number[row.broker_no].generation == row.generation
    }


def _move_positions(
    positions: dict[tuple[str, int], int],
    broker_name: str,
    query: PageQuery,
    facts: Iterable[object],
) -> None:
    for fact in facts:
        if (
            isinstance(fact, PositionMoved)
            and (fact.group, fact.topic) == (query.group, query.topic)
            and fact.source != "snapshot"
        ):
            positions[broker_name, fact.queue_id] = fact.next_offset
