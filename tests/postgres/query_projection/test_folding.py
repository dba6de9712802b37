"""The projection of the query service: rows, gaps and damage are those of the log."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from uuid import UUID

import anyio.to_thread
import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from eruca.contract.records import DamagedRecordError, layout_of
from eruca.core.messages.log_block import LogBlock
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
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.tables import PARTITIONED, SCHEMA, metadata
from eruca_query.wiring import MIGRATIONS
from support.postgres import embedded_server
from support.read_models import BROKER, HOUR, T0, UNIQUE_ID, Log, ReadModel

pytestmark = pytest.mark.anyio


@contextmanager
def restored_after(server: EmbeddedServer) -> Iterator[None]:
    """Have a server go back to what it has now, once the block has ended."""
    data = server._directory
    copy = data.with_name("copy")
    server.stop()
    subprocess.run(["cp", "-a", data, copy], check=True)  # with their owners
    server.start()
    yield
    server.stop()
    shutil.rmtree(data)
    copy.rename(data)
    server.start()


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
async def test_rows_are_the_same_however_the_log_is_cut_and_by_any_reader(
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
