"""A projector over the log of a real broker, and the offsets that it stores."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

import eruca
from eruca.contract.limits import WAIT_SECONDS_MAX
from eruca.contract.records import DamagedRecordError
from eruca.core.messages.log_block import LogBlock
from eruca_broker.app import create_app as create_broker
from eruca_postgres.claims import ClaimKeeper
from eruca_postgres.database import Database
from eruca_postgres.log_projector import LogProjector
from support.clocks import ManualClock
from support.in_process_cluster import InProcessCluster, small_broker
from support.services import serving
from support.waiting import until_told

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
    *,
    read_bytes: int = SMALL,
) -> LogProjector:
    return LogProjector(
        database,
        client,
        BROKER,
        claim=lambda: keeper.held.get(BROKER),
        projection=projection,
        read_bytes=read_bytes,
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


def copy_store(directory: Path) -> None:
    """Copy the files of a broker at work, but for those that are about to get their name."""
    shutil.copytree(directory / BROKER, directory / "copy", ignore=shutil.ignore_patterns("*.new"))
