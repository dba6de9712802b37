"""Find a topic's messages, page by page: in the rows, and in the logs' tails behind them.

As with ids, PostgreSQL's transaction ends before a broker is asked. The choice of rows may depend
on the tails, in two ways. A group's position is read from both before the rows are chosen. If a
topic was deleted, its rows are taken out of the page: the page is short, and its cursor continues
after them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import select

from eruca.contract.errors import GroupNotFoundError, TopicNotFoundError
from eruca.contract.limits import KEY_QUERY_COUNT_MAX
from eruca.contract.names import is_system_topic
from eruca.contract.queries import MessagePage, Missing
from eruca_chassis.requests.cursors import encode_cursor
from eruca_postgres.database import Database
from eruca_query.core.damaged_records import DamagedRecord
from eruca_query.core.found_messages import FoundMessage, Position, moment
from eruca_query.core.group_facts import GroupFact, GroupGone, PositionMoved, TopicGone
from eruca_query.core.log_facts import ROWLESS_TOPICS
from eruca_query.core.page_cursors import position_text
from eruca_query.core.page_queries import GroupPositions, PageQuery
from eruca_query.core.time_windows import windows
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.tables import group_positions
from eruca_query.searching import message_sql
from eruca_query.searching.broker_logs import BrokerLogs, Fault, KeyAnswer, TailAnswer
from eruca_query.searching.completeness import (
    Completeness,
    completeness_of,
    damaged_records,
    positions_of,
)
from eruca_query.searching.read_view import ReadView, ServingBuild, read_view
from eruca_query.searching.whole_messages import with_bodies, without_body

LOOK_SECONDS: Final = 2.0  # a page that takes longer ends early; its cursor continues from there


@dataclass(slots=True)
class _Look:
    """The result of one search of the rows."""

    found: list[FoundMessage]
    looked_to: Position  # everything at this position or later has been searched


@dataclass(slots=True)
class _Group:
    """The positions of the requested group in the topic's queues."""

    is_known: bool = False
    positions: dict[tuple[str, int], int] = field(default_factory=dict)  # by broker and queue

    def apply(self, broker_name: str, query: PageQuery, facts: Iterable[GroupFact]) -> None:
        """Apply the facts of the tail of a broker's log."""
        for fact in facts:
            match fact:
                case PositionMoved() if (fact.group, fact.topic) == (query.group, query.topic):
                    self._move(broker_name, fact)
                case GroupGone() if fact.group == query.group:
                    self._leave(broker_name)
                case TopicGone() if fact.topic == query.topic:
                    self._leave(broker_name)
            self.is_known |= not isinstance(fact, TopicGone) and fact.group == query.group

    def _move(self, broker_name: str, moved: PositionMoved) -> None:
        queue = (broker_name, moved.queue_id)
        if moved.source == "snapshot":
            self.positions.setdefault(queue, moved.next_offset)  # a repeat: keep what is known
        else:
            self.positions[queue] = moved.next_offset

    def _leave(self, broker_name: str) -> None:
        for queue in [queue for queue in self.positions if queue[0] == broker_name]:
            del self.positions[queue]


class MessagePages:
    """Answers questions about a topic's messages.

    Args:
        database: The read model's.
        numbers: The numbers of names; shared with the projection.
        logs: Reads from the brokers.
    """

    def __init__(self, database: Database, numbers: NameNumbers, logs: BrokerLogs) -> None:
        self._database = database
        self._numbers = numbers
        self._logs = logs

    async def page(self, query: PageQuery, *, bodies: bool) -> MessagePage:
        """Return a page of a topic's messages, the newest first.

        Raises:
            GroupNotFoundError: The group is unknown in this topic.
            TopicNotFoundError: The topic does not exist. If a broker does not answer, this is
                unknown: the page is then empty and says what may be missing.
        """
        known = await self._logs.brokers()
        look, group = None, _Group()
        async with read_view(self._database, self._numbers) as view:
            serving, positions = view.by_name, positions_of(view, known)
            damaged = await view.damaged()
            if query.group is None:
                look = await self._look_for_page(view, query, group)
            else:
                group = await _group_in_rows(view, query.topic, query.group)
        tails = await self._logs.tails(positions)
        completeness = completeness_of(serving, known, tails)
        if query.group is not None:
            _move_group(group, query, query.group, tails)
            # The choice of rows depends on the group's positions, for which the tails are needed
            # first. Rows and tails may overlap by now; a message found in both is counted once.
            async with read_view(self._database, self._numbers) as view:
                look = await self._look_for_page(view, query, group)
        assert look is not None
        behind = self._in_tails(query, look, group, tails)
        if query.key is not None:
            behind += await self._from_key_indexes(query, serving, tails, completeness)
        completeness.add_damage(tails)
        completeness.add_damaged(
            damaged_records(damaged, tails, lambda record: _may_belong(record, query))
        )
        candidates = {
            message.position: message
            for message in (*look.found, *behind)
            if query.fits_group(message, group.positions)
        }
        ordered = sorted(candidates.values(), key=lambda m: m.position, reverse=True)
        ordered = [message for message in ordered if message.position >= look.looked_to]
        if await self._is_of_no_topic(query, ordered, look, completeness):
            raise TopicNotFoundError(
                f"no broker has topic {query.topic}", fix=TopicNotFoundError.fix_of(query.topic)
            )
        page, next_cursor = ordered[: query.limit], None
        messages = (
            await with_bodies(self._logs, page)
            if bodies
            else [without_body(message, "not_asked") for message in page]
        )
        if len(ordered) > len(messages):
            next_cursor = encode_cursor(position_text(page[len(messages) - 1].position))
        elif look.looked_to > _begin_of(query.from_ms):
            next_cursor = encode_cursor(position_text(look.looked_to))
        return MessagePage(
            messages=messages,
            next_cursor=next_cursor,
            read_model=completeness.read_model,
            incomplete=completeness.missing,
        )

    async def _is_of_no_topic(
        self,
        query: PageQuery,
        found: Sequence[FoundMessage],
        look: _Look,
        completeness: Completeness,
    ) -> bool:
        """Tell whether a page is empty because the topic is known not to exist.

        Lists of topics omit system topics, so brokers are not asked for them.
        """
        is_last = look.looked_to <= _begin_of(query.from_ms)
        if found or not is_last or completeness.undecided() or is_system_topic(query.topic):
            return False
        return await self._logs.lack(query.topic)

    async def _look_for_page(self, view: ReadView, query: PageQuery, group: _Group) -> _Look:
        look = _Look([], _begin_of(query.from_ms))
        topic_no = await view.topic_number(query.topic)
        if topic_no is None:
            return look
        ends = await view.ends_of_topic(topic_no)
        to_ms = query.to_ms if query.before is None else min(query.to_ms, query.before.stored_ms)
        deadline = time.monotonic() + LOOK_SECONDS
        # Several brokers may have stored messages at the position at which the previous page ended,
        # and at the position at which this search stops.
        limit = query.limit + 1 + 2 * len(view.by_number)
        for window in windows(
            await view.spans(),
            from_ms=query.from_ms,
            to_ms=to_ms,
            chunks_max=message_sql.chunks_max(query, ends),
        ):
            if time.monotonic() > deadline:
                look.looked_to = _begin_of(window.to_ms + 1)
                break
            statement = message_sql.page(
                query,
                window,
                topic_no=topic_no,
                group_positions=_numbered(view, group.positions),
                ends=ends,
                limit=limit,
            )
            rows = (await view.connection.execute(statement)).all()
            look.found += [m for m in await view.found(rows) if query.wants(m)]
            if len(rows) == limit:
                # There may be more messages, even at the position of the last one. Those found may
                # still drop out: the tails may report that the topic was deleted.
                look.looked_to = Position(rows[-1].stored_ms, rows[-1].log_offset + 1, "")
                break
            if len(look.found) > query.limit:
                look.looked_to = _begin_of(window.from_ms)
                break
        return look

    def _in_tails(
        self, query: PageQuery, look: _Look, group: _Group, tails: Mapping[str, TailAnswer]
    ) -> list[FoundMessage]:
        """Return the messages in the tails; drop deleted messages from *look*."""
        found: list[FoundMessage] = []
        for name, answer in tails.items():
            if answer.tail is None:
                continue
            end = answer.tail.end_of_topic(query.topic)
            if end is not None:
                look.found = [
                    message
                    for message in look.found
                    if message.broker_name != name or message.log_offset >= end
                ]
            count = 0
            for message in answer.tail.messages(
                topic=query.topic, containing=query.key or query.tag or b""
            ):
                if end is not None and message.log_offset < end:
                    break
                if query.wants(message) and query.fits_group(message, group.positions):
                    found.append(message)
                    count += 1
                    if count > query.limit:
                        break
        return found

    async def _from_key_indexes(
        self,
        query: PageQuery,
        serving: Mapping[str, ServingBuild],
        tails: Mapping[str, TailAnswer],
        completeness: Completeness,
    ) -> list[FoundMessage]:
        """Return messages by key from the indexes of brokers whose tails are too long to search."""
        assert query.key is not None
        key = query.key.decode("utf-8", "surrogatepass")
        behind = [name for name, answer in tails.items() if answer.is_behind]

        async def ask(name: str) -> KeyAnswer | Fault:
            its = serving.get(name)
            since = None if its is None or its.stored_ms is None else moment(its.stored_ms)
            return await self._logs.by_key(
                name, query.topic, key, since=since, limit=KEY_QUERY_COUNT_MAX
            )

        found: list[FoundMessage] = []
        for name, answer in zip(behind, await asyncio.gather(*map(ask, behind)), strict=True):
            if isinstance(answer, Fault):
                continue  # the gap is reported already
            completeness.forgive(name)
            detail = _too_many(answer)
            if detail is not None:
                completeness.add(Missing(broker_name=name, reason="too_many", detail=detail))
            found += [message for message in answer.messages if query.wants(message)]
        return found


def _may_belong(record: DamagedRecord, query: PageQuery) -> bool:
    """Tell whether a damaged record may belong to a page; the key in its bytes is not trusted."""
    is_of_topic = record.topic is None or record.topic == query.topic
    may_tell = query.group is not None and record.topic in ROWLESS_TOPICS  # a group's position
    return (is_of_topic or may_tell) and record.lies_between(query.from_ms, query.to_ms)


def _too_many(answer: KeyAnswer) -> str | None:
    """Return why a broker may have more messages with a key than it returned; None: it has not."""
    if not answer.is_complete:
        return (
            "beyond the read model, it may have more messages with this key than the newest "
            f"{len(answer.messages)}, which are its first page"
        )
    return None


def _begin_of(ms: int) -> Position:
    """Return the first position of a millisecond."""
    return Position(ms, 0, "")


async def _group_in_rows(view: ReadView, topic: str, group: str) -> _Group:
    topic_no, group_no = await view.topic_number(topic), await view.topic_number(group)
    found = await view.connection.execute(
        select(group_positions).where(
            group_positions.c.topic_no == topic_no, group_positions.c.group_no == group_no
        )
    )
    positions = {
        (view.by_number[row.broker_no].broker_name, row.queue_id): row.next_offset
        for row in found
        if row.broker_no in view.by_number and view.by_number[row.broker_no].build == row.build
    }
    return _Group(is_known=group_no is not None, positions=positions)


def _move_group(
    group: _Group, query: PageQuery, name: str, tails: Mapping[str, TailAnswer]
) -> None:
    """Apply the tails to the positions of *group*.

    Raises:
        GroupNotFoundError: Neither rows nor tails know the group.
    """
    for broker_name, answer in tails.items():
        tail = answer.tail
        if tail is not None and (
            tail.holds(name.encode()) or tail.end_of_topic(query.topic) is not None
        ):
            group.apply(broker_name, query, tail.group_facts())
    if not group.is_known:
        raise GroupNotFoundError(
            f"no broker has a group {name!r}",
            fix="see GET /v1/groups of a broker, or eruca group list",
        )


def _numbered(view: ReadView, positions: GroupPositions) -> list[message_sql.QueuePosition]:
    return [
        message_sql.QueuePosition(view.by_name[broker_name].broker_no, queue_id, next_offset)
        for (broker_name, queue_id), next_offset in positions.items()
        if broker_name in view.by_name
    ]
