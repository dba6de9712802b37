"""A read model in PostgreSQL, and a log that is folded into it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import anyio.to_thread
from sqlalchemy import func, text, update

from eruca.contract.properties import encode_properties
from eruca.contract.records import NO_HOST, Host, Record, decode_record, encode_record
from eruca.core.messages.log_block import LogBlock
from eruca_broker.core.state.events import Event, encode_event
from eruca_postgres.database import Database
from eruca_postgres.positions import write_position
from eruca_postgres.tables import log_positions
from eruca_query.core.chunk_states import ChunkLimits, Unsettled
from eruca_query.projection.message_projection import MessageProjection, ProjectionCounts
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.settling import Settling
from eruca_query.projection.tables import SCHEMA
from eruca_query.projection.upkeep import Upkeep
from support.clocks import ManualClock

T0 = 1_700_000_000_000
HOUR = 3_600_000
BROKER = "broker-a"
LIMITS = ChunkLimits(rows=5, span_ms=HOUR, far_bytes=800, near_bytes=320)  # 5 and 2 records
UNIQUE_ID = "7F00000100002A9F{:016X}"


@dataclass
class Log:
    """A broker's log: one message after the other."""

    records: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=lambda: [0])  # of each record, and of the end

    def append(self, *, topic: str = "flights", at_ms: int = T0, keys: str = "k1 k2") -> int:
        """Store a message; return its log offset."""
        number, offset = len(self.records), self.offsets[-1]
        properties = {"UNIQ_KEY": UNIQUE_ID.format(number), "KEYS": keys, "TAGS": "UA"}
        record = encode_record(
            Record(
                topic=topic,
                body=b"%d" % number,
                queue_offset=number,
                log_offset=offset,
                store_timestamp=at_ms,
                born_timestamp=at_ms,
                store_host=Host.parse("10.0.0.1", 10_911),
                properties=encode_properties(properties),
            )
        )
        return self._append(record)

    def tell(self, event: Event) -> int:
        """Store a control record; return its log offset."""
        record = decode_record(encode_event(event, now_ms=T0, host=NO_HOST), check_crc=False)
        record.log_offset, record.store_timestamp = self.offsets[-1], T0
        return self._append(encode_record(record))

    def _append(self, record: bytes) -> int:
        offset = self.offsets[-1]
        self.records.append(record)
        self.offsets.append(offset + len(record))
        return offset

    def block(self, first: int, last: int) -> LogBlock:
        """Return the block of the messages from *first* to before *last*."""
        return LogBlock(
            BROKER,
            from_offset=self.offsets[first],
            next_offset=self.offsets[last],
            end_offset=self.offsets[-1],
            data=b"".join(self.records[first:last]),
        )


class ReadModel:
    """The rows of one broker, and the projection that makes them."""

    def __init__(self, database: Database, *, limits: ChunkLimits = LIMITS) -> None:
        self.database = database
        self._limits = limits
        self.counts = ProjectionCounts()
        self.restart()

    def restart(self) -> None:
        """Be another process."""
        self._projection = MessageProjection(NameNumbers(), limits=self._limits, counts=self.counts)

    async def fold(
        self,
        block: LogBlock,
        *,
        fails: bool = False,
        before_commit: Callable[[], None] | None = None,
        settles: bool = True,
    ) -> None:
        """Fold a block, in a transaction of its own, which may fail before it is committed.

        Then settle the chunks that it named, unless the process dies before that.
        """
        async with self.database.transaction() as connection:
            read = self._projection.prepare(block)
            then = await self._projection.fold_block(connection, block, read)
            if before_commit is not None:
                await anyio.to_thread.run_sync(before_commit)
            if fails:
                raise RuntimeError("before it is committed")
        if then is not None:
            then()
        if settles:
            await self.settle()

    async def settle(self) -> None:
        """Settle the chunks that the last blocks have named."""
        settling = Settling(self.database, asyncio.Lock())
        await settling.settle(self.take_unsettled())
        await settling.finish()

    def take_unsettled(self) -> Unsettled:
        """Return the chunks that the last blocks have named, for the caller to settle."""
        return self._projection.take_unsettled()

    async def note_position(self, log_offset: int, *, seconds_ago: float = 0) -> None:
        """Record how far the log was read, and when; folding alone does not."""
        async with self.database.transaction() as connection:
            await write_position(connection, BROKER, log_offset, end_offset=log_offset)
            ago = timedelta(seconds=seconds_ago)
            await connection.execute(update(log_positions).values(updated_at=func.now() - ago))

    async def fold_all(self, log: Log, *, first: int = 0, step: int = 3) -> None:
        """Fold a log from its *first* message on."""
        for number in range(first, len(log.records), step):
            await self.fold(log.block(number, min(number + step, len(log.records))))

    async def rows(self, *, serving: bool = True) -> list[tuple[Any, ...]]:
        """Return the messages' rows that answer questions, or those of what is being built."""
        return await self.select(
            "SELECT m.log_offset, m.key_no, m.queue_offset, m.unique_id, m.stored_ms "
            "FROM messages m JOIN chunks c USING (chunk) JOIN generations g "
            f"ON g.generation = c.generation WHERE g.is_serving = {serving} ORDER BY 1, 2"
        )

    async def offsets(self, *, serving: bool = True) -> list[int]:
        """Return the log offsets of the messages."""
        return [row[0] for row in await self.rows(serving=serving) if row[1] == 0]

    async def chunks(self) -> list[tuple[Any, ...]]:
        """Return each chunk's first time, last time and number of rows."""
        return await self.select("SELECT first_ms, last_ms, row_count FROM chunks ORDER BY chunk")

    async def index_states(self) -> list[tuple[Any, ...]]:
        """Return for each chunk whether it is open, said to be indexed, and its indexes."""
        return await self.select(
            "SELECT is_open, is_indexed, (SELECT count(*) FROM pg_index WHERE indrelid = "
            "CAST('messages_' || chunk AS regclass)) FROM chunks ORDER BY chunk"
        )

    async def served_chunks(self) -> list[tuple[Any, ...]]:
        """Return where each chunk that answers begins and ends, and its number of rows."""
        return await self.select(
            "SELECT c.from_offset, c.to_offset, c.row_count FROM chunks c JOIN generations g "
            "USING (generation) WHERE g.is_serving ORDER BY 1"
        )

    async def commits(self) -> list[tuple[Any, ...]]:
        """Return the commits that answer questions."""
        return await self.select(
            "SELECT k.log_offset, k.next_offset FROM commits k JOIN chunks c USING (chunk) "
            "JOIN generations g USING (generation) WHERE g.is_serving ORDER BY 1"
        )

    async def gaps(self) -> list[tuple[Any, ...]]:
        """Return the gaps between the rows."""
        return await self.select("SELECT from_offset, to_offset FROM gaps ORDER BY 1")

    async def partitions(self) -> list[str]:
        """Return the names of all partitions there are."""
        found = await self.select(
            "SELECT c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid "
            "JOIN pg_class p ON p.oid = inhparent JOIN pg_namespace n ON n.oid = p.relnamespace "
            f"WHERE n.nspname = '{SCHEMA}' AND p.relkind = 'p' ORDER BY 1"
        )
        return [name for (name,) in found]

    async def drop_old(self, now_ms: int, *, retention_ms: int = HOUR) -> int:
        """Do the upkeep of some time; return how many chunks were dropped."""
        return (await self.keep_up(now_ms, retention_ms=retention_ms)).dropped_count

    async def keep_up(self, now_ms: int = T0, *, retention_ms: int = HOUR) -> Upkeep:
        """Do the upkeep of some time; return its counts."""
        clock = ManualClock(now_ms=now_ms)
        upkeep = Upkeep(self.database, clock, retention_ms=retention_ms)
        await upkeep.step()
        return upkeep

    async def select(self, statement: str) -> list[tuple[Any, ...]]:
        """Return rows."""
        async with self.database.transaction() as connection:
            return [tuple(row) for row in await connection.execute(text(statement))]
