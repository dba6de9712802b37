"""Two tenants with the same names in one cluster: by curl, SDK and command line as if alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import httpx
import pytest

import eruca
from eruca.contract.errors import ForbiddenError, TopicNotFoundError
from eruca.contract.properties import TIMER_DELAY_SECONDS, encode_properties
from eruca.contract.records import Record, encode_unstamped
from eruca.contract.wire import RECORDS_MEDIA_TYPE, encode_batch, with_delays
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.command_line import Eruca
from support.rules import bearer, key_of, write_rules
from support.waiting import until_told

pytestmark = pytest.mark.anyio

SERVICES: Final = "service:all"
ANN, BEN = "user:ann", "user:ben"
TENANTS: Final = (ANN, BEN)
RULES: Final = (
    {
        "allow": ["produce", "consume", "query", "administer"],
        "on": ["topic:*", "group:*", "log", "cluster", "audit"],
        "to": [ANN, BEN],
    },
)
NAMESPACES: Final = f"""
[[namespaces]]
name = "team-a-"
to = ["{ANN}"]
[[namespaces]]
name = "team-b-"
to = ["{BEN}"]
"""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    rules = write_rules(
        tmp_path_factory.mktemp("rules") / "rules.toml",
        *RULES,
        roles={
            role: [SERVICES]
            for role in ("administrator", "broker", "query-service", "transaction-checker")
        },
        more=NAMESPACES,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ERUCA_API_KEY", key_of(SERVICES))
        patch.setenv("ERUCA_AUTH_FILE", str(rules))
        yield rules


@pytest.fixture(scope="module")
async def cluster(environment: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(queries=1, txn_checkers=1, settings=dict(SMALL_STORE)) as made:
        for tenant in TENANTS:
            async with client_of(made, tenant) as client:
                await client.admin.create_topic("orders", queue_count=1)
        yield made


@asynccontextmanager
async def client_of(cluster: LocalCluster, principal: str) -> AsyncIterator[eruca.AsyncClient]:
    urls = ";".join(cluster.namesrv_urls)
    async with eruca.AsyncClient(urls, credentials=eruca.ApiKey(key_of(principal))) as client:
        yield client


def check_says_no_namespace(text: str) -> None:
    assert "team-" not in text, text


async def test_the_sdk_sends_consumes_retries_and_searches(cluster: LocalCluster) -> None:
    for tenant in TENANTS:
        async with client_of(cluster, tenant) as client:
            await client.admin.create_topic("sales", queue_count=2)
            await client.admin.groups.create("billing", start="earliest", retries_max=1)
            async with client.producer() as producer:
                await producer.send_many(
                    [eruca.Message("sales", f"{tenant} {i}", keys="k") for i in range(20)]
                )
    for tenant in TENANTS:
        async with client_of(cluster, tenant) as client:
            seen: list[tuple[str, str, bytes]] = []
            consumer = client.push_consumer("billing")

            @consumer.on("sales")
            async def take(
                message: eruca.ReceivedMessage, seen: list[tuple[str, str, bytes]] = seen
            ) -> None:
                seen.append((message.topic, str(message.reconsume_times), message.body))
                if message.body.endswith(b" 7"):
                    raise ValueError("seven")

            async with consumer:

                async def dead(client: eruca.AsyncClient = client) -> list[Any]:
                    return [held async for held in client.admin.groups.dead_letters("billing")]

                [held] = await until_told(dead, bool)
            assert held.letter.origin_topic == "sales"
            assert {topic for topic, _, _ in seen} == {"sales"}
            bodies = {body.decode() for _, _, body in seen}
            assert bodies == {f"{tenant} {i}" for i in range(20)}
            assert [times for _, times, body in seen if body.endswith(b" 7")] == ["0", "1"]
            assert {"orders", "sales"} <= set(await client.admin.list_topics())
            found = (await client.query.find("sales", key="k")).messages
            assert len(found) == 20
            timeline = await client.query.timeline(str(found[0].message_id))
            check_says_no_namespace(timeline.model_dump_json())
            assert {group.group for group in timeline.groups} == {"billing"}


async def test_the_sdk_leases_recalls_and_decides(cluster: LocalCluster) -> None:
    for tenant in TENANTS:
        async with client_of(cluster, tenant) as client:
            await client.admin.create_topic("parcels", queue_count=1)
            simple = client.simple_consumer("packers", topics=["parcels"], start="earliest")
            async with (
                client.transaction_producer("shop") as transactions,
                transactions.transaction(eruca.Message("parcels", tenant)),
            ):
                pass
            async with simple:
                [delivery] = await simple.receive(wait_seconds=20)
                assert (delivery.message.topic, delivery.message.body) == (
                    "parcels",
                    tenant.encode(),
                )
                await simple.ack(delivery)
            later = datetime.now(UTC) + timedelta(hours=1)
            async with client.producer() as producer:
                sent = await producer.send(eruca.Message("parcels", b"later", deliver_at=later))
            assert sent.recall_handle is not None
            waiting = [held async for held in client.admin.scheduled("parcels")]
            assert [held.message.recall_handle for held in waiting] == [sent.recall_handle]
            assert (await client.admin.recall_scheduled(sent.recall_handle)).topic == "parcels"
            assert not [held async for held in client.admin.scheduled("parcels")]


async def test_no_answer_names_a_namespace_or_the_other_tenant(cluster: LocalCluster) -> None:
    [broker] = cluster.broker_urls.values()
    [query], [namesrv] = cluster.query_urls, cluster.namesrv_urls
    [checker] = cluster.txn_checker_urls
    async with httpx.AsyncClient(timeout=60) as http:
        sent = await http.post(
            f"{broker}/v1/topics/orders/messages",
            json={"body": {"text": "secret"}, "properties": {"topic": "mine"}},
            headers=bearer(BEN),
        )
        message_id = sent.json()["message_id"]
        assert sent.json()["topic"] == "orders"
        targets = (
            f"{broker}/v1/topics?include_system=true",
            f"{broker}/v1/topics/orders",
            f"{broker}/v1/topics/orders/queues",
            f"{broker}/v1/topics/orders/messages?key=k",
            f"{broker}/v1/topics/orders/queues/0/messages?offset=0",
            f"{broker}/v1/topics/orders/queues/0/offset?boundary=max",
            f"{broker}/v1/topics/%25RETRY%25billing/queues",
            f"{broker}/v1/groups?include_system=true",
            f"{broker}/v1/groups/billing/offsets?topic=orders",
            f"{broker}/v1/groups/billing/dead-letters",
            f"{broker}/v1/scheduled?topic=orders",
            f"{broker}/v1/transactions?producer_group=shop",
            f"{query}/v1/messages?topic=orders&group=billing",
            f"{query}/v1/messages/{message_id}",
            f"{query}/v1/messages/{message_id}/timeline",
            f"{namesrv}/v1/topics",
            f"{namesrv}/v1/topics/orders/route",
            f"{namesrv}/v1/brokers",
            f"{checker}/v1/transactions?producer_group=shop",
            f"{broker}/v1/topics/missing",
            f"{broker}/v1/groups/missing",
            f"{broker}/v1/topics/a%2Fb",
            f"{broker}/v1/topics/{'x' * 125}",
        )
        for target in targets:
            own = await http.get(target, headers=bearer(BEN))
            assert own.status_code < 500, target
            check_says_no_namespace(own.text)
            other = await http.get(target, headers=bearer(ANN))
            assert "secret" not in other.text, target
        long = await http.get(f"{broker}/v1/topics/{'x' * 125}", headers=bearer(BEN))
        assert long.json()["fix"].startswith("use a topic's name of up to 120 characters")
        hidden = await http.get(f"{query}/v1/messages/{message_id}", headers=bearer(ANN))
        assert hidden.status_code == 404
        for target in (f"{broker}/v1/log?from_offset=0", f"{broker}/metrics", f"{query}/v1/access"):
            refused = await http.get(target, headers=bearer(BEN))
            assert refused.status_code == 403
            assert "is in the namespace team-b-, and" in refused.json()["detail"]


async def test_operations_whose_names_cannot_be_changed_are_refused(cluster: LocalCluster) -> None:
    [query], [checker] = cluster.query_urls, cluster.txn_checker_urls
    async with httpx.AsyncClient(timeout=60, headers=bearer(ANN)) as http:
        for target in ("topics", "orders/plan", "orders/records?range=broker-a/0:0-1"):
            refused = await http.get(f"{query}/v1/exports/{target}")
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert refused.json()["fix"] == "use a principal without a namespace"
        webhook = await http.put(
            f"{checker}/v1/producer-groups/shop/webhook", json={"url": "http://127.0.0.1:1/"}
        )
        assert "a webhook gets whole names" in webhook.json()["detail"]


async def test_the_command_line_of_a_tenant(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERUCA_API_KEY", key_of(BEN))
    command = Eruca(";".join(cluster.namesrv_urls))

    def walk() -> None:
        command("topic", "create", "returns", "--queue-count", "1")
        command("send", "--topic=returns", "broken")
        assert command.bodies("returns") == ["broken"]
        for arguments in (
            ("topic", "list"),
            ("topic", "show", "returns"),
            ("group", "list"),
            ("query", "time", "--topic=returns", "--since=1h"),
        ):
            shown = command(*arguments).output
            check_says_no_namespace(shown)
            assert "returns" in shown or arguments != ("topic", "list")
        command("topic", "delete", "returns", "--yes")
        check_says_no_namespace(command("topic", "show", "returns", code=1).output)

    await anyio.to_thread.run_sync(walk)


async def test_an_operator_sees_whole_names(cluster: LocalCluster) -> None:
    async with client_of(cluster, SERVICES) as operator:
        assert {"team-a-orders", "team-b-orders"} <= set(await operator.admin.list_topics())
        with pytest.raises(TopicNotFoundError):
            await operator.admin.topic("orders")
    async with client_of(cluster, ANN) as tenant:
        with pytest.raises(ForbiddenError, match="is in the namespace team-a-"):
            await tenant.query.status()


async def test_what_a_tenant_says_never_reaches_the_other(cluster: LocalCluster) -> None:
    [broker] = cluster.broker_urls.values()
    records = encode_batch([encode_unstamped(Record("team-b-orders", b"x"))])
    whole = {"content-type": RECORDS_MEDIA_TYPE} | bearer(ANN)
    async with httpx.AsyncClient(timeout=60) as http:
        before = await state(http, broker)
        for topic in ("team-b-orders", "orders", "%25RETRY%25team-b-billing"):
            for body in ({"body": {"text": "x"}}, {"topic": "team-b-orders"}, ["x"], 7, "orders"):
                path = f"{broker}/v1/topics/{topic}/messages"
                answer = await http.post(path, json=body, headers=bearer(ANN))
                assert answer.status_code in (201, 400, 403, 404, 422), answer.text
            path = f"{broker}/v1/topics/{topic}/queues/0/records"
            for content in (records, records[:40], b""):
                answer = await http.post(path, content=content, headers=whole)
                assert answer.status_code in (201, 400, 403, 404), answer.text
                assert topic != "orders" or answer.status_code == 400
        moved = await http.put(
            f"{broker}/v1/groups/team-b-billing/offsets",
            json={"offsets": [{"topic": "team-b-orders", "queue_id": 0, "offset": 1}]},
            headers=bearer(ANN),
        )
        assert moved.status_code == 204  # in a group of its own
        gone = await http.delete(f"{broker}/v1/groups/team-b-billing", headers=bearer(ANN))
        assert gone.status_code == 204
        assert await state(http, broker) == before


async def test_a_tenants_delayed_records_wait_for_their_time(cluster: LocalCluster) -> None:
    [broker] = cluster.broker_urls.values()
    record = Record("orders", b"later", properties=encode_properties({TIMER_DELAY_SECONDS: "3600"}))
    body = b"".join(with_delays(encode_batch([encode_unstamped(record)])))
    path = f"{broker}/v1/topics/orders/queues/0/records"
    whole = {"content-type": RECORDS_MEDIA_TYPE} | bearer(ANN)
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.post(path, content=body, headers=whole)
        assert answer.is_success, answer.text
        waiting = await http.get(f"{broker}/v1/scheduled", headers=bearer(ANN))
        assert [one["topic"] for one in waiting.json()["scheduled"]] == ["orders"]


async def state(http: httpx.AsyncClient, broker: str) -> list[Any]:
    targets = ("topics/orders/queues", "groups/billing/offsets", "topics", "groups")
    answers = [await http.get(f"{broker}/v1/{target}", headers=bearer(BEN)) for target in targets]
    found = [answer.json() for answer in answers]
    del found[0]["log_offset"]  # of the broker's log, which everybody's messages make longer
    return found
