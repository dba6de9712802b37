"""Kafka through confluent-kafka: ``python -m bench.peers.clients.kafka_client HOST:PORT FSYNC``."""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import count
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.clients.workload import (
    BACKLOG,
    BATCH,
    BODY,
    HANDLED,
    IN_FLIGHT,
    POLLED,
    QUEUES,
    SENT,
    Client,
    Counter,
    serve,
)

_POLL_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 30.0
_ROWS: Final = {"handler": 1, "handlers32": HANDLED, "pulls": POLLED}


def topic_configs() -> dict[str, str]:
    """Return the settings of topics: whether each message is flushed before its acknowledgement."""
    return {"flush.messages": "1"} if sys.argv[2] == "fsync" else {}


class KafkaClient(Client):
    """A producer that sends at once, and a consumer for each round."""

    def __init__(self) -> None:
        self._keys = count()
        self._failure: KafkaError | None = None

    async def open(self, address: str) -> None:
        """Connect to the servers at *address*, and create what the workloads use."""
        self._address = address
        admin = AdminClient({"bootstrap.servers": address})
        topics = [NewTopic(topic, QUEUES, 1, config=topic_configs()) for topic in (SENT, BACKLOG)]
        for future in admin.create_topics(topics).values():
            future.result()
        self._producer = Producer(
            {"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "batch.size": 2_000_000}
        )

    async def send(self) -> None:
        """Send a message, and return when it is acknowledged."""
        self._produce(SENT)
        self._flush()

    async def send_batch(self, target: str = SENT) -> None:
        """Send ``BATCH`` messages at once to *target*, and return when all are acknowledged."""
        for _ in range(BATCH):
            self._produce(target)
        self._flush()

    async def many(self, ends_at: float) -> int:
        """Keep 64 messages in flight until the time is up; return their number."""
        sent = 0
        while time.perf_counter() < ends_at:
            while len(self._producer) < IN_FLIGHT:
                self._produce(SENT)
                sent += 1
            self._producer.poll(_POLL_SECONDS)
        self._flush()
        return sent

    async def consume(self, row: str, group: str, counter: Counter) -> None:
        """Read the backlog as a new group from its beginning until the counter has ended."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": group,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([BACKLOG])
        try:
            while not counter.ended.is_set():
                messages = _polled(consumer, _ROWS[row])
                if row == "handler":
                    for message in messages:
                        await counter.handle(_body(message))
                else:
                    await counter.handle_all([_body(message) for message in messages])
                await asyncio.sleep(0)  # lets the time limit work
        finally:
            consumer.close()

    def _produce(self, topic: str) -> None:
        self._producer.produce(
            topic, BODY, key=f"key-{next(self._keys)}", on_delivery=self._delivered
        )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._failure = error or self._failure

    def _flush(self) -> None:
        left = self._producer.flush(_FLUSH_SECONDS)
        if left or self._failure is not None:
            raise RuntimeError(f"{left} messages not sent: {self._failure}")


def _polled(consumer: Consumer, count_max: int) -> list[Message]:
    if count_max > 1:
        messages: list[Message] = consumer.consume(count_max, _POLL_SECONDS)
        return messages
    message = consumer.poll(_POLL_SECONDS)
    return [] if message is None else [message]


def _body(message: Message) -> bytes:
    if message.error() is not None:
        raise RuntimeError(str(message.error()))
    body = message.value()
    assert isinstance(body, bytes)
    return body


if __name__ == "__main__":
    serve(KafkaClient())
