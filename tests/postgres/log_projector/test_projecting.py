"""The log projector: each record becomes a row once, also after failures and take-overs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import eruca
from eruca_postgres import log_projector
from eruca_postgres.database import Database
from support.detour import client_by
from support.http_peers import answering, peer
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
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio


async def test_every_record_of_the_log_becomes_a_row(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 40)
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, Offsets())
        await read_to_the_end(projector, client)
        await send(client, 10)
        await read_to_the_end(projector, client)
        projector.begin_stop()

    assert await rows(database) == await offsets_in_log(client)


async def test_records_that_come_while_it_lingers_are_folded_in_one_transaction(
    database: Database, client: eruca.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = asyncio.Event()

    async def linger(seconds: float) -> None:
        assert seconds == log_projector.LINGER_SECONDS
        await is_over.wait()

    monkeypatch.setattr(log_projector, "_linger", linger)
    projection = Offsets()
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, projection, read_bytes=65_536)
        await read_to_the_end(projector, client)
        before = projection.prepared
        for _ in range(3):
            await send(client, 1)
        is_over.set()
        await projector.step()
        projector.begin_stop()

    assert projection.prepared == before + 1
    assert await rows(database) == await offsets_in_log(client)


async def test_it_does_not_linger_before_the_end_of_the_log(
    database: Database, client: eruca.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lingered = []

    async def linger(seconds: float) -> None:
        lingered.append(seconds)

    monkeypatch.setattr(log_projector, "_linger", linger)
    projection = Offsets()
    await send(client, 40)
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, projection)
        await read_to_the_end(projector, client)
        projector.begin_stop()

    assert projection.prepared > 5
    assert len(lingered) == 1


async def test_a_stretch_that_is_not_sound_is_told_and_read_again(
    database: Database, client: eruca.AsyncClient
) -> None:
    """It may be the connection's fault; rows wait for it, and nothing behind it is folded."""
    projection = Offsets()
    projection.damaged = 5
    await send(client, 40)
    faults = set()
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, projection)
        end = (await client.admin.broker_status(BROKER)).log.max_offset
        while projector.log_offset != end:
            await projector.step()
            faults.add(projector.fault)
        projector.begin_stop()

    assert await rows(database) == await offsets_in_log(client)
    [fault] = faults - {None}
    assert fault is not None
    assert "not a stretch of a log: by chance" in fault


async def test_what_fails_in_mid_transaction_is_folded_again(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 40)
    projection = Offsets()
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, projection)
        await projector.step()
        projection.fails = True
        with pytest.raises(RuntimeError):
            await projector.step()
        projection.fails = False
        await read_to_the_end(projector, client)
        projector.begin_stop()

    expected = await offsets_in_log(client)
    assert await rows(database) == expected
    assert projection.committed == len(expected)


async def test_another_instance_goes_on_where_the_rows_end(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 40)
    async with claimed(database) as keeper:
        first = projector_of(database, client, keeper, Offsets())
        await first.step()
        await first.step()
        first.begin_stop()
    async with claimed(database, "two") as keeper:
        second = projector_of(database, client, keeper, Offsets())
        await read_to_the_end(second, client)
        second.begin_stop()

    assert await rows(database) == await offsets_in_log(client)


async def test_without_the_claim_nothing_is_written(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 5)
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, Offsets())
        await projector.step()
        before = await rows(database)
        await keeper.leave()
        await projector.step()

    assert projector.fault is not None
    assert await rows(database) == before


async def test_a_log_that_is_lost_and_found_is_told_once_each(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 5)
    async with claimed(database) as keeper:
        projection = Offsets()
        projection.damaged = 1
        projector = projector_of(database, client, keeper, projection)
        with capture_logs() as logs:
            await projector.step()
            assert projector.fault is not None
            await read_to_the_end(projector, client)
        projector.begin_stop()

    told = [line["event"] for line in logs if line.get("broker") == BROKER]
    assert told == ["log not followed", "log followed again"]


@pytest.mark.parametrize("status", [b"404 Not Found", b"500 Internal Server Error"])
async def test_a_log_is_followed_on_though_something_else_is_at_its_brokers_old_address(
    database: Database, tmp_path: Path, status: bytes
) -> None:
    foreign = b"HTTP/1.1 %s\r\ncontent-length: 0\r\n\r\n" % status
    ways: dict[str, str] = {}
    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        client_by(ways, cluster.namesrv_urls) as client,
        peer(answering(*[foreign] * 1_000)) as stranger,
        claimed(database) as keeper,
    ):
        await send(client, 5)
        projector = projector_of(database, client, keeper, Offsets())
        await read_to_the_end(projector, client)
        ways[cluster.broker_urls[BROKER]] = stranger.url
        await until_told(projector.step, lambda _: projector.fault is not None)
        assert status[:3].decode() in (projector.fault or "")

        copy_store(tmp_path)
        async with broker_on(tmp_path / "copy", cluster) as elsewhere:
            await send(elsewhere, 5)
            await read_to_the_end(projector, elsewhere)
            projector.begin_stop()

            assert projector.fault is None
            assert await rows(database) == await offsets_in_log(elsewhere)


async def test_nothing_is_forgotten_because_of_another_broker_at_the_address(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_projector, "HOLD_SECONDS", 0.5)  # what is held is held by the first
    ways: dict[str, str] = {}
    projection = Offsets()
    async with (
        in_process_cluster(tmp_path, brokers=2) as cluster,
        client_by(ways, cluster.namesrv_urls) as client,
        claimed(database) as keeper,
    ):
        # The other one's log is shorter, so it does not have the position.
        await client.admin.create_topic("orders", broker_name=BROKER)
        await send(client, 50)
        projector = projector_of(database, client, keeper, projection)
        await read_to_the_end(projector, client)
        ways[cluster.broker_urls[BROKER]] = cluster.broker_urls["broker-b"]
        await until_told(projector.step, lambda _: projector.fault or projection.forgotten)
        assert projector.fault == "expected broker broker-a at its address, found broker-b"

        ways.clear()
        await send(client, 50)
        await read_to_the_end(projector, client)
        projector.begin_stop()

        assert projection.forgotten == 0
        assert await rows(database) == await offsets_in_log(client)


async def test_a_log_is_followed_again_though_nothing_comes(
    database: Database, client: eruca.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_projector, "HOLD_SECONDS", HOLD_SECONDS)
    await send(client, 5)
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, Offsets())
        await read_to_the_end(projector, client)
        await keeper.leave()
        await projector.step()
        assert projector.fault is not None
        await keeper.step([BROKER])

        waiting = asyncio.create_task(projector.step())
        await until(lambda: projector.fault is None)

        assert not waiting.done()  # nothing has come
        projector.begin_stop()
        await waiting


async def test_a_stop_does_not_wait_for_news(
    database: Database, client: eruca.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_projector, "HOLD_SECONDS", HOLD_SECONDS)
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, Offsets())
        await read_to_the_end(projector, client)
        waiting = asyncio.create_task(projector.step())
        await asyncio.sleep(0)
        projector.begin_stop()

        async with asyncio.timeout(HOLD_SECONDS - 1):
            await waiting
