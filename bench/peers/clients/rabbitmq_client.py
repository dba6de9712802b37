"""RabbitMQ through aio-pika: ``python -m bench.peers.clients.rabbitmq_client URL FSYNC``.

With fsync, messages are persistent in a quorum queue, which flushes each group of them. Without,
they are transient in a classic queue. A queue loses what is consumed, so the backlog is put into a
new queue before each round, and is smaller than others'.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.peers.clients.workload import BATCH, BODY, HANDLED, SENT, Client, Counter, serve

_BACKLOG_MAX: Final = 10_000
_PREFETCH: Final = 1_000


class RabbitClient(Client):
    """A channel with publisher confirms for sends, and a connection for each round's consumer."""

    async def open(self, address: str) -> None:
        """Connect to the servers at *address*, and create what the workloads use."""
        self._address = address
        self._is_durable = sys.argv[2] == "fsync"
        connection = await aio_pika.connect(address)
        self._channel = await connection.channel(publisher_confirms=True)
        await self._declare(SENT)

    async def send(self) -> None:
        """Send a message, and return when it is acknowledged."""
        await self._publish(SENT)

    async def send_batch(self, target: str = SENT) -> None:
        """Send ``BATCH`` messages at once to *target*, and return when all are acknowledged."""
        await asyncio.gather(*[self._publish(target) for _ in range(BATCH)])

    async def fill(self, count: int) -> int:
        """Return the number of messages that each round puts into its own queue."""
        return min(count, _BACKLOG_MAX)

    async def consume(self, row: str, group: str, counter: Counter) -> None:
        """Fill a queue, and read it until the counter has ended."""
        await self._declare(group)
        for _ in range(0, self.backlog, BATCH):
            await self.send_batch(group)
        async with await aio_pika.connect(self._address) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=_PREFETCH)
            queue = await channel.get_queue(group)
            waiting: list[AbstractIncomingMessage] = []

            async def one(message: AbstractIncomingMessage) -> None:
                if counter.ended.is_set():
                    return
                await counter.handle(message.body)
                await message.ack()

            async def several(message: AbstractIncomingMessage) -> None:
                waiting.append(message)
                if counter.ended.is_set():
                    return
                if len(waiting) == HANDLED or counter.number + len(waiting) == self.backlog:
                    handled = waiting[:]
                    waiting.clear()
                    await counter.handle_all([message.body for message in handled])
                    await handled[-1].ack(multiple=True)

            await queue.consume(one if row == "handler" else several)
            await counter.ended.wait()
        await self._channel.queue_delete(group)

    async def _declare(self, name: str) -> None:
        arguments = {"x-queue-type": "quorum" if self._is_durable else "classic"}
        await self._channel.declare_queue(name, durable=True, arguments=arguments)

    async def _publish(self, queue: str) -> None:
        mode = aio_pika.DeliveryMode(2 if self._is_durable else 1)
        message = aio_pika.Message(BODY, delivery_mode=mode)
        await self._channel.default_exchange.publish(message, routing_key=queue)


if __name__ == "__main__":
    serve(RabbitClient())
