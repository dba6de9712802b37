"""Positions that the log does not have: the projector notices, and reads again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

import eruca
from eruca_postgres import log_projector
from eruca_postgres.database import Database
from eruca_postgres.positions import delete_position, read_positions
from support.in_process_cluster import in_process_cluster
from support.projected_logs import (
    BROKER,
    HOLD_SECONDS,
    Offsets,
    broker_on,
    claimed,
    copy_store,
    offsets_in_log,
    projector_of,
    read_to_the_end,
    rows,
    send,
)

pytestmark = pytest.mark.anyio


class ForgottenInPieces(Offsets):
    """The same, forgotten a few at a time; the second time fails."""

    PIECE = 10

    async def forget(self, connection: AsyncConnection, broker_name: str) -> bool:
        self.forgotten += 1
        if self.forgotten == 2:
            raise RuntimeError("between two pieces")
        some = text("DELETE FROM things WHERE id IN (SELECT id FROM things LIMIT :piece)")
        deleted = await connection.execute(some, {"piece": self.PIECE})
        return deleted.rowcount == self.PIECE


async def test_a_position_that_was_set_back_is_noticed(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 20)
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, Offsets())
        await read_to_the_end(projector, client)
        async with database.transaction() as connection:  # as an operator does to have it rebuilt
            await connection.execute(text("DELETE FROM things"))
            await delete_position(connection, BROKER)
        await send(client, 1)
        await projector.step()
        assert await rows(database) == []

        await read_to_the_end(projector, client)
        projector.begin_stop()

    assert await rows(database) == await offsets_in_log(client)


async def test_a_position_that_was_set_back_is_noticed_though_nothing_comes(
    database: Database, client: eruca.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_projector, "HOLD_SECONDS", HOLD_SECONDS)
    await send(client, 20)
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, Offsets())
        await read_to_the_end(projector, client)
        waiting = asyncio.create_task(projector.step())
        async with database.transaction() as connection:
            await connection.execute(text("DELETE FROM things"))
            await delete_position(connection, BROKER)
        async with asyncio.timeout(HOLD_SECONDS - 1):
            await waiting

        assert projector.log_offset is None
        await read_to_the_end(projector, client)
        projector.begin_stop()

    assert await rows(database) == await offsets_in_log(client)


async def test_a_log_that_does_not_reach_the_position_is_read_again(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 20)
    projection = Offsets()
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, projection)
        await read_to_the_end(projector, client)
        projector.begin_stop()
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE log_positions SET log_offset = log_offset + 7"))
        projector = projector_of(database, client, keeper, projection)
        await projector.step()
        assert (projection.forgotten, await rows(database)) == (1, [])
        async with database.transaction() as connection:
            assert await read_positions(connection) == {}

        await read_to_the_end(projector, client)
        projector.begin_stop()

    assert await rows(database) == await offsets_in_log(client)


async def test_what_is_forgotten_in_pieces_is_read_again_after_the_last_of_them(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 20)
    projection = ForgottenInPieces()
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, projection)
        await read_to_the_end(projector, client)
        projector.begin_stop()
        before = await rows(database)
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE log_positions SET log_offset = log_offset + 7"))
        projector = projector_of(database, client, keeper, projection)
        with pytest.raises(RuntimeError, match="between two pieces"):
            await projector.step()
        assert len(await rows(database)) == len(before) - projection.PIECE
        projector.begin_stop()

        projector = projector_of(database, client, keeper, projection)
        await read_to_the_end(projector, client)
        projector.begin_stop()

    assert projection.forgotten > 3
    assert await rows(database) == await offsets_in_log(client)


@pytest.mark.parametrize("is_opened_again", [False, True])
@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_broker_that_lost_the_end_of_its_log_is_read_again_and_another_read_on(
    database: Database, tmp_path: Path, *, is_cut: bool, is_opened_again: bool
) -> None:
    projection = Offsets()
    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
        claimed(database) as keeper,
    ):
        await send(client, 5)
        if is_cut:
            copy_store(tmp_path)
        await send(client, 20)
        projector = projector_of(database, client, keeper, projection)
        await read_to_the_end(projector, client)
        position = projector.log_offset
        if not is_cut:
            copy_store(tmp_path)
        async with broker_on(tmp_path / "copy", cluster) as another:
            await send(another, 30)
            if is_opened_again:
                projector.begin_stop()
                projector = projector_of(database, client, keeper, projection)
            await read_to_the_end(projector, another)
            projector.begin_stop()
            expected = await offsets_in_log(another)

    assert position in expected
    assert projection.forgotten == (1 if is_cut else 0)
    assert await rows(database) == expected


async def test_rule_12_a_position_of_an_epoch_that_the_log_does_not_have_is_read_again(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 5)
    projection = Offsets()
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, projection)
        while projection.committed < 5:
            await projector.step()
        projector.begin_stop()
        await projector.step()
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE log_positions SET epoch = 7"))

        again = projector_of(database, client, keeper, projection)
        while not projection.forgotten:
            await again.step()
        read_before = projection.committed
        while projection.committed < read_before + 5:
            await again.step()
        again.begin_stop()
        await again.step()

        async with database.transaction() as connection:
            position = (await read_positions(connection))[BROKER]
    assert projection.forgotten == 1
    assert position.epoch is None
