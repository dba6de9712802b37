"""A name server that was restarted: nobody takes what it does not know for what does not exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from support.command_line import Eruca
from support.waiting import until_told

pytestmark = pytest.mark.anyio

SMALL = {
    "ERUCA_BROKER_SEGMENT_BYTES": str(16 * 1024 * 1024),
    "ERUCA_BROKER_HEARTBEAT_SECONDS": "0.5",
}
NAMESRV = "namesrv-1"
MESSAGE = {"body": {"text": "2"}, "sharding_key": "k1"}
OCTETS = {"content-type": "application/octet-stream"}
TO_ORDERS = "/v1/topics/orders/messages"
WAYS_TO_SEND: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "JSON": (TO_ORDERS, {"json": MESSAGE}),
    "several": (TO_ORDERS, {"json": {"messages": [MESSAGE, MESSAGE]}}),
    "to a queue": (f"{TO_ORDERS}?queue_id=1", {"json": MESSAGE}),
    "delayed": (TO_ORDERS, {"json": MESSAGE | {"delay_seconds": 60}}),
    "under a key": (TO_ORDERS, {"json": MESSAGE, "headers": {"idempotency-key": "once"}}),
    "octets": (TO_ORDERS, {"content": b"2", "headers": OCTETS}),
    "records": (
        "/v1/topics/orders/queues/1/records",
        {"content": b"", "headers": {"content-type": "application/vnd.eruca.records"}},
    ),
    "transaction": (
        "/v1/transactions",
        {"json": {"topic": "orders", "producer_group": "g", "message": MESSAGE}},
    ),
}
AWAY = (eruca.NoRouteError, eruca.SendFailedError)
LISTS = ("/v1/topics", "/v1/brokers", "/v1/clusters")


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(brokers=2, settings=SMALL, restarts=False) as cluster:
        yield cluster


async def send(
    cluster: LocalCluster, text: str, *, within: float, topic: str = "orders"
) -> eruca.SendResult:
    """Send by a client that knows nothing yet."""
    async with (
        eruca.AsyncClient(cluster.namesrv_urls, timeout_seconds=60) as client,
        client.producer(send_timeout_seconds=within) as producer,
    ):
        return await producer.send(eruca.Message(topic, text, sharding_key="k1"))


async def order_at_b(cluster: LocalCluster) -> eruca.SendResult:
    """Make an ordered topic on broker-b alone, and send a message."""
    async with eruca.AsyncClient(cluster.namesrv_urls, timeout_seconds=60) as client:
        await client.admin.create_topic("orders", ordered=True, broker_name="broker-b")
    return await send(cluster, "1", within=60)


async def heard_of_a(cluster: LocalCluster, *, times: int) -> None:
    """Wait until broker-a has told the name server so often that it lives."""

    async def last_seen() -> str:
        listed = (await http.get(f"{cluster.namesrv_urls[0]}/v1/brokers")).json()["brokers"]
        seen: str = listed[0]["brokers"][0]["last_seen_at"]
        return seen

    async with httpx.AsyncClient() as http:
        for _ in range(times):
            before = await last_seen()
            await until_told(last_seen, before.__ne__)


def topics_of_a(cluster: LocalCluster) -> list[str]:
    """Return the topics of broker-a, where none belongs."""
    answer = httpx.get(f"{cluster.broker_urls['broker-a']}/v1/topics").json()
    return [topic["topic"] for topic in answer["topics"]]


async def test_an_ordered_topic_is_not_made_elsewhere_while_its_broker_is_away(
    cluster: LocalCluster,
) -> None:
    first = await order_at_b(cluster)
    await cluster.kill("broker-b")
    await cluster.restart(NAMESRV)

    with pytest.raises(
        (eruca.NoRouteError, eruca.SendFailedError), match=r"broker broker-b .* is away"
    ):
        await send(cluster, "2", within=5)
    assert topics_of_a(cluster) == []

    waiting = asyncio.create_task(send(cluster, "2", within=120))
    await cluster.restart("broker-b")
    assert (await waiting).queue == first.queue
    assert topics_of_a(cluster) == []


async def test_a_topic_ordered_without_an_order_config_is_not_made_elsewhere_either(
    cluster: LocalCluster,
) -> None:
    settings = {"read_queue_count": 4, "write_queue_count": 4, "ordered": True}
    async with httpx.AsyncClient(base_url=cluster.broker_urls["broker-b"]) as http:
        put = await http.put("/v1/topics/orders", json=settings)
    assert (put.status_code, put.json()["order_config"]) == (201, None)
    first = await send(cluster, "1", within=60)
    await cluster.kill("broker-b")
    await cluster.restart(NAMESRV)

    with pytest.raises(AWAY, match="orders"):
        await send(cluster, "2", within=15)
    assert topics_of_a(cluster) == []

    await cluster.restart("broker-b")
    assert (await send(cluster, "2", within=60)).queue == first.queue
    assert topics_of_a(cluster) == []


async def test_a_broker_does_not_create_by_sending_a_topic_that_is_ordered_elsewhere(
    cluster: LocalCluster,
) -> None:
    await order_at_b(cluster)
    await heard_of_a(cluster, times=2)  # it knows what broker-b has
    await cluster.kill("broker-b")

    async with httpx.AsyncClient(base_url=cluster.broker_urls["broker-a"]) as http:
        refused = {
            way: await http.post(path, **request) for way, (path, request) in WAYS_TO_SEND.items()
        }
        other = await http.post("/v1/topics/trains/messages", json=MESSAGE)
        listed = topics_of_a(cluster)
        created = await http.put("/v1/topics/orders", json={})
        sent = await http.post(TO_ORDERS, json=MESSAGE)

    for way, answer in refused.items():
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (503, "unavailable"), way
        assert "it is ordered on broker-b" in problem["detail"], way
        assert "PUT /v1/topics/orders" in problem["fix"], way
        assert int(answer.headers["retry-after"]) >= 1, way
    assert (other.status_code, listed) == (201, ["trains"])
    assert (created.status_code, sent.status_code) == (201, 201)


async def test_no_topic_is_made_on_the_word_of_a_name_server_that_has_lost_its_file(
    cluster: LocalCluster,
) -> None:
    first = await order_at_b(cluster)
    await heard_of_a(cluster, times=2)  # it knows what broker-b has, and passes it on
    await cluster.kill("broker-b")
    await cluster.stop_one(NAMESRV)
    (cluster.plan.namesrvs[0].directory / "kv.json").unlink()
    await cluster.restart(NAMESRV)

    async with httpx.AsyncClient(base_url=cluster.namesrv_urls[0]) as http:
        answers = [await http.get(path) for path in ("/v1/topics/trains/route", *LISTS)]
        route = await until_told(
            lambda: http.get("/v1/topics/orders/route"), lambda answer: answer.status_code == 200
        )
    with pytest.raises(eruca.NameServerSettlingError):
        await send(cluster, "2", within=1, topic="trains")
    with pytest.raises(
        (eruca.NoRouteError, eruca.SendFailedError), match=r"broker broker-b .* is away"
    ):
        await send(cluster, "2", within=5)

    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (503, "name-server-settling")
        assert int(answer.headers["retry-after"]) >= 1
    assert route.json()["order_config"] == "broker-b:4"
    assert topics_of_a(cluster) == []
    waiting = asyncio.create_task(send(cluster, "2", within=120))
    await cluster.restart("broker-b")
    assert (await waiting).queue == first.queue


async def test_a_new_client_finds_topics_and_brokers_whatever_the_moment(
    cluster: LocalCluster,
) -> None:
    first = await order_at_b(cluster)
    await cluster.restart(NAMESRV)

    async with eruca.AsyncClient(cluster.namesrv_urls, timeout_seconds=60) as client:
        topics, brokers, sent = await asyncio.gather(
            client.admin.list_topics(), client.admin.brokers(), send(cluster, "2", within=60)
        )

    assert topics == ["orders"]
    assert [group.broker_name for group in brokers] == ["broker-a", "broker-b"]
    assert sent.queue == first.queue


async def test_the_command_line_says_what_a_name_server_cannot_list_yet(
    cluster: LocalCluster,
) -> None:
    await cluster.kill("broker-b")
    await cluster.restart(NAMESRV)
    [url] = cluster.namesrv_urls
    command = Eruca(url)
    command.environment["ERUCA_TIMEOUT_SECONDS"] = "0.2"

    status = await asyncio.to_thread(command, "status", code=1)
    listed = await asyncio.to_thread(command, "topic", "list", code=1)
    doctor = await asyncio.to_thread(command, "doctor", "-ojson")

    assert "has just started: brokers may be missing" in status.stdout
    assert "name server has just started" in listed.stderr
    assert "name server has just started" in doctor.stdout
