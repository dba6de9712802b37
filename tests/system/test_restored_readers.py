"""A broker that is restored from a backup, and the services that had read further in its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import httpx
import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.checkers import TOPIC, begin, create_topic
from support.command_line import Eruca
from support.postgres import reachable_directory
from support.waiting import until_told

pytestmark = pytest.mark.anyio

BROKER: Final = "broker-a"
SETTINGS: Final = {**SMALL_STORE, "ERUCA_TXN_CHECKER_TIMEOUT_SECONDS": "3600"}


@pytest.fixture
def directory() -> Iterator[Path]:
    with reachable_directory() as directory:
        yield directory


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


async def test_services_forget_what_a_restored_log_does_not_have(
    directory: Path, client: httpx.AsyncClient
) -> None:
    async with LocalCluster(
        queries=1, txn_checkers=1, data_dir=directory, settings=SETTINGS, restarts=False
    ) as cluster:
        [query], [checker] = cluster.query_urls, cluster.txn_checker_urls
        [service] = cluster.plan.brokers
        eruca_command, place = Eruca(cluster.namesrv_urls[0]), f"--repository={directory / 'copy'}"

        async def send(*bodies: str) -> list[str]:
            async with eruca.AsyncClient(cluster.namesrv_urls) as sdk, sdk.producer() as producer:
                sent = await producer.send_many([eruca.Message(TOPIC, body) for body in bodies])
            return [receipt.message_id for receipt in sent]

        async def begun() -> str:
            async with httpx.AsyncClient(base_url=service.url, trust_env=False) as broker:
                return await begin(broker)

        async def read(url: str, path: str) -> dict[str, Any]:
            answer = await client.get(f"{url}/v1{path}")
            return answer.json() if answer.status_code == httpx.codes.OK else {}

        async def found() -> tuple[set[str], set[str]]:
            messages = await read(query, f"/messages?topic={TOPIC}&limit=100")
            transactions = await read(checker, "/transactions")
            return (
                {one["message_id"] for one in messages.get("messages", [])},
                {one["transaction_id"] for one in transactions.get("transactions", [])},
            )

        async with httpx.AsyncClient(base_url=service.url, trust_env=False) as broker:
            await create_topic(broker)
        kept, kept_open = await send("kept", "kept, too"), await begun()
        await anyio.to_thread.run_sync(eruca_command, "backup", "create", BROKER, place)
        lost, lost_open = await send("lost"), await begun()
        await until_told(found, lambda its: its == ({*kept, *lost}, {kept_open, lost_open}))

        await cluster.stop_one(BROKER)
        service.directory.rename(directory / "former")
        to = f"--to={service.directory}"
        await anyio.to_thread.run_sync(eruca_command, "restore", BROKER, place, to)
        await cluster.restart(BROKER)
        brokers = f"{cluster.namesrv_urls[0]}/v1/brokers"
        await until_told(lambda: client.get(brokers), lambda answer: service.url in answer.text)
        later, later_open = await send("later"), await begun()

        await until_told(found, lambda its: its == ({*kept, *later}, {kept_open, later_open}))
        assert (await client.get(f"{query}/v1/messages/{lost[0]}")).status_code == 404
        assert (await client.get(f"{checker}/v1/transactions/{lost_open}")).status_code == 404
