"""A checker's requests reach the right broker, at whatever address it is now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from eruca import AsyncClient
from eruca.contract.errors import InternalError, TransactionNotFoundError, TransportError
from eruca.contract.routes import BrokerGroup
from eruca_broker.app import create_app
from eruca_txn_checker.checking.broker_calls import BrokerCalls
from support.checkers import begin, create_topic
from support.detour import client_by
from support.http_peers import answering, peer
from support.in_process_cluster import in_process_cluster, small_broker
from support.patience import PATIENCE_SECONDS
from support.services import serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio

NAMES = ["broker-a", "broker-b"]


async def test_a_broker_at_the_address_of_another_does_not_speak_for_it(tmp_path: Path) -> None:
    async with (
        in_process_cluster(tmp_path, brokers=0) as cluster,
        AsyncClient(cluster.namesrv_urls) as client,
    ):
        calls = BrokerCalls(client, timeout=PATIENCE_SECONDS)
        async with _brokers(tmp_path, cluster.namesrv_urls, [0, 0]) as ports:
            await until_told(client.admin.brokers, _are_both)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports[0]}") as broker:
                await create_topic(broker)
                transaction_id = await begin(broker)
            await calls.get("broker-a", transaction_id)
        async with _brokers(tmp_path, cluster.namesrv_urls, ports[::-1]):
            await until_told(client.admin.brokers, _are_both)
            with pytest.raises(TransportError, match="found broker-b"):
                await calls.get("broker-a", transaction_id)
            found = await calls.get("broker-a", transaction_id)

            assert (found.broker_name, found.state) == ("broker-a", "pending")
            with pytest.raises(TransactionNotFoundError):
                await calls.get("broker-b", transaction_id)


async def test_a_defect_of_what_has_a_brokers_old_address_is_not_asked_for_again(
    tmp_path: Path,
) -> None:
    defect = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"
    ways: dict[str, str] = {}
    async with (
        in_process_cluster(tmp_path, brokers=0) as cluster,
        client_by(ways, cluster.namesrv_urls) as client,
        peer(answering(defect, defect)) as stranger,
    ):
        calls = BrokerCalls(client, timeout=PATIENCE_SECONDS)
        async with _brokers(tmp_path, cluster.namesrv_urls, [0, 0]) as ports:
            await until_told(client.admin.brokers, _are_both)
            await calls.status("broker-a")
        ways |= {f"http://127.0.0.1:{port}": stranger.url for port in ports}
        async with _brokers(tmp_path, cluster.namesrv_urls, [0, 0]):
            await until_told(client.admin.brokers, _are_both)
            with pytest.raises(InternalError):
                await calls.status("broker-a")

            assert (await calls.status("broker-a")).broker_name == "broker-a"


def _are_both(found: list[BrokerGroup]) -> bool:
    return len(found) == len(NAMES)


@asynccontextmanager
async def _brokers(
    directory: Path, namesrv_urls: list[str], ports: list[int]
) -> AsyncIterator[list[int]]:
    """Let both brokers run at *ports*, 0 being any; yield where they are."""
    async with AsyncExitStack() as stack:
        found: list[int] = []
        for name, port in zip(NAMES, ports, strict=True):
            settings = small_broker(name, namesrv_urls, directory / name)
            app = create_app(settings)
            _, address = await stack.enter_async_context(serving(app, settings, port=port))
            found.append(address[1])
        yield found
