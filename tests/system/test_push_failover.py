"""Push consumers while brokers die and come back: everything is handled by who holds its queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from support.patience import SESSION_SECONDS
from support.push import Gatherer, until_shared
from support.waiting import until

pytestmark = pytest.mark.anyio

SMALL = {"ERUCA_BROKER_SEGMENT_BYTES": str(16 * 1024 * 1024)}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(brokers=2, settings=SMALL, restarts=False) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[eruca.AsyncClient]:
    async with eruca.AsyncClient(cluster.namesrv_urls) as client:
        yield client


@asynccontextmanager
async def sending(client: eruca.AsyncClient, topic: str) -> AsyncIterator[list[str]]:
    """Send without a pause; what has been acknowledged is in the list."""
    sent: list[str] = []
    is_over = False

    async def send_on() -> None:
        async with client.producer(latency_fault=True) as producer:
            number = 0
            while not is_over:
                result = await producer.send(eruca.Message(topic, str(number)))
                assert result
                sent.append(str(number))
                number += 1
                await asyncio.sleep(0.002)  # the load's pace

    task = asyncio.create_task(send_on())
    try:
        yield sent
    finally:
        is_over = True
        await task


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "orderly"])
async def test_a_broker_that_dies_and_comes_back_is_read_on_by_the_members_it_had(
    cluster: LocalCluster, client: eruca.AsyncClient, *, ordered: bool
) -> None:
    await client.admin.create_topic("orders", queue_count=2)
    gatherer = Gatherer()
    lost: list[eruca.MessageQueue] = []
    members = []
    for _ in range(2):
        member = client.push_consumer(
            "billing",
            start="earliest",
            ordered=ordered,
            listeners=eruca.Listeners(on_lost=lost.extend),
            offsets=eruca.Offsets(commit_seconds=0.1),
        )
        member.subscribe("orders", handler=gatherer)
        members.append(member)

    async with members[0], members[1]:
        await until_shared(members, "orders", queues=4)
        async with sending(client, "orders") as sent:
            await until(lambda: len(sent) > 200)
            await cluster.kill("broker-a")
            enough = len(sent) + 200
            await until(lambda: len(sent) > enough)
            await cluster.restart("broker-a")
            enough = len(sent) + 400
            await until(lambda: len(sent) > enough)
        await until(lambda: set(gatherer.texts) >= set(sent))

    # The broker was back before the sessions were over: its locks, and the positions of those
    # who read it, held. What was sent twice, because an answer was lost, may come twice.
    assert [queue for queue in lost if queue.topic == "orders"] == []
    positions = Counter((m.queue, m.queue_offset) for m in gatherer.messages)
    assert [place for place, count in positions.items() if count > 1] == []


async def test_a_broker_that_stays_away_does_not_stop_the_others(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=2)
    gatherer = Gatherer()
    lost: list[eruca.MessageQueue] = []
    member = client.push_consumer(
        "billing",
        start="earliest",
        membership=eruca.Membership(session_seconds=SESSION_SECONDS),
        listeners=eruca.Listeners(on_lost=lost.extend),
    )
    member.subscribe("orders", handler=gatherer)

    async with member:
        await until_shared([member], "orders", queues=4)
        await cluster.kill("broker-a")
        async with sending(client, "orders") as sent:
            await until(lambda: len(lost) == 3)
            enough = len(sent) + 200
            await until(lambda: len(sent) > enough)
        await until(lambda: set(gatherer.texts) >= set(sent))

        await cluster.restart("broker-a")
        await until_shared([member], "orders", queues=4)

    assert {queue.broker_name for queue in lost} == {"broker-a"}


async def test_a_broker_that_restarts_while_queues_are_handed_over_leaves_none_without_a_reader(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=4)
    gatherer = Gatherer()

    def member() -> eruca.AsyncPushConsumer:
        member = client.push_consumer(
            "billing",
            start="earliest",
            membership=eruca.Membership(session_seconds=12),
            offsets=eruca.Offsets(commit_seconds=0.1),
            stop_timeout_seconds=30,
        )
        member.subscribe("orders", handler=gatherer)
        return member

    async with member() as first, sending(client, "orders") as sent:
        await until_shared([first], "orders", queues=8)
        for _ in range(3):
            async with member() as second:  # what it should get is being asked for, and released
                await cluster.kill("broker-a")
                await cluster.restart("broker-a")
                await until_shared([first, second], "orders", queues=8, within_seconds=60)
                leaving = asyncio.create_task(second.stop())
                await cluster.kill("broker-a")
                await cluster.restart("broker-a")
                await leaving
            await until_shared([first], "orders", queues=8, within_seconds=60)
        await until(lambda: set(gatherer.texts) >= set(sent), within_seconds=60)
