"""Consumers that start while their only broker is away: they wait for it, as running ones do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from support.patience import PATIENCE_SECONDS
from support.waiting import until

pytestmark = pytest.mark.anyio

BROKER = "broker-a"


@pytest.fixture(params=["kill", "stop_one"])
async def away(request: pytest.FixtureRequest) -> AsyncIterator[LocalCluster]:
    """Yield a cluster with a message, and a broker that is gone in one of two ways."""
    async with LocalCluster(restarts=False, txn_checkers=0, queries=0) as cluster:
        async with eruca.AsyncClient(cluster.namesrv_urls) as client, client.producer() as producer:
            await client.admin.create_topic("orders", queue_count=1)
            await producer.send(eruca.Message("orders", "order 17"))
        await getattr(cluster, request.param)(BROKER)
        yield cluster


async def pushed(client: eruca.AsyncClient) -> str:
    texts: list[str] = []
    consumer = client.push_consumer("billing", start="earliest")

    @consumer.on("orders")
    async def bill(message: eruca.ReceivedMessage) -> None:
        texts.append(message.text())

    async with consumer:
        await until(lambda: texts)
    return texts[0]


async def pulled(client: eruca.AsyncClient) -> str:
    async with client.pull_consumer("ledger", topics="orders") as consumer:
        [message] = await consumer.poll(wait_seconds=PATIENCE_SECONDS)
        return message.text()


async def received(client: eruca.AsyncClient) -> str:
    async with client.simple_consumer("couriers", "orders", start="earliest") as consumer:
        [delivery] = await consumer.receive(wait_seconds=PATIENCE_SECONDS)
        return delivery.message.text()


async def sent(client: eruca.AsyncClient) -> str:
    async with client.producer(send_timeout_seconds=PATIENCE_SECONDS) as producer:
        result = await producer.send(eruca.Message("orders", "order 18"))
        return result.queue.broker_name


async def half_sent(client: eruca.AsyncClient) -> str:
    async with (
        client.transaction_producer(
            "checkout", check=lambda _: "commit", send_timeout_seconds=PATIENCE_SECONDS
        ) as producer,
        producer.transaction(eruca.Message("orders", "order 19")) as transaction,
    ):
        return transaction.half.queue.broker_name


@pytest.mark.parametrize("away", ["stop_one"], indirect=True)
async def test_a_producer_that_starts_meanwhile_sends_once_the_broker_is_back(
    away: LocalCluster,
) -> None:
    async with eruca.AsyncClient(away.namesrv_urls) as client:
        starting = [asyncio.ensure_future(way(client)) for way in (sent, half_sent)]
        _, waiting = await asyncio.wait(starting, timeout=2)
        assert len(waiting) == len(starting)
        await away.restart(BROKER)

        assert await asyncio.gather(*starting) == [BROKER] * len(starting)


async def test_whatever_cannot_wait_until_the_broker_is_back_may_be_repeated(
    away: LocalCluster,
) -> None:
    async with (
        eruca.AsyncClient(away.namesrv_urls) as client,
        client.simple_consumer("couriers", "orders", start="earliest") as consumer,
        client.producer(send_timeout_seconds=0.5) as producer,
    ):
        for attempt in (
            lambda: consumer.receive(wait_seconds=0),
            lambda: consumer.receive(wait_seconds=1.2),
            lambda: producer.send(eruca.Message("orders", "order 18")),
            lambda: client.admin.queues("orders"),
        ):
            with pytest.raises(eruca.ErucaError) as raised:
                await attempt()
            assert raised.value.retryable, raised.value
        await away.restart(BROKER)

        [delivery] = await consumer.receive(wait_seconds=PATIENCE_SECONDS)
        assert delivery.message.text() == "order 17"


async def test_a_consumer_that_starts_meanwhile_gets_its_messages_once_the_broker_is_back(
    away: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ways: list[Callable[[eruca.AsyncClient], Awaitable[str]]] = [pushed, pulled, received]
    async with eruca.AsyncClient(away.namesrv_urls) as client:
        starting = [asyncio.ensure_future(way(client)) for way in ways]
        _, waiting = await asyncio.wait(starting, timeout=2)  # longer than a new topic may take
        assert len(waiting) == len(ways)
        await away.restart(BROKER)

        assert await asyncio.gather(*starting) == ["order 17"] * len(ways)


async def test_a_topic_that_no_live_broker_has_is_an_error_at_once() -> None:
    async with (
        LocalCluster(txn_checkers=0, queries=0) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        for way in (pushed, pulled, received):
            with pytest.raises(eruca.TopicNotFoundError):
                await way(client)
