"""A cluster that listens on every address is used over both networks, and found by what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

import eruca
from eruca.contract.names import CHECKERS_NAMESPACE, QUERY_SERVICES_NAMESPACE
from eruca_deploy.cluster import LocalCluster
from support.command_line import Eruca

pytestmark = pytest.mark.anyio

EVERYWHERE = {
    f"ERUCA_{service}_HOST": "::" for service in ("NAMESRV", "BROKER", "QUERY", "TXN_CHECKER")
} | {"ERUCA_AUTH": "open"}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(queries=1, txn_checkers=1, settings=EVERYWHERE) as cluster:
        yield cluster


async def test_every_service_is_reached_over_both_networks_and_where_it_says(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    [namesrv] = cluster.namesrv_urls
    [query] = cluster.query_urls
    async with httpx.AsyncClient() as http:
        for service in cluster.plan.services:
            for host in ("127.0.0.1", "[::1]"):
                answer = await http.get(f"http://{host}:{service.port}/readyz")
                assert answer.status_code == 200, service.name
        for namespace in (CHECKERS_NAMESPACE, QUERY_SERVICES_NAMESPACE):
            table = (await http.get(f"{namesrv}/v1/kv/{namespace}")).json()["entries"]
            [url] = table.values()
            assert (await http.get(f"{url}/readyz")).status_code == 200
    command = Eruca(namesrv)

    assert namesrv.startswith("http://[::1]:")
    async with eruca.AsyncClient(namesrv) as client, client.producer() as producer:
        for number in range(3):
            await producer.send(eruca.Message("orders", str(number)))
        [message] = await client.pull_consumer(topics="orders").poll(count_max=1, wait_seconds=20)
        texts = [f"in a batch, {number}" for number in range(3)]
        batch = [
            eruca.Message("batches", text, message_id=f"id-{text[-1]}", sharding_key="one queue")
            for text in texts
        ]
        for is_replay in (False, True):
            async with client.producer(idempotent=True) as sender:
                results = await sender.send_many(batch)
            assert [result.replayed for result in results] == [is_replay] * 3
            for text, result in zip(texts, results, strict=True):
                found = await client.admin.message_by_offset_id(result.offset_message_id)
                body = found.message.body
                assert body is not None
                assert body.text == text
    assert message.born_host.ip == "::1"
    assert message.store_host.ip == "::1"
    doctor = await asyncio.to_thread(command, "doctor")
    assert "fault" not in doctor.stdout

    command.environment["ERUCA_QUERY_URLS"] = query  # its workers write to a lent IPv6 socket
    await asyncio.to_thread(command, "export", "orders", "--to", str(tmp_path / "orders.ndjson"))
    assert (tmp_path / "orders.ndjson").read_text().count("\n") == 3
