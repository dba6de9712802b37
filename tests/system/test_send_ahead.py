"""Ordered producers that send ahead, with brokers as processes, over connections that fail.

Whatever fails, the first copies of a queue's messages are in the order of sending, and so are the
last copies; and everything acknowledged is there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import eruca
from chaos.proxies import Direction, Link, LinkName
from eruca_deploy.ports import free_ports
from support.broker_groups import GroupOfProcesses
from support.earlier_versions import STORE_BEFORE, started_at
from support.forked import started_by_fork
from support.processes import ServiceProcess
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

TOPIC = "orders"
FEW = eruca.Batching(count_max=5)
SECONDS = 120.0
COUNT = 600


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    port, target = free_ports("127.0.0.1", 2)
    link = Link(LinkName("producer", "broker"), ("127.0.0.1", target), port)
    await link.listen()
    yield link
    await link.close()


def settings_of(directory: Path, name_server: str, link: Link) -> dict[str, str]:
    return {
        "ERUCA_BROKER_PORT": str(link.target_port),
        "ERUCA_BROKER_NAMESRV_URLS": name_server,
        "ERUCA_BROKER_ADVERTISED_URL": link.url,
        "ERUCA_BROKER_HEARTBEAT_SECONDS": "0.5",
        "ERUCA_BROKER_SEGMENT_BYTES": str(16 * 1024 * 1024),
        "ERUCA_BROKER_STORE_DIR": str(directory / "store"),
    }


@contextmanager
def killed_at_the_end(process: ServiceProcess) -> Iterator[ServiceProcess]:
    with process:
        process.wait_until_listening()
        yield process


async def created(client: httpx.AsyncClient, name_server: str) -> None:
    """Create the topic, and return once its route is known: else a producer takes the default."""
    await until_told(lambda: client.get("/readyz"), lambda answer: answer.is_success)
    answer = await client.put(
        f"/v1/topics/{TOPIC}", json={"read_queue_count": 1, "write_queue_count": 1}
    )
    assert answer.is_success, answer.text
    await until_told(
        lambda: client.get(f"{name_server}/v1/topics/{TOPIC}/route"),
        lambda answer: answer.is_success,
    )


async def stored(client: httpx.AsyncClient) -> list[int]:
    """Return the numbers of all messages of the queue."""
    numbers: list[int] = []
    while True:
        answer = await client.get(
            f"/v1/topics/{TOPIC}/queues/0/messages", params={"offset": len(numbers)}
        )
        messages = answer.json()["messages"]
        if not messages:
            return numbers
        numbers += [int(message["body"]["text"]) for message in messages]


def numbered(number: int) -> eruca.Message:
    return eruca.Message(TOPIC, str(number), sharding_key="one")


async def send_all(
    producer: eruca.AsyncProducer, acknowledged: set[int], count: int = COUNT
) -> None:
    """Send numbers one after the other, without awaiting each result."""
    futures = []
    for number in range(count):
        future = await producer.submit(numbered(number))
        future.add_done_callback(lambda _, number=number: acknowledged.add(number))  # type: ignore[misc]
        futures.append(future)
        if number % 20 == 0:
            await asyncio.sleep(0.002)  # the load is spread over the faults
    await asyncio.gather(*futures)


def assert_in_order(numbers: list[int], count: int = COUNT) -> None:
    assert list(dict.fromkeys(numbers)) == list(range(count))
    assert list(dict.fromkeys(reversed(numbers))) == list(reversed(range(count)))


async def test_batches_arrive_before_earlier_ones_are_answered(
    tmp_path: Path, name_server: str, link: Link
) -> None:
    broker = started_by_fork("eruca_broker", settings_of(tmp_path, name_server, link))
    with killed_at_the_end(broker):
        async with (
            httpx.AsyncClient(base_url=broker.url) as http,
            eruca.AsyncClient(name_server) as client,
            client.producer(batching=FEW, send_timeout_seconds=SECONDS) as producer,
        ):
            await created(http, name_server)
            acknowledged: set[int] = set()
            link.slow(0.02)  # or one batch at a time would be enough
            sending = asyncio.create_task(send_all(producer, acknowledged))
            await until(lambda: len(acknowledged) > COUNT // 4)
            link.hold(Direction.BACK)
            await until_told(
                lambda: stored(http),
                lambda numbers: len(numbers) >= len(acknowledged) + 3 * FEW.count_max,
            )
            link.heal()
            await sending
            assert await stored(http) == list(range(COUNT))


async def test_connections_are_slow_and_cut(tmp_path: Path, name_server: str, link: Link) -> None:
    chance = random.Random(26)
    broker = started_by_fork("eruca_broker", settings_of(tmp_path, name_server, link))
    with killed_at_the_end(broker):
        async with (
            httpx.AsyncClient(base_url=broker.url) as http,
            eruca.AsyncClient(name_server) as client,
            client.producer(
                batching=FEW, send_timeout_seconds=SECONDS, retries_max=1_000
            ) as producer,
        ):
            await created(http, name_server)
            acknowledged: set[int] = set()
            sending = asyncio.create_task(send_all(producer, acknowledged))
            link.slow(0.004)
            cuts = 0
            while not sending.done():
                goal = len(acknowledged) + 30
                await until(lambda goal=goal: len(acknowledged) > goal or sending.done())  # type: ignore[misc]
                if cuts % 3:
                    link.tear(chance.randrange(4_000), chance.choice(list(Direction)))
                else:
                    link.cut()
                    link.heal()
                    link.slow(0.004)
                cuts += 1
            link.heal()
            await sending

            assert cuts > 5
            assert_in_order(await stored(http))


async def test_the_broker_is_killed_in_mid_stream(
    tmp_path: Path, name_server: str, link: Link
) -> None:
    settings = settings_of(tmp_path, name_server, link)
    async with (
        eruca.AsyncClient(name_server) as client,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{link.target_port}") as http,
    ):
        producer = client.producer(batching=FEW, send_timeout_seconds=SECONDS, retries_max=1_000)
        acknowledged: set[int] = set()
        sending: asyncio.Task[None] | None = None
        for life in range(3):
            with killed_at_the_end(started_by_fork("eruca_broker", settings)):
                if sending is None:
                    await created(http, name_server)
                    sending = asyncio.create_task(send_all(producer, acknowledged))
                goal = COUNT * (life + 1) // 4
                await until(lambda goal=goal: len(acknowledged) > goal)  # type: ignore[misc]
        with killed_at_the_end(started_by_fork("eruca_broker", settings)):
            assert sending is not None
            await sending
            await producer.close()

            assert_in_order(await stored(http))


async def test_a_replica_takes_over_in_mid_stream(tmp_path: Path, name_server: str) -> None:
    group = GroupOfProcesses(tmp_path)
    try:
        group.start_controller()
        for replica_id in (1, 2):
            group.start(replica_id, namesrv_urls=name_server, heartbeat_seconds="0.5")
            master = await asyncio.to_thread(group.await_master, copies=replica_id)
        async with (
            eruca.AsyncClient(name_server) as client,
            client.producer(
                batching=FEW, send_timeout_seconds=SECONDS, retries_max=1_000
            ) as producer,
        ):
            await client.admin.create_topic(TOPIC, queue_count=1)
            acknowledged: set[int] = set()
            sending = asyncio.create_task(send_all(producer, acknowledged))
            await until(lambda: len(acknowledged) > COUNT // 4)
            group.kill(master)
            await sending
            async with httpx.AsyncClient(base_url=group.url(3 - master)) as http:
                assert_in_order(await stored(http))
    finally:
        group.close()


async def test_an_earlier_broker_gets_one_batch_at_a_time_and_its_successor_several(
    tmp_path: Path, name_server: str, link: Link
) -> None:
    settings = settings_of(tmp_path, name_server, link)
    async with (
        eruca.AsyncClient(name_server) as client,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{link.target_port}") as http,
        client.producer(batching=FEW, send_timeout_seconds=SECONDS) as producer,
    ):
        with started_at(STORE_BEFORE, "eruca_broker", settings) as broker:
            await created(http, name_server)
            await send_all(producer, set(), 200)
            assert_in_order(await stored(http), 200)
            assert broker.stop() == 0
        with killed_at_the_end(started_by_fork("eruca_broker", settings)):
            await producer.send_many([numbered(number) for number in range(200, 400)])
            assert_in_order(await stored(http), 400)
