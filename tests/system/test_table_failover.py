"""An export to a table goes on at the next master: no row is lost or doubled."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from support.command_line import ERUCA
from support.processes import clean_environment
from support.tables import LocalTable
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

GROUP = "broker-a"
MESSAGES = 4_000
BATCH_ROWS = 100
SETTINGS = {
    "ERUCA_BROKER_SEGMENT_BYTES": str(4 * 1024**2),
    "ERUCA_NAMESRV_SETTLE_SECONDS": "0",
}


async def started(cluster: LocalCluster, table: LocalTable) -> asyncio.subprocess.Process:
    options = [f"--table-option={name}={value}" for name, value in table.options.items()]
    return await asyncio.create_subprocess_exec(
        *(str(ERUCA), "export", "orders", "--to", table.target, *options),
        *("--query", cluster.query_urls[0], "--rows-per-batch", str(BATCH_ROWS)),
        env={**clean_environment(), "ERUCA_NAMESRV_URLS": ";".join(cluster.namesrv_urls)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def sent(client: eruca.AsyncClient, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_many([eruca.Message("orders", b"order %d" % n) for n in range(count)])


async def stored(client: eruca.AsyncClient) -> list[tuple[str, str, int, int]]:
    """Return the place of each message."""
    queues = await client.admin.queues("orders")
    return sorted(
        ("orders", queue.broker_name, queue.queue_id, offset)
        for queue, held in queues.items()
        for offset in range(held.max_offset)
    )


def epochs(table: LocalTable) -> list[int]:
    """Return the epochs in the records of batches, in order."""
    found = [
        json.loads(entry["eruca.brokers"])[GROUP]["epoch"]
        for entry in table.delta().history()
        if "eruca.brokers" in entry
    ]
    return found[::-1]


async def test_a_master_is_killed_between_batches(tmp_path: Path) -> None:
    table = LocalTable("delta", tmp_path)
    log = tmp_path / "table" / "_delta_log"
    async with (
        LocalCluster(
            replicas=2, namesrvs=1, controllers=1, queries=1, settings=SETTINGS, restarts=False
        ) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await until_told(
            cluster.groups, lambda groups: GROUP in groups and len(groups[GROUP].in_sync) == 2
        )
        await client.admin.create_topic("orders", queue_count=2)
        await sent(client, MESSAGES)
        former = (await cluster.masters())[GROUP]

        export = await started(cluster, table)
        await until(lambda: len(list(log.glob("*.json"))) > 3)
        assert export.returncode is None
        await cluster.kill(former)
        said, _ = await export.communicate()

        assert export.returncode == 0, said.decode()
        assert table.commits() == MESSAGES // BATCH_ROWS
        await until_told(cluster.masters, lambda masters: masters.get(GROUP, former) != former)
        await sent(client, 150)
        again = await started(cluster, table)
        said, _ = await again.communicate()

        assert again.returncode == 0, said.decode()
        assert table.offsets() == await stored(client)
    assert epochs(table)[-1] > epochs(table)[0] > 0
