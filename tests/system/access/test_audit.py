"""The audit of real services: who did what, and who was refused, in a broker's log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca.contract.names import AUDIT_TOPIC
from eruca_access.audit.sampling import REFUSALS_PER_WINDOW
from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings
from eruca_namesrv.app import create_app as create_namesrv
from eruca_namesrv.settings import NamesrvSettings
from support.closed_brokers import answer_of
from support.rules import bearer, key_of, write_rules
from support.services import serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio

ANN: Final = "user:ann"
SHOP: Final = "user:shop"
AUDITOR: Final = "user:auditor"
NAMESRV: Final = "service:namesrv"
ROLES: Final = {"administrator": [ANN], "auditor": [AUDITOR], "name-server": [NAMESRV]}
Record = dict[str, Any]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def rules_in(tmp_path: Path, *rules: dict[str, Any]) -> Path:
    return write_rules(tmp_path / "rules.toml", *rules, roles=ROLES, principals=[SHOP])


@asynccontextmanager
async def broker_of(tmp_path: Path, **more: object) -> AsyncIterator[httpx.AsyncClient]:
    settings = BrokerSettings.model_validate(
        {
            "store_dir": tmp_path / "store",
            "segment_bytes": 16 * 1024**2,
            "ERUCA_AUTH_FILE": str(tmp_path / "rules.toml"),
            "namesrv_urls": "",
            **more,
        }
    )
    async with (
        serving(create_app(settings), settings) as (_, (host, port)),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as client,
    ):
        yield client


async def records_at(client: httpx.AsyncClient) -> list[Record]:
    answer = await client.get(
        f"/v1/topics/{AUDIT_TOPIC}/queues/0/messages",
        params={"offset": 0, "count_max": 1000, "include_system": True},
        headers=bearer(AUDITOR),
    )
    if answer.status_code == 404:
        return []  # nothing has been written yet
    assert answer.status_code == 200, answer.text
    return [message["body"]["json"] for message in answer.json()["messages"]]


async def awaited(
    client: httpx.AsyncClient, wanted: Callable[[Record], bool], count: int = 1
) -> list[Record]:
    def chosen(records: list[Record]) -> list[Record]:
        return [record for record in records if wanted(record)]

    return chosen(
        await until_told(lambda: records_at(client), lambda found: len(chosen(found)) >= count)
    )


async def test_an_act_is_recorded_with_its_status_and_its_rule(tmp_path: Path) -> None:
    rules_in(tmp_path)
    async with broker_of(tmp_path) as client:
        headers = bearer(ANN) | {"x-request-id": "made-orders"}
        made = await client.put("/v1/topics/orders", json={}, headers=headers)
        assert made.status_code == 201
        missing = await client.delete("/v1/topics/nothing", headers=bearer(ANN))
        assert missing.status_code == 404

        acts = await awaited(client, lambda r: r["event"] == "act", 2)

    put, deleted = acts
    assert put["principal"] == ANN
    assert put["credential"] == f"key:{key_of(ANN).split('_')[1]}"
    assert put["address"] == "127.0.0.1"
    assert put["operation"] == "putTopic"
    assert put["resource"] == "topic:orders"
    assert (put["decision"], put["status"]) == ("allowed", 201)
    assert put["rule"].endswith("to role:administrator")
    assert put["request_id"] == "made-orders"
    assert (deleted["operation"], deleted["status"]) == ("deleteTopic", 404)


async def test_a_credential_from_another_address_is_recorded_though_its_head_is_known(
    tmp_path: Path,
) -> None:
    sends = {"allow": ["produce"], "on": ["topic:orders"], "to": [SHOP]}
    rules_in(tmp_path, sends)
    body = b'{"body": {"text": "a"}}'
    request = (
        b"POST /v1/topics/orders/messages HTTP/1.1\r\nhost: localhost\r\n"
        b"authorization: Bearer %b\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (key_of(SHOP).encode(), len(body), body)
    )
    async with broker_of(tmp_path) as client:
        assert client.base_url.port is not None
        for address in ("127.0.0.1", "127.0.0.2"):
            reader, writer = await asyncio.open_connection(
                client.base_url.host, client.base_url.port, local_addr=(address, 0)
            )
            # Heads are known from the second request of a connection on.
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert (await answer_of(reader))[0] == 200
            for _ in range(2):
                writer.write(request)
                assert (await answer_of(reader))[0] == 201
            writer.close()
        uses = await awaited(
            client, lambda r: r["event"] == "credential_used" and r["principal"] == SHOP, 2
        )
    assert [use["address"] for use in uses] == ["127.0.0.1", "127.0.0.2"]


async def test_a_refusal_is_recorded_and_a_flood_of_them_is_counted(tmp_path: Path) -> None:
    rules_in(tmp_path)
    async with broker_of(tmp_path) as client:
        for _ in range(REFUSALS_PER_WINDOW + 5):
            refused = await client.delete("/v1/topics/orders", headers=bearer(SHOP))
            assert refused.status_code == 403
        unknown = await client.get("/v1/topics/orders", headers={"authorization": "Bearer x"})
        assert unknown.status_code == 401
        await awaited(client, lambda r: r.get("reason") == "unauthenticated")

        refusals = [r for r in await records_at(client) if r["event"] == "refusal"]

    by_shop = [r for r in refusals if r.get("principal") == SHOP]
    assert len(by_shop) == REFUSALS_PER_WINDOW
    assert by_shop[0]["resource"] == "topic:orders"
    assert (by_shop[0]["decision"], by_shop[0]["status"]) == ("refused", 403)
    [nobody] = [r for r in refusals if "principal" not in r]
    assert (nobody["reason"], nobody["status"]) == ("unauthenticated", 401)


async def test_a_refusal_on_the_hot_path_is_recorded(tmp_path: Path) -> None:
    rules_in(tmp_path)
    async with broker_of(tmp_path) as client:
        refused = await client.post(
            "/v1/topics/orders/messages", json={"body": {"text": "a"}}, headers=bearer(SHOP)
        )
        assert refused.status_code == 403

        [record] = await awaited(client, lambda r: r["event"] == "refusal")

    assert record["operation"] == "sendMessages"
    assert record["request_id"] == refused.json()["request_id"]


async def test_a_credential_is_recorded_at_its_first_use_only(tmp_path: Path) -> None:
    rules_in(tmp_path)
    async with broker_of(tmp_path) as client:
        for _ in range(3):
            await client.get("/v1/topics", headers=bearer(SHOP))
        await client.put("/v1/topics/orders", json={}, headers=bearer(ANN))
        await awaited(client, lambda r: r["event"] == "act")

        uses = [r for r in await records_at(client) if r["event"] == "credential_used"]

    assert sorted(r["principal"] for r in uses) == sorted([SHOP, ANN, AUDITOR])


async def test_changed_rules_are_recorded_as_a_difference_without_digests(tmp_path: Path) -> None:
    rules_in(tmp_path)
    async with broker_of(tmp_path) as client:
        rules_in(tmp_path, {"allow": ["produce"], "on": ["topic:orders"], "to": [SHOP]})
        [record] = await awaited(client, lambda r: r["event"] == "rules_changed")
        (tmp_path / "rules.toml").write_text("[[rules]]\nallow = ['fly']\n")
        [mistake] = await awaited(client, lambda r: r["event"] == "rules_stale")

    assert record["detail"] == f"+ grant produce on topic:orders to {SHOP}"
    assert "rules.0.allow.0" in mistake["detail"]


async def test_no_record_contains_a_secret(tmp_path: Path) -> None:
    rules_in(tmp_path)
    secret = key_of(SHOP)
    async with broker_of(tmp_path) as client:
        await client.get("/v1/topics/orders", headers={"authorization": f"Bearer {secret}x"})
        await client.get("/v1/topics/orders", headers={"authorization": f"Basic {secret}"})
        await client.delete("/v1/topics/orders", headers=bearer(SHOP))
        await awaited(client, lambda r: r.get("operation") == "deleteTopic")

        text = json.dumps(await records_at(client))

    assert secret.rpartition("_")[2] not in text


async def test_a_name_in_a_request_cannot_forge_a_record(tmp_path: Path) -> None:
    rules_in(tmp_path)
    async with broker_of(tmp_path) as client:
        refused = await client.delete(
            "/v1/topics/a%0A%1b%5B31m%01" + "b" * 5_000, headers=bearer(SHOP)
        )
        assert refused.status_code == 403
        [record] = await awaited(client, lambda r: r["event"] == "refusal")

    assert record["resource"].startswith("topic:a??[31m?b")
    assert len(record["resource"]) == 512


async def test_only_an_auditor_reads_the_audit_and_only_services_write_it(tmp_path: Path) -> None:
    rules_in(
        tmp_path,
        {"allow": ["consume", "query", "produce"], "on": ["topic:*", "log"], "to": [SHOP]},
    )
    report = {
        "records": [{"at": "2026-11-21T08:00:00Z", "event": "act", "service": "namesrv forged"}]
    }
    async with broker_of(tmp_path) as client:
        await client.put("/v1/topics/orders", json={}, headers=bearer(ANN))
        await awaited(client, lambda r: r["event"] == "act")
        target = f"/v1/topics/{AUDIT_TOPIC}/queues/0/messages?offset=0&include_system=true"
        refused = await client.get(target, headers=bearer(SHOP))
        assert refused.status_code == 403
        assert refused.json()["fix"] == f"grant consume on audit to {SHOP}"
        sent = await client.post(
            f"/v1/topics/{AUDIT_TOPIC}/messages", json={"body": {"text": "a"}}, headers=bearer(ANN)
        )
        assert sent.json()["code"] == "system-topic-protected"
        deleted = await client.delete(f"/v1/topics/{AUDIT_TOPIC}", headers=bearer(ANN))
        assert deleted.json()["code"] == "system-topic-protected"
        refused = await client.post("/v1/audit/records", json=report, headers=bearer(SHOP))
        assert refused.status_code == 403

        reported = await client.post("/v1/audit/records", json=report, headers=bearer(NAMESRV))
        assert reported.status_code == 204
        [record] = await awaited(client, lambda r: r["service"] == "namesrv forged")

    assert record["reported_by"] == NAMESRV


async def test_a_name_server_reports_to_a_broker_as_soon_as_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules_in(tmp_path)
    monkeypatch.setenv("ERUCA_API_KEY", key_of(NAMESRV))
    settings = NamesrvSettings.model_validate(
        {"kv_file": tmp_path / "kv", "ERUCA_AUTH_FILE": str(tmp_path / "rules.toml")}
    )
    async with (
        serving(create_namesrv(settings), settings) as (_, (host, port)),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as namesrv,
    ):
        put = await namesrv.put("/v1/kv/shop/a", json={"value": "1"}, headers=bearer(ANN))
        assert put.status_code < 300, put.text
        async with broker_of(tmp_path) as client:
            registered = await namesrv.put(
                "/v1/brokers/broker-a/0",
                json={
                    "cluster": "eruca",
                    "urls": {"default": str(client.base_url)},
                    "store_host": "127.0.0.1:1",
                    "data_version": 0,
                },
                headers=bearer(ANN),
            )
            assert registered.status_code < 300, registered.text
            [act] = await awaited(client, lambda r: r["event"] == "act")

    assert act["service"] == f"namesrv {host}:{port}"
    assert (act["operation"], act["resource"]) == ("putKv", "cluster")
    assert act["reported_by"] == NAMESRV


async def test_the_records_of_the_last_requests_are_written_before_a_broker_stops(
    tmp_path: Path,
) -> None:
    rules_in(tmp_path)
    async with broker_of(tmp_path) as client:
        await client.put("/v1/topics/orders", json={}, headers=bearer(ANN))
    async with broker_of(tmp_path) as client:
        assert any(r["event"] == "act" for r in await records_at(client))


async def test_without_rules_nothing_is_recorded(tmp_path: Path) -> None:
    settings = BrokerSettings.model_validate(
        {"store_dir": tmp_path / "store", "segment_bytes": 16 * 1024**2, "namesrv_urls": ""}
    )
    for _ in range(2):  # the second broker reads what the first one has written as it stopped
        async with (
            serving(create_app(settings), settings) as (_, (host, port)),
            httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as client,
        ):
            assert (await client.put("/v1/topics/orders", json={})).is_success
            queues = await client.get(
                f"/v1/topics/{AUDIT_TOPIC}/queues", params={"include_system": True}
            )
            assert queues.status_code == 404
