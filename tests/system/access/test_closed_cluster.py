"""A whole cluster with rules: services prove themselves to each other, and so do users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

import eruca
from eruca.contract.errors import ForbiddenError, UnauthenticatedError
from eruca.contract.names import ORDERED_TOPICS_NAMESPACE, QUERY_SERVICES_NAMESPACE
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.printed_secrets import check_says_none
from support.rules import bearer, key_of, write_rules

pytestmark = pytest.mark.anyio

SERVICES = "service:all"
SHOP = "user:shop"
ANALYST = "user:analyst"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_services_and_users_of_a_closed_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = write_rules(
        tmp_path / "rules.toml",
        {"allow": ["produce", "consume"], "on": ["topic:orders", "group:g"], "to": [SHOP]},
        {"allow": ["query"], "on": ["topic:returns"], "to": [ANALYST]},
        roles={
            "administrator": [SERVICES],  # it plays the operator, too
            "broker": [SERVICES],
            "query-service": [SERVICES],
            "transaction-checker": [SERVICES],
        },
    )
    monkeypatch.setenv("ERUCA_API_KEY", key_of(SERVICES))
    monkeypatch.setenv("ERUCA_AUTH_FILE", str(rules))
    async with LocalCluster(queries=1, txn_checkers=1) as cluster:
        urls = ";".join(cluster.namesrv_urls)
        async with eruca.AsyncClient(urls) as operator:
            await operator.admin.create_topic("orders", queue_count=1)
            await operator.admin.create_topic("returns", queue_count=1)
        async with (
            eruca.AsyncClient(urls, credentials=eruca.ApiKey(key_of(SHOP))) as client,
            client.producer() as producer,
        ):
            receipt = await producer.send(eruca.Message("orders", b"a"))
            with pytest.raises(ForbiddenError) as refused:
                await client.query.message(receipt.message_id)
            assert refused.value.fix == f"grant query on topic:orders to {SHOP}"
        async with eruca.AsyncClient(urls) as operator:
            found = await operator.query.message(receipt.message_id)
            assert found.message.topic == "orders"
        [query] = cluster.query_urls
        async with httpx.AsyncClient() as http:
            hidden = await http.get(
                f"{query}/v1/messages/{receipt.message_id}", headers=bearer(ANALYST)
            )
            assert (hidden.status_code, hidden.json()["code"]) == (404, "message-not-found")
            exported = await http.get(f"{query}/v1/exports/topics", headers=bearer(ANALYST))
            assert exported.json()["topics"] == ["returns"]
            exported = await http.get(f"{query}/v1/exports/topics", headers=bearer(SHOP))
            assert exported.json()["topics"] == []
            assert (await http.get(f"{query}/v1/status")).status_code == 401
            page = await http.get(f"{query}/docs")
            assert (page.status_code, "broker-a" in page.text) == (200, False)
            [namesrv] = cluster.namesrv_urls
            addresses = await http.get(
                f"{namesrv}/v1/kv/{QUERY_SERVICES_NAMESPACE}", headers=bearer(SHOP)
            )
            assert list(addresses.json()["entries"].values()) == [query]
            for target in (ORDERED_TOPICS_NAMESPACE, f"{ORDERED_TOPICS_NAMESPACE}/broker-a"):
                topics = await http.get(f"{namesrv}/v1/kv/{target}", headers=bearer(SHOP))
                assert topics.json()["fix"] == f"grant query or administer on cluster to {SHOP}"
        await nothing_says_a_secret(
            [*cluster.namesrv_urls, *cluster.broker_urls.values(), *cluster.query_urls]
        )
        monkeypatch.delenv("ERUCA_API_KEY")
        async with eruca.AsyncClient(urls) as nobody:
            with pytest.raises(UnauthenticatedError):
                await nobody.admin.list_topics()


async def nothing_says_a_secret(urls: list[str]) -> None:
    """Search what services say of themselves, and what everybody sees of processes."""
    async with httpx.AsyncClient(headers=bearer(SERVICES)) as http:
        for url in urls:
            for target in ("/metrics", "/v1/status", "/openapi.json", "/healthz", "/readyz"):
                answer = await http.get(url + target)
                assert answer.status_code == 200, url + target
                check_says_none(answer.text, url + target)
    assert not any(key_of(SERVICES).encode() in line for line in command_lines())


def command_lines() -> Iterator[bytes]:
    """Yield the command lines of all processes of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            yield path.read_bytes()


async def test_bytes_of_an_export_count_against_the_quota_and_the_export_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = write_rules(
        tmp_path / "rules.toml",
        {"allow": ["query"], "on": ["topic:orders"], "to": [ANALYST]},
        roles={"administrator": [SERVICES], "broker": [SERVICES], "query-service": [SERVICES]},
        more=f'[[quotas]]\nto = ["{ANALYST}"]\nbytes_out_per_second = 10\n',
    )
    monkeypatch.setenv("ERUCA_API_KEY", key_of(SERVICES))
    monkeypatch.setenv("ERUCA_AUTH_FILE", str(rules))
    async with LocalCluster(queries=1, settings=dict(SMALL_STORE)) as cluster:
        async with (
            eruca.AsyncClient(cluster.namesrv_urls) as operator,
            operator.producer() as producer,
        ):
            await operator.admin.create_topic("orders", queue_count=1)
            await producer.send(eruca.Message("orders", b"a" * 100_000))
        [query] = cluster.query_urls
        target = f"{query}/v1/exports/orders/records?range=broker-a/0:0-1"
        headers = bearer(ANALYST) | {"accept": "application/x-ndjson"}
        async with httpx.AsyncClient(timeout=60) as http:
            whole = await http.get(target, headers=headers)
            assert whole.status_code == 200, whole.text
            assert len(whole.content) > 100_000
            refused = await http.get(target, headers=headers)
            assert (refused.status_code, refused.json()["quota"]) == (429, "bytes_out_per_second")
            assert int(refused.headers["retry-after"]) > 5_000  # the rows that a worker has sent
