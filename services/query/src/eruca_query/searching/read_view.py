"""One consistent view of the read model: its progress, and the rows at that moment.

Everything is read in one transaction that sees one state. So a log's tail, read from the position
that the view shows, continues the rows without a gap and without an overlap.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, Select, func, select, text
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.records import Host
from eruca_postgres.database import Database
from eruca_query.core.damaged_records import DamagedRecord
from eruca_query.core.found_messages import FoundMessage
from eruca_query.core.log_facts import ROWLESS_TOPICS
from eruca_query.core.time_windows import ChunkSpan
from eruca_query.core.unique_ids import id_text
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.tables import (
    brokers,
    builds,
    chunks,
    damaged,
    gaps,
    messages,
    store_hosts,
    topic_ends,
)

MESSAGE_COLUMNS: Final[tuple[Column[Any], ...]] = (
    messages.c.log_offset,
    messages.c.stored_ms,
    messages.c.born_ms,
    messages.c.queue_offset,
    messages.c.unique_id,
    messages.c.topic_no,
    messages.c.queue_id,
    messages.c.size,
    messages.c.broker_no,
    messages.c.tag,
    messages.c["keys"],
    messages.c.other_id,
)


# Must come first in the transaction, before its snapshot is taken. From then on no chunk can be
# dropped that the snapshot shows, since dropping one needs an exclusive lock on these tables.
_HOLD: Final = text("LOCK TABLE ONLY messages, ONLY life_events, ONLY commits IN ACCESS SHARE MODE")
# Statements that every view needs are built once: building one takes as long as running it.
_MISSED: Final = (
    select(func.array_agg(array([gaps.c.from_offset, gaps.c.to_offset])))
    .where(
        gaps.c.broker_no == builds.c.broker_no,
        gaps.c.build == builds.c.build,
    )
    .scalar_subquery()
)
_SERVING: Final = (
    select(brokers.c.broker_name, builds, _MISSED.label("gaps"))
    .join(builds, builds.c.broker_no == brokers.c.broker_no)
    .where(builds.c.is_serving)
)
_DAMAGED_MAX: Final = 1_000  # records that are read; a log with more is not worth listing
_DAMAGED: Final = (
    select(damaged)
    .join(
        builds,
        (builds.c.broker_no == damaged.c.broker_no)
        & (builds.c.build == damaged.c.build)
        & builds.c.is_serving,
    )
    .order_by(damaged.c.log_offset.desc())
    .limit(_DAMAGED_MAX)
)
_HOSTS: Final = select(store_hosts).order_by(store_hosts.c.from_offset.desc())


def _served(statement: Select[Any]) -> Select[Any]:
    """Restrict *statement* about chunks to those that are served."""
    return statement.join(
        builds,
        (builds.c.broker_no == chunks.c.broker_no)
        & (builds.c.build == chunks.c.build)
        & builds.c.is_serving,
    )


_SPANS: Final = _served(select(chunks.c.chunk, chunks.c.first_ms, chunks.c.last_ms))


@dataclass(frozen=True, slots=True)
class ServingBuild:
    """A broker's rows, and the log offset up to which they go."""

    broker_no: int
    broker_name: str
    build: int
    log_offset: int
    stored_ms: int | None
    gaps: tuple[tuple[int, int], ...]


class ReadView:
    """The read model at one moment; made by :func:`read_view`."""

    def __init__(
        self, connection: AsyncConnection, numbers: NameNumbers, serving: list[ServingBuild]
    ) -> None:
        self.connection = connection
        self.numbers = numbers
        self.by_number = {its.broker_no: its for its in serving}
        self.by_name = {its.broker_name: its for its in serving}
        self._hosts: list[tuple[int, int, Host]] | None = None

    async def spans(self, *, broker_no: int | None = None, from_offset: int = 0) -> list[ChunkSpan]:
        """Return the served chunks after a log offset, of all brokers or one."""
        statement = _SPANS if broker_no is None else _SPANS.where(chunks.c.broker_no == broker_no)
        if from_offset:
            statement = statement.where(chunks.c.to_offset > from_offset)
        return [ChunkSpan(*row) for row in await self.connection.execute(statement)]

    async def chunk_at(self, broker_no: int, log_offset: int) -> int | None:
        """Return the chunk that holds a broker's record at a log offset."""
        number: int | None = await self.connection.scalar(
            _served(select(chunks.c.chunk)).where(
                chunks.c.broker_no == broker_no,
                chunks.c.from_offset <= log_offset,
                chunks.c.to_offset > log_offset,
            )
        )
        return number

    async def topic_number(self, topic: str) -> int | None:
        """Return a topic's number; None if the read model has never seen the topic."""
        return (await self.numbers.known(self.connection, [topic])).get(topic)

    async def ends_of_topic(self, topic_no: int) -> dict[int, int]:
        """Return the log offset at which a topic was deleted, by broker number."""
        found = await self.connection.execute(
            select(topic_ends.c.broker_no, topic_ends.c.build, topic_ends.c.log_offset).where(
                topic_ends.c.topic_no == topic_no
            )
        )
        return {
            row.broker_no: row.log_offset
            for row in found
            if row.broker_no in self.by_number and self.by_number[row.broker_no].build == row.build
        }

    async def damaged(self) -> dict[str, list[DamagedRecord]]:
        """Return the damaged records, the newest of each broker's log first, by broker name.

        A record's topic is None if the read model does not know it: its name may be damaged.
        """
        found = [
            row
            for row in await self.connection.execute(_DAMAGED)
            if row.broker_no in self.by_number
        ]
        names = {row.topic.decode("utf-8", "replace") for row in found if row.topic is not None}
        known = await self.numbers.known(self.connection, names)
        by_broker: dict[str, list[DamagedRecord]] = {}
        for row in found:
            topic = None if row.topic is None else row.topic.decode("utf-8", "replace")
            record = DamagedRecord(
                row.log_offset,
                row.size,
                row.fault,
                row.after_ms,
                row.before_ms,
                topic=topic if topic in known or topic in ROWLESS_TOPICS else None,
                queue_id=row.queue_id,
                queue_offset=row.queue_offset,
                unique_id=None
                if row.unique_id is None
                else row.unique_id.decode("utf-8", "replace"),
            )
            by_broker.setdefault(self.by_number[row.broker_no].broker_name, []).append(record)
        return by_broker

    async def names_of(self, wanted: Iterable[int]) -> dict[int, str]:
        """Return names by their numbers."""
        return await self.numbers.names(self.connection, wanted)

    async def host_owners(self, host: Host) -> list[str]:
        """Return the brokers that have records with an address."""
        await self._load_hosts()
        assert self._hosts is not None
        owners = {number for number, _, its in self._hosts if its == host}
        return sorted(self.by_number[number].broker_name for number in owners)

    async def found(self, rows: Iterable[Any]) -> list[FoundMessage]:
        """Return the messages of rows of ``MESSAGE_COLUMNS``."""
        rows = list(rows)
        if not rows:
            return []
        await self._load_hosts()
        topics = await self.names_of(row.topic_no for row in rows)
        return [
            FoundMessage(
                broker_name=self.by_number[row.broker_no].broker_name,
                store_host=self._host(row.broker_no, row.log_offset),
                log_offset=row.log_offset,
                topic=topics[row.topic_no],
                queue_id=row.queue_id,
                queue_offset=row.queue_offset,
                stored_ms=row.stored_ms,
                born_ms=row.born_ms,
                size=row.size,
                unique_id=id_text(row.unique_id.bytes, row.other_id),
                tag=row.tag,
                keys=row.keys,
            )
            for row in rows
        ]

    async def _load_hosts(self) -> None:
        if self._hosts is None:
            found = await self.connection.execute(_HOSTS)
            self._hosts = [
                (row.broker_no, row.from_offset, Host(row.address, row.port))
                for row in found
                if row.broker_no in self.by_number
                and self.by_number[row.broker_no].build == row.build
            ]

    def _host(self, broker_no: int, log_offset: int) -> Host | None:
        assert self._hosts is not None
        return next(
            (
                host
                for number, from_offset, host in self._hosts
                if number == broker_no and from_offset <= log_offset
            ),
            None,
        )


@asynccontextmanager
async def read_view(database: Database, numbers: NameNumbers) -> AsyncIterator[ReadView]:
    """Open a view.

    Raises:
        DatabaseUnavailableError: PostgreSQL cannot be reached.
    """
    async with database.snapshot() as connection:
        await connection.execute(_HOLD)
        yield ReadView(connection, numbers, await _serving(connection))


async def _serving(connection: AsyncConnection) -> list[ServingBuild]:
    found = await connection.execute(_SERVING)
    return [
        ServingBuild(
            broker_no=row.broker_no,
            broker_name=row.broker_name,
            build=row.build,
            log_offset=row.log_offset,
            stored_ms=row.stored_ms,
            gaps=tuple((begin, end) for begin, end in row.gaps or ()),
        )
        for row in found
    ]
