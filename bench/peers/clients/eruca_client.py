"""Eruca through its SDK: ``python -m bench.peers.clients.eruca_client NAMESRV_URL``."""

from __future__ import annotations

import itertools
from typing import Any, Final

import eruca
from bench.peers.clients.workload import (
    BACKLOG,
    BATCH,
    BODY,
    HANDLED,
    POLLED,
    QUEUES,
    SENT,
    Client,
    Counter,
    repeated,
    serve,
    together,
)
from eruca.core.messages.accelerators import loading_numpy

_DELAY_SECONDS: Final = 3_600.0
_GROUP: Final = "peers"


class ErucaClient(Client):
    """A producer, a transaction producer, and a consumer for each round."""

    def __init__(self) -> None:
        self._keys = itertools.count()

    async def open(self, address: str) -> None:
        """Connect to the servers at *address*, and create what the workloads use."""
        loading_numpy().result()
        self._client = eruca.AsyncClient(address)
        for topic in (SENT, BACKLOG):
            await self._client.admin.create_topic(topic, queue_count=QUEUES)
        self._producer = self._client.producer()
        self._transactions = self._client.transaction_producer(_GROUP)
        self._unawaited = self._client.transaction_producer(_GROUP, await_decisions=False)
        for transactions in (self._transactions, self._unawaited):
            await transactions.start()

    async def send(self) -> None:
        """Send a message, and return when it is acknowledged."""
        await self._producer.send(self._message(SENT))

    async def send_batch(self, target: str = SENT) -> None:
        """Send ``BATCH`` messages at once to *target*, and return when all are acknowledged."""
        await self._producer.send_many([self._message(target) for _ in range(BATCH)])

    async def fill(self, count: int) -> int:
        """Put messages into the backlog; return their number."""
        self._keys = itertools.count()
        return await super().fill(count)

    async def row(self, row: str, ends_at: float) -> int:
        """Run a row of sends or look-ups until the time is up; return the number of messages."""
        if row == "delayed":
            return await together(self._send_delayed, ends_at)
        if row == "transactions":
            return await repeated(self._transact, 1, ends_at)
        if row == "transactions-many":
            return await together(self._transact, ends_at)
        if row == "transactions-unawaited":
            return await repeated(self._transact_unawaited, 1, ends_at)
        if row == "transactions-unawaited-many":
            return await together(self._transact_unawaited, ends_at)
        if row == "key":
            return await repeated(self._look_up, 1, ends_at)
        return await super().row(row, ends_at)

    async def consume(self, row: str, group: str, counter: Counter) -> None:
        """Read the backlog as a new group from its beginning until the counter has ended."""
        if row == "pulls":
            async with self._client.pull_consumer(
                group, topics=[BACKLOG], start="earliest"
            ) as pulling:
                while not counter.ended.is_set():
                    for message in await pulling.poll(POLLED):
                        counter.add(message.body)
            return

        async def one(message: eruca.ReceivedMessage) -> None:
            counter.add(message.body)

        async def several(messages: list[eruca.ReceivedMessage]) -> None:
            for message in messages:
                counter.add(message.body)

        is_one = row == "handler"
        consumer = self._client.push_consumer(
            group, start="earliest", batch_count_max=1 if is_one else HANDLED
        )
        handler: Any = one if is_one else several
        consumer.subscribe(BACKLOG, handler=handler)
        async with consumer:
            await counter.ended.wait()

    async def _send_delayed(self) -> None:
        await self._producer.send(
            eruca.Message(
                SENT, BODY, tag="AA", keys=f"key-{next(self._keys)}", delay_seconds=_DELAY_SECONDS
            )
        )

    async def _transact(self) -> None:
        result = await self._transactions.send_in_transaction(self._message(SENT), _at_once)
        assert result.is_decided

    async def _transact_unawaited(self) -> None:
        await self._unawaited.send_in_transaction(self._message(SENT), _at_once)

    async def _look_up(self) -> None:
        key = f"key-{next(self._keys) % self.backlog}"
        found = await self._client.admin.messages_by_key(BACKLOG, key)
        assert len(found) == 1, f"found {len(found)} messages by {key}"

    def _message(self, topic: str) -> eruca.Message:
        return eruca.Message(topic, BODY, tag="AA", keys=f"key-{next(self._keys)}")


async def _at_once(_half: eruca.HalfMessage) -> eruca.Verdict:
    """Be local work that takes no time."""
    return "commit"


if __name__ == "__main__":
    serve(ErucaClient())
