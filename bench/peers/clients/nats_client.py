"""NATS JetStream through nats-py: ``python -m bench.peers.clients.nats_client URL``."""

from __future__ import annotations

import asyncio
from typing import Final

import nats
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig

from bench.peers.clients.workload import (
    BACKLOG,
    BATCH,
    BODY,
    HANDLED,
    POLLED,
    SENT,
    Client,
    Counter,
    serve,
)

_FETCH_SECONDS: Final = 5.0


class NatsClient(Client):
    """A connection, and a durable consumer for each round."""

    async def open(self, address: str) -> None:
        """Connect to the servers at *address*, and create what the workloads use."""
        connection = await nats.connect(address)
        self._stream = connection.jetstream()
        for name in (SENT, BACKLOG):
            await self._stream.add_stream(
                StreamConfig(name=name, subjects=[name], storage=StorageType.FILE)
            )

    async def send(self) -> None:
        """Send a message, and return when it is acknowledged."""
        await self._stream.publish(SENT, BODY)

    async def send_batch(self, target: str = SENT) -> None:
        """Send ``BATCH`` messages at once to *target*, and return when all are acknowledged."""
        await asyncio.gather(
            *[await self._stream.publish_async(target, BODY) for _ in range(BATCH)]
        )

    async def consume(self, row: str, group: str, counter: Counter) -> None:
        """Read the backlog as a new group from its beginning until the counter has ended."""
        if row == "handler":
            await self._handle_each(group, counter)
            return
        subscription = await self._stream.pull_subscribe(
            BACKLOG,
            durable=group,
            config=ConsumerConfig(
                ack_policy=AckPolicy.ALL, deliver_policy=DeliverPolicy.ALL, max_ack_pending=-1
            ),
        )
        count_max = HANDLED if row == "handlers32" else POLLED
        while not counter.ended.is_set():
            messages = await subscription.fetch(count_max, timeout=_FETCH_SECONDS)
            await counter.handle_all([message.data for message in messages])
            await messages[-1].ack()  # acknowledges all of them
        await subscription.unsubscribe()

    async def _handle_each(self, group: str, counter: Counter) -> None:
        """Handle messages that the server pushes, each acknowledged: faster than by pulls."""

        async def one(message: Msg) -> None:
            await counter.handle(message.data)

        subscription = await self._stream.subscribe(BACKLOG, durable=group, cb=one)
        await counter.ended.wait()
        await subscription.unsubscribe()


if __name__ == "__main__":
    serve(NatsClient())
