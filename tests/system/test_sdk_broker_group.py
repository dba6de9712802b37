"""The SDK at a broker with replicas: processes, a name server, and a master that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import eruca
from eruca.contract.fields import MASTER_ID
from eruca.core.consuming.pull_positions import START_POSITIONS
from eruca.core.routing.replicas import in_sync_standbys
from support.broker_groups import GROUP, GroupOfProcesses, group_of
from support.patience import PATIENCE_SECONDS
from support.waiting import until_told

pytestmark = pytest.mark.anyio

PULLED = "eruca_broker_messages_out_total"


@pytest.fixture
def group(tmp_path: Path, name_server: str) -> Iterator[GroupOfProcesses]:
    with group_of(tmp_path, 1, 2, namesrv_urls=name_server) as running:
        yield running


async def test_a_program_goes_on_at_the_new_master_and_loses_nothing(
    group: GroupOfProcesses, name_server: str
) -> None:
    async with eruca.AsyncClient(name_server) as client:
        await client.admin.create_topic("orders", queue_count=1)
        async with (
            client.producer(copies=2) as confirmed,
            client.producer(
                idempotent=True, send_timeout_seconds=PATIENCE_SECONDS, retries_max=0
            ) as producer,
            client.pull_consumer("billing", topics="orders", start="earliest") as consumer,
        ):
            first = await confirmed.send(eruca.Message("orders", "before"))
            assert first.copies == 2
            [got] = await consumer.poll(1, wait_seconds=PATIENCE_SECONDS)
            assert got.body == b"before"
            former = group.await_master()

            group.kill(former)
            second = await producer.send(eruca.Message("orders", "after"))

            [got] = await consumer.poll(1, wait_seconds=PATIENCE_SECONDS)
            assert (got.body, got.queue_offset) == (b"after", second.queue_offset)
            await consumer.commit()
        assert second.store_host != first.store_host
        found = await client.admin.message_by_offset_id(first.offset_message_id)
        assert found.message.message_id == first.message_id
        [broker] = await client.admin.brokers()
        assert (broker.broker_name, broker.epoch) == (GROUP, group.row()["epoch"])


def pulled_from(group: GroupOfProcesses, replica_id: int) -> float:
    """Return the number of messages that a replica has handed out."""
    metrics = group.request("GET", replica_id, "/metrics").text
    [line] = [one for one in metrics.splitlines() if one.startswith(f"{PULLED} ")]
    return float(line.rpartition(" ")[2])


async def test_a_consumer_that_is_far_behind_reads_from_a_standby_while_there_is_one(
    group: GroupOfProcesses, name_server: str
) -> None:
    bodies = [f"{number:05d}".encode() for number in range(3_000)]
    async with eruca.AsyncClient(name_server, standby_from_bytes=10_000) as client:
        await client.admin.create_topic("orders", queue_count=1)
        async with client.producer() as producer:
            await producer.send_many([eruca.Message("orders", body) for body in bodies])
        master = group.await_master(copies=2)
        standby = 3 - master
        await until_told(client.admin.brokers, lambda found: in_sync_standbys(found[0]))
        received: list[bytes] = []
        async with client.pull_consumer(topics="orders", prefetch_count_max=64) as consumer:
            while len(received) < 1_000:
                received += [m.body for m in await consumer.poll(32, wait_seconds=PATIENCE_SECONDS)]
            from_standby, before = pulled_from(group, standby), pulled_from(group, master)
            group.kill(standby)
            while len(received) < len(bodies):
                received += [m.body for m in await consumer.poll(32, wait_seconds=PATIENCE_SECONDS)]

        assert received == bodies
        assert from_standby > 500
        assert before + from_standby < 1_200
        assert pulled_from(group, master) > before + 1_500


async def test_members_and_transactions_go_on_at_the_new_master(
    group: GroupOfProcesses, name_server: str
) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(message: eruca.ReceivedMessage) -> None:
        received.put_nowait(message.body)

    async with eruca.AsyncClient(name_server) as client:
        await client.admin.create_topic("orders", queue_count=1)
        consumer = client.push_consumer("billing", start="earliest")
        consumer.on("orders")(handle)
        transactions = client.transaction_producer(
            "shop",
            send_timeout_seconds=PATIENCE_SECONDS,
            decision_timeout_seconds=PATIENCE_SECONDS,
        )
        async with consumer, transactions, asyncio.timeout(2 * PATIENCE_SECONDS):
            async with transactions.transaction(eruca.Message("orders", "first")):
                pass
            assert await received.get() == b"first"

            async with transactions.transaction(eruca.Message("orders", "second")):
                group.kill(group.await_master())
            assert await received.get() == b"second"

            async with transactions.transaction(eruca.Message("orders", "third")):
                pass
            assert await received.get() == b"third"


async def test_without_a_master_consumers_read_on_and_skip_nothing(
    group: GroupOfProcesses, name_server: str
) -> None:
    """The standby that is left has less than the master had."""
    bodies = [Random(number).randbytes(1024**2) for number in range(12)]  # not compressible
    queue = eruca.MessageQueue("orders", GROUP, 0)
    async with eruca.AsyncClient(name_server) as client:
        await client.admin.create_topic("orders", queue_count=1)
        async with client.producer(copies=2) as producer:
            for body in bodies:
                await producer.send(eruca.Message("orders", body))
        master = group.await_master(copies=2)
        group.restart_without_its_beginning(3 - master, namesrv_urls=name_server)
        async with (
            client.pull_consumer(topics="orders", start="earliest") as far,
            client.pull_consumer(
                topics="orders",
                start="earliest",
                on_offset_out_of_range="nearest",
                prefetch_count_max=1,
            ) as behind,
        ):
            for number in range(11):
                [got] = await far.poll(1, wait_seconds=PATIENCE_SECONDS)
                assert got.queue_offset == number
            assert len(await behind.poll(1, wait_seconds=PATIENCE_SECONDS)) == 1

            await until_told(client.admin.brokers, lambda found: in_sync_standbys(found[0]))
            group.leave_without_a_master(master)
            await until_told(client.admin.brokers, has_only_a_standby)

            [got] = await far.poll(1, wait_seconds=PATIENCE_SECONDS)
            assert got.queue_offset == 11
            with pytest.raises(eruca.UnavailableError):
                await read_to_the_gap(behind, 1)
        async with eruca.AsyncClient(name_server, timeout_seconds=3) as impatient:
            for start in START_POSITIONS[:2]:
                async with impatient.pull_consumer(
                    "new", topics="orders", start=start, commit_seconds=None
                ) as new:
                    with pytest.raises(eruca.ErucaError) as refused:
                        await new.position(queue)
                    assert refused.value.retryable


async def read_to_the_gap(consumer: eruca.AsyncPullConsumer, offset: int) -> None:
    """Read messages from *offset* on, one after the other, until a replica refuses."""
    while True:
        with suppress(eruca.TransportError):  # of the former master
            for message in await consumer.poll(1, wait_seconds=1):
                assert message.queue_offset == offset
                offset += 1


def has_only_a_standby(found: list[eruca.BrokerGroup]) -> bool:
    """Tell whether a name server shows a broker's standby, and no master."""
    ids = {broker.broker_id for group in found for broker in group.brokers}
    return bool(ids) and MASTER_ID not in ids
