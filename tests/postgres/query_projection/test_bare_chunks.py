"""Chunks that are filled without indexes, and get them once, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import anyio.to_thread
import msgspec
import pytest
from sqlalchemy import text

from eruca.contract.errors import DatabaseUnavailableError
from eruca_postgres.database import Database
from eruca_postgres.embedded import EmbeddedServer
from eruca_postgres.migrations import upgrade
from eruca_postgres.settings import sqlalchemy_url
from eruca_query.core.chunk_states import SETTLED_ROWS_MIN, ChunkLimits, Unsettled
from eruca_query.projection.chunks import last_chunk
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.settling import Settling
from eruca_query.projection.tables import MESSAGE_INDEXES, SCHEMA
from eruca_query.projection.upkeep import STILL_SECONDS
from eruca_query.searching import message_sql
from eruca_query.searching.message_search import rows_by_id
from eruca_query.searching.read_view import read_view
from eruca_query.wiring import MIGRATIONS
from support.postgres import embedded_server, kill_server
from support.read_models import HOUR, LIMITS, T0, UNIQUE_ID, Log, ReadModel

pytestmark = pytest.mark.anyio

ALL = len(MESSAGE_INDEXES)
BARE = (True, False, 0)  # open, indexed, number of indexes
OPEN = (True, True, ALL)
CLOSED = (False, True, ALL)
BARE_CLOSED = (False, False, 0)


def long_log(count: int = 40) -> Log:
    log = Log()
    for number in range(count):
        log.append(at_ms=T0 + number, keys="")
    return log


async def test_far_from_the_logs_end_a_chunk_gets_its_indexes_when_it_is_full(
    model: ReadModel,
) -> None:
    log = long_log()

    await model.fold(log.block(0, 4))
    filling = await model.index_states()
    await model.fold(log.block(4, 8))
    full = await model.index_states()
    await model.fold(log.block(8, 12))

    assert (filling, full) == ([BARE], [BARE])
    assert await model.index_states() == [CLOSED, BARE]


async def test_near_the_logs_end_it_gets_them_in_the_block_that_leads_there(
    model: ReadModel,
) -> None:
    log = long_log(9)
    assert log.offsets[-1] - log.offsets[7] <= LIMITS.near_bytes < log.offsets[-1] - log.offsets[2]

    await model.fold(log.block(0, 2))
    before = await model.index_states()
    await model.fold(log.block(2, 4))
    between = await model.index_states()
    await model.fold(log.block(4, 9))

    assert (before, between) == ([BARE], [BARE])
    assert await model.index_states() == [OPEN]


async def test_a_chunk_that_begins_near_the_logs_end_has_indexes_at_once(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(11, 12))

    assert await model.index_states() == [OPEN]


async def test_a_block_without_records_that_leads_to_the_logs_end_is_enough(
    model: ReadModel,
) -> None:
    log = long_log(9)
    await model.fold(log.block(0, 2))
    before = await model.index_states()
    rest = msgspec.structs.replace(log.block(2, 9), data=b"")  # the end of an unused segment

    await model.fold(rest)

    assert before == [BARE]
    assert await model.index_states() == [OPEN]


@pytest.mark.parametrize("seed", range(4))
async def test_state_and_indexes_agree_after_every_block_and_after_every_failure(
    model: ReadModel, seed: int
) -> None:
    random = Random(seed)
    log = long_log()
    first = 0
    while first < len(log.records):
        last = min(first + random.randrange(1, 5), len(log.records))
        if random.random() < 0.3:
            with pytest.raises(RuntimeError):
                await model.fold(log.block(first, last), fails=True)
            model.restart()
        else:
            await model.fold(log.block(first, last))
            first = last
        states = await model.index_states()
        assert all(state in (BARE, OPEN, CLOSED) for state in states)
        assert sum(state != CLOSED for state in states) <= 1

    assert await model.offsets() == log.offsets[:-1]
    assert (await model.index_states())[-1] == OPEN


@pytest.fixture
async def killed_model() -> AsyncIterator[tuple[ReadModel, EmbeddedServer]]:
    """A read model whose server may be killed."""
    with embedded_server() as server:
        url = sqlalchemy_url(server.url)
        await anyio.to_thread.run_sync(upgrade, url, SCHEMA, MIGRATIONS)
        model = ReadModel(Database(url, SCHEMA, connections_max=4))
        yield model, server
        await model.database.close()


async def test_a_server_killed_before_indexes_are_committed_has_neither_them_nor_the_block(
    killed_model: tuple[ReadModel, EmbeddedServer],
) -> None:
    model, server = killed_model
    log = long_log(12)
    await model.fold(log.block(0, 4))
    await model.note_position(log.offsets[4])  # its commit waits, and so for the block's, too
    with pytest.raises(DatabaseUnavailableError):
        await model.fold(log.block(4, 12), before_commit=lambda: kill_server(server))
    await anyio.to_thread.run_sync(server.start)

    states, offsets = await model.index_states(), await model.offsets()
    model.restart()
    await model.fold(log.block(4, 12))

    assert (states, offsets) == ([BARE], log.offsets[:4])
    assert await model.index_states() == [OPEN]
    assert await model.offsets() == log.offsets[:-1]


async def test_blocks_that_a_killed_server_had_not_written_are_lost_with_their_position(
    killed_model: tuple[ReadModel, EmbeddedServer],
) -> None:
    model, server = killed_model
    log = long_log(60)
    for first in range(0, 40, 2):
        await model.fold(log.block(first, first + 2))
    await anyio.to_thread.run_sync(kill_server, server)
    await anyio.to_thread.run_sync(server.start)

    positions = await model.select("SELECT log_offset FROM generations")
    position = positions[0][0] if positions else 0
    kept = log.offsets.index(position)
    offsets = await model.offsets()
    model.restart()
    await model.fold_all(log, first=kept)

    assert offsets == log.offsets[:kept]
    assert await model.offsets() == log.offsets[:-1]


async def test_a_bare_chunk_of_a_log_that_is_read_on_is_left_to_its_reader(
    model: ReadModel,
) -> None:
    log = long_log()
    await model.fold(log.block(0, 4))
    await model.note_position(log.offsets[4])

    assert (await model.keep_up()).indexed_count == 0
    assert await model.index_states() == [BARE]


async def test_a_bare_chunk_that_nobody_fills_is_indexed_and_then_filled_on(
    model: ReadModel,
) -> None:
    log = long_log()
    await model.fold(log.block(0, 4))
    await model.note_position(log.offsets[4], seconds_ago=STILL_SECONDS + 1)

    kept = [(await model.keep_up()).indexed_count for _ in range(2)]
    states = await model.index_states()
    await model.fold(log.block(4, 5))
    await model.fold(log.block(5, 8))

    assert kept == [1, 0]
    assert states == [OPEN]
    assert await model.index_states() == [CLOSED, BARE]


async def test_two_instances_index_a_chunk_that_was_left_once(model: ReadModel) -> None:
    log = long_log()
    await model.fold(log.block(0, 4))

    counts = await asyncio.gather(*(model.keep_up() for _ in range(2)))

    assert sum(upkeep.indexed_count for upkeep in counts) == 1
    assert await model.index_states() == [OPEN]


async def test_upkeep_passes_over_a_chunk_into_which_somebody_writes(model: ReadModel) -> None:
    log = long_log()
    await model.fold(log.block(0, 4))

    async with model.database.transaction() as connection:
        held = await last_chunk(connection, 1, 1)
        meanwhile = (await model.keep_up()).indexed_count

    assert held is not None
    assert (meanwhile, (await model.keep_up()).indexed_count) == (0, 1)


async def test_a_message_in_a_bare_chunk_is_found_by_its_id_and_its_offset(
    model: ReadModel,
) -> None:
    log = long_log()
    await model.fold(log.block(0, 4))

    async with read_view(model.database, NameNumbers()) as view:
        by_id = await rows_by_id(view, UNIQUE_ID.format(2), 10)
        chunk = await view.chunk_at(1, log.offsets[3])
        assert chunk is not None
        statement = message_sql.by_log_offset(1, log.offsets[3], chunk)
        at_offset = (await view.connection.execute(statement)).all()

    assert await model.index_states() == [BARE]
    assert [message.log_offset for message in by_id] == [log.offsets[2]]
    assert [row.log_offset for row in at_offset] == [log.offsets[3]]


async def test_a_bare_chunk_of_a_build_that_was_replaced_is_indexed_where_it_passes_on(
    model: ReadModel,
) -> None:
    log = long_log()
    await model.fold(log.block(0, 4))

    await model.fold(log.block(2, 4))  # the log begins there by now, and is read again
    passed_on = await model.index_states()
    await model.note_position(log.offsets[4])
    await model.keep_up()

    assert passed_on == [(False, False, 0), BARE]
    assert await model.index_states() == [CLOSED, BARE]
    assert await model.offsets() == log.offsets[:4]


async def test_indexes_that_take_longer_than_a_transaction_may_never_stop_the_log(
    model: ReadModel, postgres_url: str
) -> None:
    """They wait for a lock here, longer than the transaction of a block may last."""
    log = long_log()
    for first in (0, 4):
        await model.fold(log.block(first, first + 4))
    url = sqlalchemy_url(postgres_url)
    impatient = ReadModel(Database(url, SCHEMA, connections_max=2, transaction_seconds=0.5))
    try:
        async with held(model, "messages_1"):
            await impatient.fold(log.block(8, 12), settles=False)
            building = asyncio.create_task(impatient.settle())
            still_building = not (await asyncio.wait([building], timeout=1))[0]
            meanwhile = await model.index_states()
        await building
    finally:
        await impatient.database.close()

    assert still_building
    assert meanwhile == [BARE_CLOSED, BARE]
    assert await model.index_states() == [CLOSED, BARE]


@asynccontextmanager
async def held(model: ReadModel, table: str) -> AsyncIterator[None]:
    """Let nobody build indexes of *table* in the block."""
    async with model.database.transaction() as blocker:
        await blocker.execute(text(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE"))
        yield


async def test_a_closed_chunk_is_settled_beside_the_blocks_of_the_next_one(
    model: ReadModel,
) -> None:
    log = long_log()
    settling = Settling(model.database, asyncio.Lock())

    async def fold(first: int, last: int) -> None:
        await model.fold(log.block(first, last), settles=False)
        await settling.settle(model.take_unsettled())

    await fold(0, 8)
    async with held(model, "messages_1"):
        await fold(8, 10)
        await fold(10, 16)  # the second chunk is full
        beside = await model.index_states()
        third = asyncio.create_task(fold(16, 18))  # the third begins
        waits = not (await asyncio.wait([third], timeout=0.5))[0]
        meanwhile = await model.index_states()
    await third
    await settling.finish()

    assert beside == [BARE_CLOSED, BARE]
    assert waits, "the log is read faster than its chunks are indexed"
    assert meanwhile == [BARE_CLOSED, BARE_CLOSED, BARE]
    assert await model.index_states() == [CLOSED, CLOSED, BARE]


async def test_a_process_settles_one_closed_chunk_at_a_time(model: ReadModel) -> None:
    log = long_log()
    for first in (0, 8, 16):
        await model.fold(log.block(first, first + 8), settles=False)
    one, two = model.take_unsettled().closed
    turn = asyncio.Lock()
    earlier, later = Settling(model.database, turn), Settling(model.database, turn)

    async with held(model, f"messages_{one}"):
        await earlier.settle(Unsettled(closed=[one]))
        await later.settle(Unsettled(closed=[two]))
        waiting = asyncio.create_task(later.finish())
        waits = not (await asyncio.wait([waiting], timeout=0.5))[0]
        meanwhile = await model.index_states()
    await earlier.finish()
    await waiting

    assert waits
    assert meanwhile == [BARE_CLOSED, BARE_CLOSED, BARE]
    assert await model.index_states() == [CLOSED, CLOSED, BARE]


async def test_a_chunk_that_was_being_settled_at_a_stop_is_left_to_upkeep(
    model: ReadModel,
) -> None:
    log = long_log()
    settling = Settling(model.database, asyncio.Lock())
    for first in (0, 8):
        await model.fold(log.block(first, first + 8), settles=False)

    async with held(model, "messages_1"):
        await settling.settle(model.take_unsettled())
        await settling.stop()
    left = await model.index_states()
    await model.keep_up()

    assert left == [BARE_CLOSED, BARE]
    assert (await model.index_states())[0] == CLOSED


async def test_chunks_that_a_dead_process_left_unsettled_are_settled_by_upkeep(
    model: ReadModel,
) -> None:
    log = long_log(12)
    for first in (0, 4, 8):
        await model.fold(log.block(first, first + 4), settles=False)
    left = await model.index_states()

    kept = [(await model.keep_up()).indexed_count for _ in range(2)]

    assert left == [BARE_CLOSED, OPEN]
    assert kept == [1, 0]
    assert await model.index_states() == [CLOSED, OPEN]


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_chunk_that_begins_indexed_is_found_by_offset_without_reading_all_its_rows(
    model: ReadModel, is_closed: bool
) -> None:
    count = 2 * SETTLED_ROWS_MIN
    log = long_log(count + 1)
    limits = ChunkLimits(count, HOUR, far_bytes=log.offsets[-1] + 1, near_bytes=0)
    model = ReadModel(model.database, limits=limits)

    for first in range(0, count, 4_096):  # a process that dies before it settles the closed one
        await model.fold(log.block(first, first + 4_096), settles=not is_closed)
    if is_closed:
        await model.fold(log.block(count, count + 1), settles=False)
        assert (await model.keep_up()).indexed_count == 1
        assert (await model.keep_up()).indexed_count == 0

    plan = str(
        await model.select(
            "EXPLAIN (ANALYZE, BUFFERS OFF) SELECT * FROM messages "
            f"WHERE chunk = 1 AND log_offset = {log.offsets[9_000]}"
        )
    )
    assert "Bitmap Index Scan on messages_1_by_offset" in plan
    read = re.search(r"Heap Blocks: lossy=(\d+)", plan)
    assert read is not None
    assert int(read[1]) <= 32, plan  # of about 300 pages
