"""The audit of a whole cluster, a standby's records too: find, follow, search and export it."""

from __future__ import annotations

import json
from pathlib import Path

import anyio.to_thread
import httpx
import pytest

import eruca
from eruca.contract.names import AUDIT_TOPIC
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.command_line import Eruca
from support.rules import bearer, key_of, write_rules
from support.waiting import until_told

pytestmark = pytest.mark.anyio

SERVICES = "service:all"
ANN = "user:ann"
SHOP = "user:shop"
AUDITOR = "user:auditor"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_audit_of_a_cluster_is_found_searched_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = ("broker", "controller", "name-server", "query-service")
    rules = write_rules(
        tmp_path / "rules.toml",
        roles={"administrator": [ANN], "auditor": [AUDITOR]} | {n: [SERVICES] for n in services},
        principals=[SHOP],
    )
    monkeypatch.setenv("ERUCA_API_KEY", key_of(SERVICES))
    monkeypatch.setenv("ERUCA_AUTH_FILE", str(rules))
    async with LocalCluster(replicas=2, queries=1, settings=dict(SMALL_STORE)) as cluster:
        urls = ";".join(cluster.namesrv_urls)
        monkeypatch.setenv("ERUCA_API_KEY", key_of(ANN))
        async with eruca.AsyncClient(urls) as client:
            await client.admin.create_topic("orders", queue_count=1)
            [group] = await client.admin.brokers()
        brokers = [broker.urls["default"] for broker in group.brokers]
        async with httpx.AsyncClient(timeout=60) as http:
            for url in [*brokers, *cluster.namesrv_urls, *cluster.query_urls]:
                refused = await http.get(f"{url}/metrics", headers=bearer(SHOP))
                assert refused.status_code == 403, url

        monkeypatch.setenv("ERUCA_API_KEY", key_of(AUDITOR))
        command = Eruca(urls)

        async def refusals() -> list[dict[str, str]]:
            found: list[dict[str, str]] = await anyio.to_thread.run_sync(
                lambda: command.json("audit", "find", "--principal", SHOP, "--event", "refusal")
            )
            return found

        wanted = len(brokers) + len(cluster.namesrv_urls) + len(cluster.query_urls)
        found = await until_told(refusals, lambda records: len(records) >= wanted)
        assert len({record["service"] for record in found}) == wanted
        assert {record["operation"] for record in found} == {"metrics"}
        assert all(record["resource"] == "cluster" for record in found)

        [act] = await anyio.to_thread.run_sync(
            lambda: command.json("audit", "find", "--operation", "putTopic", "--event", "act")
        )
        assert (act["principal"], act["resource"], act["status"]) == (ANN, "topic:orders", 201)
        table = await anyio.to_thread.run_sync(
            lambda: command("audit", "find", "--decision", "allowed", "--since", "1h").stdout
        )
        assert "topic:orders" in table
        followed = await anyio.to_thread.run_sync(
            lambda: (
                command(
                    "-ojson", "audit", "tail", "--start=earliest", "--operation=putTopic", "-n1"
                ).stdout
            )
        )
        assert json.loads(followed)["operation"] == "putTopic"

        async with eruca.AsyncClient(urls) as client:
            page = await client.query.find(AUDIT_TOPIC, key=ANN, bodies=True)
        operations = [json.loads(message.octets())["operation"] for message in page.messages]
        assert "putTopic" in operations
        exported = tmp_path / "audit.ndjson"
        await anyio.to_thread.run_sync(
            lambda: command("export", AUDIT_TOPIC, "--to", str(exported))
        )
        assert '"putTopic"' in exported.read_text().replace("\\", "")

        monkeypatch.setenv("ERUCA_API_KEY", key_of(ANN))
        listed = ("auth", "key", "list", "--used", "--file", str(rules))
        keys = await anyio.to_thread.run_sync(lambda: command.json(*listed))
        used = {key["principal"]: key["last_used_at"] for key in keys}
        assert all(used[principal] for principal in (ANN, SHOP, AUDITOR, SERVICES))
        assert used[SHOP] <= used[AUDITOR] <= used[ANN]
        monkeypatch.setenv("ERUCA_API_KEY", key_of(SHOP))
        unsaid = await anyio.to_thread.run_sync(lambda: command(*listed, code=1).output)
        assert "does not say it" in unsaid
        assert "not known" in unsaid
