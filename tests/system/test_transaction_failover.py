"""Transactions while brokers are killed: what was done is delivered once, and nothing else is."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import eruca
from eruca.contract.transactions import TransactionSummary
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.waiting import until_told

pytestmark = pytest.mark.anyio

TOPIC = "failover"
GROUP = "failover-group"
COUNT = 400
CLERKS = 16
KILLS = 3
SETTINGS = SMALL_STORE | {
    "ERUCA_TXN_CHECKER_TIMEOUT_SECONDS": "2",
    "ERUCA_TXN_CHECKER_INTERVAL_SECONDS": "1",
    "ERUCA_TXN_CHECKER_CHECKS_MAX": "100",
}


class Work:
    """The local work of all transactions, and what is known of it."""

    def __init__(self) -> None:
        self.done: dict[str, str] = {}  # by transaction, what was done
        self.never: set[str] = set()  # transactions of which it was said that it was not

    async def check(self, asked: eruca.TransactionCheck) -> eruca.Verdict:
        if asked.transaction_id in self.done:
            return "commit"
        self.never.add(asked.transaction_id)
        return "rollback"

    async def execute(self, half: eruca.HalfMessage) -> eruca.Verdict:
        assert half.transaction_id not in self.never
        number = int(half.message.body)
        if number % 4 == 0:
            return "rollback"
        self.done[half.transaction_id] = half.message.body.decode()
        return "unknown" if number % 4 == 1 else "commit"


@pytest.mark.parametrize("latency_fault", [False, True])
async def test_each_message_whose_work_was_done_is_delivered_once(latency_fault: bool) -> None:
    work = Work()
    failed = 0
    async with (
        LocalCluster(brokers=3, txn_checkers=1, settings=SETTINGS) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await client.admin.create_topic(TOPIC, queue_count=2)
        clerks = asyncio.Semaphore(CLERKS)

        async def send(number: int) -> None:
            nonlocal failed
            async with clerks:
                try:
                    await producer.send_in_transaction(
                        eruca.Message(TOPIC, str(number)), work.execute
                    )
                except eruca.SendFailedError:
                    failed += 1

        async with client.transaction_producer(
            GROUP, check=work.check, latency_fault=latency_fault
        ) as producer:
            sending = [asyncio.create_task(send(number)) for number in range(COUNT)]
            for kill in range(KILLS):
                await asyncio.wait(sending[: COUNT * (kill + 1) // (KILLS + 1)])
                name = f"broker-{'abc'[kill % 3]}"
                await cluster.kill(name)
                await cluster.restart(name)
            await asyncio.gather(*sending)
            await until_decided(client)
        delivered = await everything(client)

    assert delivered == Counter(work.done.values())
    assert failed < COUNT / 2
    assert len(work.done) > COUNT / 4


async def until_decided(client: eruca.AsyncClient) -> None:
    async def undecided() -> list[TransactionSummary]:
        found = client.admin.transactions.undecided(producer_group=GROUP)
        return [transaction async for transaction in found]

    await until_told(undecided, lambda left: not left)


async def everything(client: eruca.AsyncClient) -> Counter[str]:
    """Return what the topic holds."""
    queues = await client.admin.queues(TOPIC)
    left = sum(offsets.max_offset - offsets.min_offset for offsets in queues.values())
    delivered: Counter[str] = Counter()
    async with client.pull_consumer(topics=TOPIC) as consumer:
        while delivered.total() < left:
            delivered.update(message.text() for message in await consumer.poll(wait_seconds=20))
    return delivered
