"""The SDK over a cluster of processes, some of which die: nothing acknowledged is lost or stuck."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator

import pytest

import eruca
from eruca.contract.topics import TopicSettings
from eruca_deploy.cluster import LocalCluster
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

SMALL = {"ERUCA_BROKER_SEGMENT_BYTES": str(16 * 1024 * 1024)}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(brokers=2, namesrvs=2, settings=SMALL, restarts=False) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[eruca.AsyncClient]:
    async with eruca.AsyncClient(cluster.namesrv_urls) as client:
        yield client


async def pull_all(client: eruca.AsyncClient, topic: str) -> list[eruca.ReceivedMessage]:
    queues = await client.admin.queues(topic)
    count = sum(queue.max_offset - queue.min_offset for queue in queues.values())
    messages: list[eruca.ReceivedMessage] = []
    async with client.pull_consumer(topics=topic) as consumer:
        while len(messages) < count:
            batch = await consumer.poll(wait_seconds=20)
            assert batch
            messages += batch
    return messages


def keyed(number: int) -> eruca.Message:
    return eruca.Message("orders", str(number), sharding_key=f"customer-{number}")


async def every_name_server_knows(client: eruca.AsyncClient, *, brokers: int) -> None:
    """Wait until the name servers know so many brokers, as they do some seconds after a start."""

    async def known() -> list[int]:
        statuses = (await client.admin.namesrv_statuses()).values()
        return [status.brokers for status in statuses if not isinstance(status, eruca.ErucaError)]

    await until_told(known, lambda counts: set(counts) == {brokers})


async def test_sending_goes_on_while_a_broker_is_killed_and_nothing_acknowledged_is_lost(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=2)
    acknowledged: set[str] = set()
    killed = asyncio.Event()

    async def send_for_a_while(producer: eruca.AsyncProducer, number: int) -> None:
        after_the_kill = 0
        while after_the_kill < 20:
            result = await producer.send(eruca.Message("orders", f"from {number}"))
            acknowledged.add(result.message_id)
            after_the_kill += killed.is_set()

    async with client.producer(latency_fault=True) as producer:
        senders = [asyncio.create_task(send_for_a_while(producer, n)) for n in range(20)]
        await until(lambda: len(acknowledged) > 200)
        await cluster.kill("broker-a")
        killed.set()
        await asyncio.gather(*senders)  # not one send failed

    await cluster.restart("broker-a")
    counts = Counter(message.message_id for message in await pull_all(client, "orders"))
    assert acknowledged <= counts.keys()


async def test_keys_of_an_ordered_topic_wait_for_their_broker_and_go_elsewhere_if_it_is_given_up(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=2, ordered=True)
    async with client.producer() as producer:
        sent = [await producer.send(keyed(number)) for number in range(16)]
    place = {number: its.queue for number, its in enumerate(sent)}
    at_a = next(n for n, queue in place.items() if queue.broker_name == "broker-a")
    at_b = next(n for n, queue in place.items() if queue.broker_name == "broker-b")
    await cluster.stop_one("broker-b")
    await every_name_server_knows(client, brokers=1)
    for name in ("namesrv-1", "namesrv-2"):
        await cluster.restart(name)  # they know what the brokers that are there tell them
    await every_name_server_knows(client, brokers=1)

    async with eruca.AsyncClient(cluster.namesrv_urls) as late:
        async with late.producer(send_timeout_seconds=120) as producer:
            waits = await producer.submit(keyed(at_b))
            assert (await producer.send(keyed(at_a))).queue == place[at_a]
            for _ in range(8):  # what has no key waits for nobody
                await producer.send(eruca.Message("orders", "any"))
            assert not waits.done()
            await cluster.restart("broker-b")
            came = await waits
            assert came.queue == place[at_b]
            found = await late.admin.message_by_offset_id(came.offset_message_id)
            assert found.message.queue_offset == came.queue_offset

        await cluster.stop_one("broker-b")
        await every_name_server_knows(late, brokers=1)
        async with late.producer(send_timeout_seconds=2) as producer:
            with pytest.raises(
                (eruca.NoRouteError, eruca.SendFailedError, eruca.TimeoutExpiredError),
                match="broker-b",
            ):
                await producer.send(keyed(at_b))
        async with late.producer() as producer:
            await late.admin.change_topic("orders", {}, without=["broker-b"])
            assert (await producer.send(keyed(at_b))).queue.broker_name == "broker-a"


async def test_a_broker_that_hangs_while_its_ordered_topic_is_changed_keeps_its_keys(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=2, ordered=True)
    before = await client.admin.topic("orders")
    more = TopicSettings(read_queue_count=3, write_queue_count=3, ordered=True)
    pid = cluster.pid("broker-b")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        async with eruca.AsyncClient(cluster.namesrv_urls, timeout_seconds=5) as other:
            changed = await other.admin.change_topic("orders", {"broker-a": more})
    finally:
        os.kill(pid, signal.SIGCONT)

    order = changed["broker-a"].order_config
    assert order is not None
    assert order.queues == {"broker-a": 3, "broker-b": 2}
    held = await client.admin.topic("orders")
    assert held["broker-b"].order_config == before["broker-b"].order_config
    assert (await client.admin.route("orders")).order_config == "broker-a:3;broker-b:2"


async def test_a_consumer_reads_from_the_others_while_a_broker_is_down_and_then_all_of_it(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=2)
    async with client.producer() as producer:
        sent = await producer.send_many(
            [eruca.Message("orders", str(n), sharding_key=str(n)) for n in range(1_000)]
        )
    of_a = {r.message_id for r in sent if r.queue.broker_name == "broker-a"}
    of_b = {r.message_id for r in sent if r.queue.broker_name == "broker-b"}
    seen: list[str | None] = []

    async with client.pull_consumer("readers", topics="orders", prefetch_count_max=10) as consumer:
        seen += [m.message_id for m in await consumer.poll(count_max=5, wait_seconds=20)]
        await cluster.kill("broker-a")
        while not of_b <= set(seen):
            seen += [m.message_id for m in await consumer.poll(wait_seconds=20)]
        await cluster.restart("broker-a")
        while not of_a <= set(seen):
            seen += [m.message_id for m in await consumer.poll(wait_seconds=30)]
        assert consumer.failures == {}

    assert set(Counter(seen).values()) == {1}


async def test_a_consumer_of_which_every_broker_is_down_says_so(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=1)
    async with client.pull_consumer(topics="orders") as consumer:
        assert await consumer.poll(wait_seconds=0.1) == []
        await cluster.kill("broker-a")
        await cluster.kill("broker-b")

        with pytest.raises(eruca.TransportError):
            await consumer.poll(wait_seconds=3)
        assert set(consumer.failures) == {"broker-a", "broker-b"}


async def test_any_name_server_may_die_and_new_topics_still_be_found(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=1)
    async with client.producer() as producer:
        for name in ("namesrv-1", "namesrv-2"):
            await producer.send(eruca.Message("orders", "x"))
            await cluster.kill(name)
            await producer.send(eruca.Message("orders", "x"))
            await client.admin.create_topic(f"later-{name}", queue_count=1)
            await producer.send(eruca.Message(f"later-{name}", "x"))
            await cluster.restart(name)
            await every_name_server_knows(client, brokers=2)


async def test_without_any_name_server_what_is_known_is_used_and_what_is_not_is_an_error(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=1)
    async with client.producer() as producer, client.pull_consumer(topics="orders") as consumer:
        await producer.send(eruca.Message("orders", "before"))
        assert len(await consumer.poll(wait_seconds=20)) == 1
        for name in ("namesrv-1", "namesrv-2"):
            await cluster.kill(name)

        await producer.send(eruca.Message("orders", "after"))
        assert [m.text() for m in await consumer.poll(wait_seconds=20)] == ["after"]
        with pytest.raises(eruca.NameServersUnreachableError):
            await producer.send(eruca.Message("unknown", "x"))


async def test_a_broker_that_stops_in_order_is_left_without_an_error(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=2)
    stopped = asyncio.Event()
    names: list[str] = []

    async def send(producer: eruca.AsyncProducer) -> None:
        after = 0
        while after < 50:
            names.append((await producer.send(eruca.Message("orders", "x"))).queue.broker_name)
            after += stopped.is_set()

    async with client.producer() as producer:
        sender = asyncio.create_task(send(producer))
        await until(lambda: len(names) > 50)
        await cluster.stop_one("broker-a")
        stopped.set()
        await sender

    assert set(names[-40:]) == {"broker-b"}


async def test_a_log_is_followed_over_the_death_of_its_broker(
    cluster: LocalCluster, client: eruca.AsyncClient
) -> None:
    await client.admin.create_topic("orders", queue_count=1, broker_name="broker-a")
    async with client.producer() as producer, client.log_follower("broker-a") as follower:
        await producer.send(eruca.Message("orders", "before"))
        bodies = []
        while b"before" not in bodies:
            bodies.append((await anext(follower)).decode().body)
        following = asyncio.create_task(anext(follower))
        await cluster.kill("broker-a")
        await cluster.restart("broker-a")
        await producer.send(eruca.Message("orders", "after"))
        bodies = [(await following).decode().body]
        while b"after" not in bodies:
            bodies.append((await anext(follower)).decode().body)
