"""Logs whose beginning is only in a tier: read from there, or from the broker's disk on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import eruca
from eruca_broker.app import create_app as create_broker
from eruca_broker.processors.status import Status
from eruca_postgres.database import Database
from eruca_postgres.log_projector import LogProjector
from support.brokers import broker_of
from support.in_process_cluster import in_process_cluster, small_broker
from support.projected_logs import (
    BROKER,
    Offsets,
    claimed,
    offsets_in_log,
    read_to_the_end,
    rows,
)
from support.services import serving
from support.tiers import brought_up, delete_local
from support.waiting import until_told

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("begins_on_disk", [False, True])
async def test_a_projection_begins_with_the_log_or_with_the_brokers_disk(
    database: Database, tmp_path: Path, *, begins_on_disk: bool
) -> None:
    async with in_process_cluster(tmp_path, brokers=0) as cluster:
        settings = small_broker(
            BROKER,
            cluster.namesrv_urls,
            tmp_path / "tiered",
            segment_bytes=64 * 1024,
            tier_url=str(tmp_path / "tier"),
        )
        app = create_broker(settings)
        async with (
            serving(app, settings),
            eruca.AsyncClient(cluster.namesrv_urls) as client,
            claimed(database) as keeper,
        ):
            await until_told(client.admin.brokers, lambda groups: bool(groups))
            async with client.producer() as producer:
                for _ in range(30):
                    await producer.send(eruca.Message("orders", os.urandom(8_000)))
            store, tiering = broker_of(app).store, app.parts[Status].tiering
            assert tiering is not None
            await store.upkeep.flush()
            await brought_up(tiering)
            await delete_local(store, tiering)
            first = store.log_min_offset
            assert first > 0

            projector = LogProjector(
                database,
                client,
                BROKER,
                claim=lambda: keeper.held.get(BROKER),
                projection=Offsets(),
                begins_on_disk=begins_on_disk,
            )
            await read_to_the_end(projector, client)
            projector.begin_stop()

            all_of_them = await offsets_in_log(client)
            assert all_of_them[0] == 0
            expected = [one for one in all_of_them if not begins_on_disk or one >= first]
            assert await rows(database) == expected
