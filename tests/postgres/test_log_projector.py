"""A broker's log followed into rows: every record once, whatever happens between two steps."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection
from structlog.testing import capture_logs

import eruca
from eruca.contract.limits import WAIT_SECONDS_MAX
from eruca.contract.records import DamagedRecordError
from eruca.core.messages.log_block import LogBlock
from eruca_broker.app import create_app as create_broker
from eruca_postgres import log_projector
from eruca_postgres.claims import ClaimKeeper
from eruca_postgres.database import Database
from eruca_postgres.log_projector import LogProjector
from eruca_postgres.positions import delete_position, read_positions
from support.clocks import ManualClock
from support.detour import client_by
from support.http_peers import answering, peer
from support.in_process_cluster import InProcessCluster, in_process_cluster, small_broker
from support.services import serving
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio
BROKER = "broker-a"
HOLD_SECONDS = WAIT_SECONDS_MAX  # so that a read without news takes longer than any pause
SMALL = 512  # bytes: a few records in a block


class Offsets:
    """A projection: the log offset of every record, each of which the table takes once."""

    def __init__(self) -> None:
        self.fails = False
        self.damaged = 0  # the number of the block that is to count as such
        self.prepared = 0
        self.forgotten = 0
        self.committed = 0

    def prepare(self, block: LogBlock) -> list[int]:
        self.prepared += 1
        if self.prepared == self.damaged:
            raise DamagedRecordError("by chance")
        return [record.log_offset for record in block.records()]

    async def fold_block(
        self, connection: AsyncConnection, block: LogBlock, offsets: list[int]
    ) -> Callable[[], None] | None:
        for offset in offsets:
            await connection.execute(text("INSERT INTO things VALUES (:id)"), {"id": offset})
        if self.fails:
            raise RuntimeError("in mid-transaction")

        def count() -> None:
            self.committed += len(offsets)

        return count

    async def forget(self, connection: AsyncConnection, broker_name: str) -> bool:
        self.forgotten += 1
        await connection.execute(text("DELETE FROM things"))
        return False


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


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[eruca.AsyncClient]:
    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        yield client


async def send(client: eruca.AsyncClient, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_many([eruca.Message("orders", str(n)) for n in range(count)])


@asynccontextmanager
async def claimed(database: Database, holder: str = "one") -> AsyncIterator[ClaimKeeper]:
    keeper = ClaimKeeper(database, holder, seconds=600, clock=ManualClock())
    await keeper.step([BROKER])
    yield keeper
    await keeper.leave()


def projector_of(
    database: Database,
    client: eruca.AsyncClient,
    keeper: ClaimKeeper,
    projection: Offsets,
) -> LogProjector:
    return LogProjector(
        database,
        client,
        BROKER,
        claim=lambda: keeper.held.get(BROKER),
        projection=projection,
        read_bytes=SMALL,
    )


@asynccontextmanager
async def broker_on(store: Path, cluster: InProcessCluster) -> AsyncIterator[eruca.AsyncClient]:
    """Run the broker in place of the cluster's own, at another port; yield a new client."""
    await cluster.stop_broker(BROKER)
    settings = small_broker(BROKER, cluster.namesrv_urls, store)
    async with (
        serving(create_broker(settings), settings) as (_, (host, port)),
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        url = f"http://{host}:{port}"
        await until_told(
            client.admin.brokers,
            lambda groups: any(
                url in its.urls.values() for group in groups for its in group.brokers
            ),
        )
        yield client


async def rows(database: Database) -> list[int]:
    async with database.transaction() as connection:
        return list(await connection.scalars(text("SELECT id FROM things ORDER BY id")))


async def offsets_in_log(client: eruca.AsyncClient) -> list[int]:
    end = (await client.admin.broker_status(BROKER)).log.max_offset
    offsets: list[int] = []
    async with client.log_follower(BROKER) as follower:
        while follower.next_offset != end:
            offsets += [record.log_offset for record in await follower.read()]
    return offsets


async def read_to_the_end(projector: LogProjector, client: eruca.AsyncClient) -> None:
    end = (await client.admin.broker_status(BROKER)).log.max_offset
    while projector.log_offset != end:
        await projector.step()


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


async def test_a_position_that_was_set_back_is_noticed(
    database: Database, client: eruca.AsyncClient
) -> None:
    await send(client, 20)
    async with claimed(database) as keeper:
        projector = projector_of(database, client, keeper, Offsets())
        await read_to_the_end(projector, client)
        async with database.transaction() as connection:  # as somebody does who wants it anew
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


async def test_a_log_that_does_not_reach_the_position_is_read_anew(
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


async def test_what_is_forgotten_in_pieces_is_read_anew_after_the_last_of_them(
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


def copy_store(directory: Path) -> None:
    """Copy the files of a broker at work, but for those that are about to get their name."""
    shutil.copytree(directory / BROKER, directory / "copy", ignore=shutil.ignore_patterns("*.new"))


@pytest.mark.parametrize("is_opened_again", [False, True])
@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_broker_that_lost_the_end_of_its_log_is_read_anew_and_another_read_on(
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


async def test_rule_12_a_position_of_an_epoch_that_the_log_does_not_have_is_read_anew(
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
