"""The read model's rows: partitioned by stretches of the log, made of any blocks they are the same.

A log is made up here, and told in blocks of any size, from any place, twice or with gaps.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import anyio.to_thread
import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from eruca.contract.properties import encode_properties
from eruca.contract.records import (
    NO_HOST,
    DamagedRecordError,
    Host,
    Record,
    decode_record,
    encode_record,
    layout_of,
)
from eruca.core.messages.log_block import LogBlock
from eruca_broker.core.state.events import Event, TopicDeleted, encode_event
from eruca_broker.core.state.group_events import (
    CommittedOffset,
    GroupOffsets,
    GroupSubscribed,
    OffsetsCommitted,
    Subscribed,
)
from eruca_broker.core.state.snapshots import StateSnapshot
from eruca_postgres.database import Database
from eruca_postgres.embedded import EmbeddedServer
from eruca_postgres.migrations import upgrade
from eruca_postgres.settings import sqlalchemy_url
from eruca_postgres.tables import metadata as shared_tables
from eruca_query.projection.chunks import ChunkLimits
from eruca_query.projection.forgotten import drop_broker
from eruca_query.projection.message_projection import MessageProjection, ProjectionCounts
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.tables import PARTITIONED, SCHEMA, metadata
from eruca_query.projection.upkeep import Upkeep
from eruca_query.wiring import MIGRATIONS
from support.clocks import ManualClock
from support.postgres import drop_schema, embedded_server

pytestmark = pytest.mark.anyio

T0 = 1_700_000_000_000
HOUR = 3_600_000
BROKER = "broker-a"
LIMITS = ChunkLimits(rows=5, span_ms=HOUR)
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

    def __init__(self, database: Database) -> None:
        self.database = database
        self.counts = ProjectionCounts()
        self.restart()

    def restart(self) -> None:
        """Be another process."""
        self._projection = MessageProjection(NameNumbers(), limits=LIMITS, counts=self.counts)

    async def fold(self, block: LogBlock, *, fails: bool = False) -> None:
        """Fold a block, in a transaction of its own, which may fail before it is committed."""
        async with self.database.transaction() as connection:
            read = self._projection.prepare(block)
            then = await self._projection.fold_block(connection, block, read)
            if fails:
                raise RuntimeError("before it is committed")
        if then is not None:
            then()

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
        clock = ManualClock(now_ms=now_ms)
        upkeep = Upkeep(self.database, clock, retention_ms=retention_ms)
        await upkeep.step()
        return upkeep.dropped_count

    async def select(self, statement: str) -> list[tuple[Any, ...]]:
        """Return rows."""
        async with self.database.transaction() as connection:
            return [tuple(row) for row in await connection.execute(text(statement))]


@pytest.fixture
async def model(postgres_url: str) -> AsyncIterator[ReadModel]:
    """A read model with its empty tables."""
    url = sqlalchemy_url(postgres_url)
    drop_schema(postgres_url, SCHEMA)
    await anyio.to_thread.run_sync(upgrade, url, SCHEMA, MIGRATIONS)
    database = Database(url, SCHEMA, connections_max=4)
    yield ReadModel(database)
    await database.close()


@pytest.fixture
def log() -> Log:
    """A log of twelve messages, stored within a minute."""
    log = Log()
    for number in range(12):
        log.append(at_ms=T0 + number * 5_000)
    return log


@contextmanager
def restored_after(server: EmbeddedServer) -> Iterator[None]:
    """Have a server go back to what it has now, once the block has ended."""
    data = server._directory
    copy = data.with_name("copy")
    server.stop()
    subprocess.run(["cp", "-a", data, copy], check=True)  # whoever owns them
    server.start()
    yield
    server.stop()
    shutil.rmtree(data)
    copy.rename(data)
    server.start()


def partitions_of(chunks: Sequence[int]) -> list[str]:
    return sorted(f"{table}_{chunk}" for table in PARTITIONED for chunk in chunks)


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(
        connection, opts={"include_schemas": False, "compare_type": True}
    )
    return [
        difference
        for difference in compare_metadata(context, metadata)
        if not (difference[0] == "remove_table" and difference[1].name in shared_tables.tables)
    ]


async def test_the_migrations_make_the_tables_that_are_declared(model: ReadModel) -> None:
    async with model.database.transaction() as connection:
        differences = await connection.run_sync(_differences)

    assert [d for d in differences if "alembic_version" not in str(d)] == []
    parents = await model.select(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE n.nspname = '{SCHEMA}' AND c.relkind = 'p' ORDER BY 1"
    )
    assert [name for (name,) in parents] == sorted(PARTITIONED)


@pytest.mark.parametrize("seed", range(4))
async def test_rows_are_the_same_however_the_log_is_cut_and_whoever_reads_it(
    model: ReadModel, log: Log, seed: int
) -> None:
    random = Random(seed)
    first = 0
    while first < len(log.records):
        last = min(first + random.randrange(1, 6), len(log.records))
        await model.fold(log.block(first, last))
        first = last
        if random.random() < 0.3:
            model.restart()

    rows = await model.rows()
    assert [(offset, key_no) for offset, key_no, *_ in rows] == [
        (offset, key_no) for offset in log.offsets[:-1] for key_no in (0, 1)
    ]
    assert [str(row[3]) for row in rows[::2]] == [
        str(UUID(UNIQUE_ID.format(number))) for number in range(12)
    ]
    assert sum(count for _, _, count in await model.chunks()) == len(rows)


async def test_a_chunk_is_a_partition_of_each_table_and_ends_after_so_many_rows(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)  # three messages, so six rows, a block

    assert [count for _, _, count in await model.chunks()] == [6, 6, 6, 6]
    assert await model.partitions() == partitions_of([1, 2, 3, 4])


async def test_a_chunk_ends_after_so_much_time(model: ReadModel) -> None:
    log = Log()
    times = [T0, T0 + HOUR - 1, T0 + HOUR, T0 + 3 * HOUR]
    for at_ms in times:
        log.append(at_ms=at_ms, keys="")
    await model.fold_all(log, step=1)

    assert await model.chunks() == [
        (times[0], times[1], 2),
        (times[2], times[2], 1),
        (times[3], times[3], 1),
    ]


@pytest.mark.parametrize("step", [1, 3])
async def test_a_chunk_tells_its_earliest_and_latest_time_wherever_a_clock_was_set_back(
    model: ReadModel, step: int
) -> None:
    log = Log()
    for at_ms in (T0, T0 + 5_000, T0 - 5_000):
        log.append(at_ms=at_ms, keys="")
    await model.fold_all(log, step=step)

    assert await model.chunks() == [(T0 - 5_000, T0 + 5_000, 3)]


async def test_retention_drops_whole_partitions_of_what_is_too_old(model: ReadModel) -> None:
    log = Log()
    for number in range(6):
        log.append(at_ms=T0 + number * HOUR)
    await model.fold_all(log, step=1)
    now = T0 + 5 * HOUR

    kept = await model.drop_old(now, retention_ms=10 * HOUR)
    dropped = await model.drop_old(now, retention_ms=2 * HOUR)
    again = await model.drop_old(now, retention_ms=2 * HOUR)

    assert (kept, dropped, again) == (0, 3, 0)
    assert await model.partitions() == partitions_of([4, 5, 6])
    assert await model.offsets() == log.offsets[3:6]


async def test_a_log_goes_on_after_retention_has_dropped_everything(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    await model.drop_old(T0 + 10 * HOUR)
    assert await model.partitions() == []
    log.append(at_ms=T0 + 10 * HOUR)

    await model.fold_all(log, first=12)

    assert await model.offsets() == log.offsets[12:13]


async def test_a_block_that_fails_leaves_nothing_and_is_folded_again(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(0, 6))
    before = (await model.rows(), await model.chunks(), await model.partitions())

    with pytest.raises(RuntimeError):
        await model.fold(log.block(6, 12), fails=True)
    assert (await model.rows(), await model.chunks(), await model.partitions()) == before

    await model.fold_all(log, first=6)

    assert await model.offsets() == log.offsets[:-1]
    assert model.counts.rows == 24


async def test_bytes_that_are_no_records_change_nothing(model: ReadModel, log: Log) -> None:
    await model.fold(log.block(0, 6))
    damaged = log.block(6, 12)
    cut = LogBlock(
        BROKER, damaged.from_offset, damaged.next_offset, damaged.end_offset, damaged.data[:-3]
    )

    with pytest.raises(DamagedRecordError, match="does not fit"):
        await model.fold(cut)

    assert await model.offsets() == log.offsets[:6]


async def test_damaged_records_are_noted_without_a_row_and_go_with_those_of_their_time(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(0, 3))
    await model.fold(without_sound(log.block(3, 6), log, 4))

    assert await model.offsets() == [*log.offsets[:4], log.offsets[5]]
    assert await model.select(
        "SELECT log_offset, topic, queue_offset, unique_id, fault FROM damaged"
    ) == [
        (
            log.offsets[4],
            b"flights",
            4,
            UNIQUE_ID.format(4).encode(),
            "the body does not match its CRC",
        )
    ]
    await model.drop_old(T0 + 10 * HOUR)
    assert await model.select("SELECT * FROM damaged") == []


async def test_a_log_that_is_told_again_tells_its_damage_again_and_keeps_what_it_has_lost(
    model: ReadModel, log: Log
) -> None:
    await model.fold(without_sound(log.block(0, 6), log, 1))
    await model.fold(without_sound(log.block(6, 12), log, 8))
    noted = "SELECT damaged.log_offset FROM damaged JOIN generations USING (broker_no, generation) "
    noted += "WHERE is_serving ORDER BY 1"

    await model.fold(log.block(3, 12))  # from where the log begins by now; its file was restored

    assert await model.select(noted) == [(log.offsets[1],)]
    assert await model.select("SELECT count(*) FROM damaged") == [(1,)]


def without_sound(block: LogBlock, log: Log, number: int) -> LogBlock:
    """Return a block of which the record of a number is damaged, as the feed's readers have it."""
    raw = bytearray(log.records[number])
    body = raw.index(b"%d" % number, layout_of(0).body)
    raw[body] ^= 1
    sound = block.data.replace(log.records[number], b"")
    return msgspec.structs.replace(block, data=sound, damaged={log.offsets[number]: bytes(raw)})


async def test_what_was_deleted_before_it_was_read_is_noted_as_a_gap(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(0, 3))
    await model.fold(log.block(7, 12))

    assert await model.offsets() == [*log.offsets[:3], *log.offsets[7:12]]
    assert await model.gaps() == [(log.offsets[3], log.offsets[7])]


async def test_behind_a_gap_groups_stand_where_the_log_says_and_not_where_they_stood_before(
    model: ReadModel,
) -> None:
    log = Log()
    for group in ("movers", "gone"):
        log.tell(OffsetsCommitted(group, [CommittedOffset("flights", 0, 1)]))
        log.tell(GroupSubscribed(group, (Subscribed("flights", "*", "TAG"),)))
    log.tell(OffsetsCommitted("movers", [CommittedOffset("flights", 0, 7)]))
    log.tell(
        StateSnapshot(1, 1, groups=[GroupOffsets("movers", [CommittedOffset("flights", 0, 7)])])
    )
    await model.fold(log.block(0, 4))

    await model.fold(log.block(5, 6))

    assert await model.select(
        "SELECT name, next_offset FROM group_positions JOIN names ON name_no = group_no"
    ) == [("movers", 7)]
    assert await model.select("SELECT group_no FROM subscriptions") == []


async def test_a_log_that_is_told_again_is_built_beside_what_answers_until_it_has_come_as_far(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    before = await model.rows()

    await model.fold(log.block(0, 6))
    building, serving = await model.offsets(serving=False), await model.rows()
    await model.fold(log.block(6, 12))

    assert building == log.offsets[:6]
    assert serving == before
    assert await model.rows() == before
    assert await model.rows(serving=False) == []
    assert model.counts.switches == 1
    assert await model.drop_old(T0) == 4  # the old rows' chunks are nobody's now
    assert len(await model.partitions()) == 2 * len(PARTITIONED)


async def test_what_the_log_does_not_hold_any_more_passes_on_to_the_rows_made_anew(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    before = await model.rows()

    await model.fold_all(log, first=6)  # the first six have been deleted at the broker

    assert await model.rows() == before
    assert model.counts.switches == 1
    assert await model.drop_old(T0) == 2


async def test_a_chunk_in_which_the_log_begins_now_passes_on_up_to_there(
    model: ReadModel,
) -> None:
    log = Log()
    for number in range(8):
        log.tell(OffsetsCommitted("billing", [CommittedOffset("flights", 0, number)]))
        log.append(at_ms=T0 + number)
    last = len(log.records)
    await model.fold(log.block(0, 12))
    await model.fold(log.block(12, last))
    before = await model.rows(), await model.commits()

    await model.fold(log.block(6, last))

    assert (await model.rows(), await model.commits()) == before
    assert sum(count for *_, count in await model.served_chunks()) == len(before[0])
    spans = [(first, end) for first, end, _ in await model.served_chunks()]
    assert spans == [(0, log.offsets[6]), (log.offsets[6], log.offsets[-1])]


async def test_a_gap_in_which_the_log_begins_now_passes_on_up_to_there(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(0, 3))
    await model.fold(log.block(7, 12))

    await model.fold(log.block(5, 12))

    assert await model.offsets() == [*log.offsets[:3], *log.offsets[5:12]]
    assert await model.gaps() == [(log.offsets[3], log.offsets[5])]


@pytest.mark.parametrize("again", [False, True])
async def test_ends_of_topics_that_the_log_does_not_tell_any_more_pass_on(
    model: ReadModel,
    again: bool,
) -> None:
    log = Log()
    log.append()
    end = log.tell(TopicDeleted("flights"))
    for _ in range(4):
        log.append()
    if again:
        end = log.tell(TopicDeleted("flights"))
    await model.fold_all(log)

    await model.fold_all(log, first=3)

    assert model.counts.switches == 1
    assert await model.select("SELECT log_offset FROM topic_ends") == [(end,)]


async def test_being_told_again_twice_forgets_what_the_first_time_had_built(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    before = await model.rows()

    await model.fold(log.block(0, 6))
    model.restart()
    await model.fold(log.block(0, 3))
    assert await model.offsets(serving=False) == log.offsets[:3]
    await model.fold_all(log, first=3)

    assert await model.rows() == before
    await model.drop_old(T0)
    chunks = await model.chunks()
    assert sum(count for *_, count in chunks) == len(before)
    assert len(await model.partitions()) == len(chunks) * len(PARTITIONED)


async def test_what_is_deleted_while_the_log_is_told_again_passes_on_as_well(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    before = await model.rows()

    await model.fold(log.block(0, 3))
    await model.fold(log.block(6, 9))  # the first six have been deleted at the broker meanwhile
    await model.fold(log.block(9, 12))

    assert await model.rows() == before
    assert await model.gaps() == []
    assert await model.rows(serving=False) == []
    await model.drop_old(T0)
    chunks = await model.chunks()
    assert sum(count for *_, count in chunks) == len(before)


async def test_what_is_deleted_and_was_never_read_is_a_gap_while_the_log_is_told_again(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(0, 6))

    await model.fold(log.block(0, 3))
    await model.fold(log.block(8, 12))

    assert await model.offsets() == [*log.offsets[:6], *log.offsets[8:12]]
    assert await model.gaps() == [(log.offsets[6], log.offsets[8])]


async def test_a_log_that_has_lost_its_end_answers_with_what_it_holds(
    model: ReadModel, log: Log
) -> None:
    """The broker's disk was lost, or cut: its log is shorter than the rows."""
    await model.fold_all(log)
    shorter = Log(log.records[:4], log.offsets[:5])

    await model.fold_all(shorter)

    assert await model.offsets() == log.offsets[:4]


async def test_a_server_that_has_lost_what_was_committed_last_names_the_topics_right() -> None:
    """It was restored, or another has taken its place; the service has run all the time."""
    log = Log()
    for topic in ("flights", "ships", "trains"):
        log.append(topic=topic)
    with embedded_server() as server:
        url = sqlalchemy_url(server.url)
        await anyio.to_thread.run_sync(upgrade, url, SCHEMA, MIGRATIONS)
        model = ReadModel(Database(url, SCHEMA, connections_max=4))
        await model.fold(log.block(0, 1))
        with restored_after(server):
            await model.fold(log.block(1, 2))

        await model.fold(log.block(1, 3))
        named = await model.select(
            "SELECT log_offset, name FROM messages JOIN names ON name_no = topic_no "
            "WHERE key_no = 0 ORDER BY 1"
        )
        await model.database.close()

    topics = ["flights", "ships", "trains"]
    assert named == list(zip(log.offsets, topics, strict=False))


async def test_a_new_connection_takes_nothing_from_who_is_looking_names_up(
    model: ReadModel,
) -> None:
    numbers = NameNumbers()
    async with model.database.transaction() as one, model.database.transaction() as other:
        of_topics = await numbers.ensure(one, ["flights", "ships"])
        await numbers.names(one, [of_topics["flights"]])

        named, _ = await asyncio.gather(
            numbers.names(one, of_topics.values()), numbers.known(other, ["trains"])
        )

    assert named == {number: name for name, number in of_topics.items()}


async def test_a_broker_that_comes_back_after_it_was_forgotten_has_nothing_of_what_it_had(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(0, 7))

    async with model.database.transaction() as connection:
        await drop_broker(connection, BROKER)
    hosts = await model.select("SELECT from_offset FROM store_hosts")
    await model.fold(log.block(7, 9))

    assert hosts == []
    assert await model.select("SELECT from_offset FROM store_hosts") == [(log.offsets[7],)]
    assert await model.drop_old(T0) == 1  # which is nobody's: of the one that was forgotten
    assert await model.offsets() == log.offsets[7:9]
