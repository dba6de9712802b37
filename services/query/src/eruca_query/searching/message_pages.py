"""Finding a topic's messages, page by page: in the rows, and in what the logs hold behind them.

As with ids, PostgreSQL's transaction is over before a broker is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import select

from eruca.contract.errors import GroupNotFoundError
from eruca.contract.limits import KEY_QUERY_COUNT_MAX
from eruca.contract.queries import MessagePage, Missing
from eruca_chassis.cursors import encode_cursor
from eruca_postgres.database import Database
from eruca_query.core.found_messages import FoundMessage, Position, moment
from eruca_query.core.group_facts import PositionMoved
from eruca_query.core.page_cursors import position_text
from eruca_query.core.page_queries import PageQuery
from eruca_query.core.time_windows import windows
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.tables import group_positions
from eruca_query.searching import message_sql
from eruca_query.searching.broker_directory import KnownBrokers
from eruca_query.searching.broker_logs import BrokerLogs, Fault, KeyAnswer, TailAnswer
from eruca_query.searching.completeness import Completeness, completeness_of, positions_of
from eruca_query.searching.read_view import ReadView, ServingGeneration, read_view
from eruca_query.searching.whole_messages import with_bodies, without_body

LOOK_SECONDS: Final = 2.0  # a page that takes longer ends early; its cursor goes on from there


@dataclass(slots=True)
class _Look:
    """What one look at the rows found."""

    found: list[FoundMessage]
    serving: Mapping[str, ServingGeneration]
    positions: dict[str, int | None]  # where the tails begin
    looked_to_ms: int = 0  # everything stored then or later has been looked at
    group_positions: dict[tuple[str, int], int] = field(default_factory=dict)


class MessagePages:
    """Answers questions about a topic's messages.

    Args:
        database: The read model's.
        numbers: Of names; shared with the projection.
        logs: What the brokers know.
    """

    def __init__(self, database: Database, numbers: NameNumbers, logs: BrokerLogs) -> None:
        self._database = database
        self._numbers = numbers
        self._logs = logs

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
        completeness.add_damage(tails)
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

        async def ask(name: str) -> KeyAnswer | Fault:
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
            detail = _too_many(answer)
            if detail is not None:
                completeness.add(Missing(broker_name=name, reason="too_many", detail=detail))
            found += [message for message in answer.messages if query.wants(message)]
        return found


def _too_many(answer: KeyAnswer) -> str | None:
    """Return why a broker may have more messages with a key than it told of; None: it has not."""
    if len(answer.messages) >= KEY_QUERY_COUNT_MAX:
        return (
            f"it has more than {KEY_QUERY_COUNT_MAX} messages with this key that the read model "
            "does not have yet"
        )
    if not answer.is_complete:
        return (
            "its messages with this key that the read model does not have yet are too large for "
            f"one answer, which held the newest {len(answer.messages)}"
        )
    return None


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
