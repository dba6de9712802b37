"""Kafka through aiokafka: ``python -m bench.peers.clients.aiokafka_client HOST:PORT FSYNC``."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

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
    serve,
)

_BATCH_BYTES: Final = 1_000_000
_POLL_MS: Final = 1_000


class AiokafkaClient(Client):
    """A producer that sends at once, and a consumer for each round."""

    def __init__(self) -> None:
        self._keys = count()

    async def open(self, address: str) -> None:
        """Connect to the servers at *address*, and create what the workloads use."""
        self._address = address
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        configs = {"flush.messages": "1"} if sys.argv[2] == "fsync" else {}
        await admin.create_topics(
            [NewTopic(topic, QUEUES, 1, topic_configs=configs) for topic in (SENT, BACKLOG)]
        )
        await admin.close()
        self._producer = AIOKafkaProducer(
            bootstrap_servers=address, acks="all", linger_ms=0, max_batch_size=_BATCH_BYTES
        )
        await self._producer.start()

    async def send(self) -> None:
        """Send a message, and return when it is acknowledged."""
        await self._producer.send_and_wait(SENT, BODY, key=self._key())

    async def send_batch(self, target: str = SENT) -> None:
        """Send ``BATCH`` messages at once to *target*, and return when all are acknowledged."""
        await asyncio.gather(
            *[await self._producer.send(target, BODY, key=self._key()) for _ in range(BATCH)]
        )

    async def consume(self, row: str, group: str, counter: Counter) -> None:
        """Read the backlog as a new group from its beginning until the counter has ended."""
        consumer = AIOKafkaConsumer(
            BACKLOG,
            bootstrap_servers=self._address,
            group_id=group,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            if row == "handler":
                async for message in consumer:
                    await counter.handle(message.value)
                    if counter.ended.is_set():
                        break
                return
            count_max = HANDLED if row == "handlers32" else POLLED
            while not counter.ended.is_set():
                polled = await consumer.getmany(timeout_ms=_POLL_MS, max_records=count_max)
                for messages in polled.values():
                    await counter.handle_all([message.value for message in messages])
        finally:
            await consumer.stop()

    def _key(self) -> bytes:
        return b"key-%d" % next(self._keys)


if __name__ == "__main__":
    serve(AiokafkaClient())
