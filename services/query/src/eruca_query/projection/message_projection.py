"""Turn a broker's log into the read model's rows, block by block.

The records of a block are parsed in one step, and their rows are copied in pieces: one is encoded
while PostgreSQL takes the previous one. The other facts of a block are few and use ordinary
objects. All of it is written in one transaction, together with the position.

Concurrency rule: one projection per broker; its blocks are folded one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.core.messages.log_block import LogBlock
from eruca.core.messages.record_columns import Int64Array
from eruca_postgres.copying import copy_binary
from eruca_query.core.block_columns import BlockColumns
from eruca_query.core.chunk_states import ChunkLimits, Unsettled
from eruca_query.core.damaged_records import DamagedRecord, damaged_of
from eruca_query.core.group_table import GroupChanges, GroupTable
from eruca_query.core.log_facts import ROWLESS_TOPICS, BlockFacts, facts_of
from eruca_query.core.message_rows import COLUMNS, message_rows
from eruca_query.projection.builds import Build, advance, build_for
from eruca_query.projection.chunks import grow_chunk, last_chunk, open_chunk
from eruca_query.projection.damaged_rows import write_damaged
from eruca_query.projection.group_rows import read_group_table, write_group_changes
from eruca_query.projection.life_rows import names_in, write_life_events
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.store_hosts import StoreHost, note_store_hosts
from eruca_query.projection.tables import brokers

_ROWS_PER_PIECE: Final = 4_096
# Far from the log's end, a commit does not wait for the disk. Rows and position are written in one
# transaction, so a server that dies before it has written them loses both, and they are read again.
_WITHOUT_WAITING: Final = text("SET LOCAL synchronous_commit = off")
_NO_ROWS: Final = np.zeros(0, np.int64)


@dataclass(slots=True)
class ProjectionCounts:
    """The work of an instance since its start."""

    rows: int = 0
    records: int = 0
    blocks: int = 0
    damaged: int = 0  # records that the broker found damaged
    unreadable: int = 0  # control records that could not be decoded
    switches: int = 0  # builds that took over


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """The contents of a block."""

    columns: BlockColumns
    facts: BlockFacts
    rows: Int64Array  # of the messages
    damaged: list[DamagedRecord]


class _Written(NamedTuple):
    """The rows of a block."""

    numbers: dict[str, int]  # of the names in them
    rows: int  # of messages
    unsettled: Unsettled  # chunks to settle after the block


class MessageProjection:
    """Writes one broker's rows.

    Args:
        numbers: The numbers of topics and groups; shared by the whole process.
        limits: The limits at which a chunk is full.
        counts: Counters, shared by all brokers.
    """

    def __init__(
        self, numbers: NameNumbers, *, limits: ChunkLimits, counts: ProjectionCounts
    ) -> None:
        self._numbers = numbers
        self._limits = limits
        self._counts = counts
        # The groups in a build's rows, and the log offset they are valid for; None: unknown.
        self._groups: GroupTable | None = None
        self._groups_at = (0, 0, 0)
        self._store_host: StoreHost | None = None  # of the latest records
        self._unsettled = Unsettled()  # chunks that committed blocks have named

    def prepare(self, block: LogBlock) -> ReadBlock:
        """Parse *block*.

        Raises:
            DamagedRecordError: It is not a stretch of a log.
        """
        columns = BlockColumns.of(block.data)
        has_rows = np.array([name not in ROWLESS_TOPICS for name in columns.topics.names], np.bool_)
        rows = np.flatnonzero(has_rows[columns.topics.numbers]) if len(columns) else _NO_ROWS
        return ReadBlock(columns, facts_of(columns), rows, damaged_of(block, columns))

    async def fold_block(
        self, connection: AsyncConnection, block: LogBlock, read: ReadBlock
    ) -> Callable[[], None] | None:
        """Write the rows of *block*."""
        if _behind(block) > self._limits.near_bytes:
            await connection.execute(_WITHOUT_WAITING)
        broker_no = await _broker_number(connection, block.broker_name)
        build = await build_for(connection, broker_no, block)
        groups = await self._group_table(connection, build, block)
        changes = groups.apply(read.facts.groups)
        host = await note_store_hosts(connection, build, read.columns, self._store_host)
        written = await self._write_rows(connection, build, block, read, changes)
        await write_damaged(connection, build, read.damaged)
        is_switch = await advance(
            connection,
            build,
            block,
            stored_ms=_last_ms(read.columns),
            unreadable=read.facts.unreadable,
        )

        def committed() -> None:
            assert self._groups is None, "two blocks are folded at once"
            self._numbers.keep(written.numbers)
            closed = (*self._unsettled.closed, *written.unsettled.closed)
            self._unsettled = Unsettled(closed, written.unsettled.open)
            self._store_host = host
            self._groups = groups
            self._groups_at = (build.broker_no, build.number, block.next_offset)
            self._counts.blocks += 1
            self._counts.records += len(read.columns)
            self._counts.rows += written.rows
            self._counts.damaged += len(read.damaged)
            self._counts.unreadable += read.facts.unreadable
            self._counts.switches += is_switch

        return committed

    def take_unsettled(self) -> Unsettled:
        """Return the chunks to settle, an open one before the next block, and forget them.

        Forgetting is safe: upkeep finds closed ones, and a later block names an open one again.
        """
        unsettled, self._unsettled = self._unsettled, Unsettled()
        return unsettled

    async def forget(self, connection: AsyncConnection, broker_name: str) -> bool:
        """Do nothing: the beginning of the next block shows that the log is read again."""
        return False

    async def _group_table(
        self, connection: AsyncConnection, build: Build, block: LogBlock
    ) -> GroupTable:
        """Return the groups as in the rows; keep them in memory only after a commit."""
        groups, self._groups = self._groups, None
        here = (build.broker_no, build.number, block.from_offset)
        if groups is not None and self._groups_at == here:
            return groups
        self._store_host = None
        return await read_group_table(connection, build.broker_no, build.number)

    async def _write_rows(
        self,
        connection: AsyncConnection,
        build: Build,
        block: LogBlock,
        read: ReadBlock,
        changes: GroupChanges,
    ) -> _Written:
        """Write a chunk's and the groups' rows."""
        times = read.columns.columns.store_timestamps
        if not len(times):
            at_end = await self._bare_at_end(connection, build, block)
            return _Written({}, 0, Unsettled(open=at_end))
        topics = [name for name in read.columns.topics.names if name not in ROWLESS_TOPICS]
        numbers = await self._numbers.ensure(
            connection, {*topics, *names_in(read.facts.events), *changes.names()}
        )
        chunk, closed = await open_chunk(
            connection,
            build.broker_no,
            build.number,
            from_offset=block.from_offset,
            stored_ms=int(times[0]),
            behind_bytes=_behind(block),
            limits=self._limits,
        )
        written = await _copy_messages(
            connection, read, numbers, broker_no=build.broker_no, chunk=chunk.number
        )
        await write_life_events(
            connection,
            read.facts.events,
            numbers,
            broker_no=build.broker_no,
            chunk=chunk.number,
        )
        await write_group_changes(connection, build, chunk.number, changes, numbers)
        await grow_chunk(
            connection,
            chunk.number,
            to_offset=block.next_offset,
            times_ms=(int(times.min()), int(times.max())),
            rows=written,
        )
        wants = chunk.wants_indexes(self._limits, _behind(block)) or chunk.doubles_by(written)
        unsettled = Unsettled(
            closed=() if closed is None else (closed,), open=chunk.number if wants else None
        )
        return _Written(numbers, written, unsettled)

    async def _bare_at_end(
        self, connection: AsyncConnection, build: Build, block: LogBlock
    ) -> int | None:
        """Return the open chunk if it is bare and a block without records led to the log's end."""
        if _behind(block) > self._limits.near_bytes:
            return None
        chunk = await last_chunk(connection, build.broker_no, build.number)
        if chunk is None or not chunk.wants_indexes(self._limits, _behind(block)):
            return None
        return chunk.number


def _behind(block: LogBlock) -> int:
    """Return the bytes of the log after a block."""
    return max(block.end_offset - block.next_offset, 0)


def _last_ms(columns: BlockColumns) -> int | None:
    return int(columns.columns.store_timestamps[-1]) if len(columns) else None


async def _copy_messages(
    connection: AsyncConnection,
    read: ReadBlock,
    numbers: dict[str, int],
    *,
    broker_no: int,
    chunk: int,
) -> int:
    """Copy the messages' rows and return their count."""
    if not len(read.rows):
        return 0
    of_topics = np.array([numbers.get(name, 0) for name in read.columns.topics.names], np.int64)
    written = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal written
        for first in range(0, len(read.rows), _ROWS_PER_PIECE):
            rows = read.rows[first : first + _ROWS_PER_PIECE]
            piece, count = await asyncio.to_thread(
                message_rows,
                read.columns,
                rows,
                of_topics[read.columns.topics.numbers[rows]],
                broker_no=broker_no,
                chunk=chunk,
            )
            written += count
            yield piece

    await copy_binary(connection, f"messages_{chunk}", COLUMNS, pieces())
    assert written >= len(read.rows), "a message has no row"
    return written


async def _broker_number(connection: AsyncConnection, name: str) -> int:
    known = select(brokers.c.broker_no).where(brokers.c.broker_name == name)
    number = await connection.scalar(known)
    if number is None:
        await connection.execute(insert(brokers).values(broker_name=name).on_conflict_do_nothing())
        number = await connection.scalar(known)
    assert isinstance(number, int)
    return number
