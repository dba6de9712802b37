"""Couriers: clients that receive under a lease, and finish, reject or forget what they received."""

from __future__ import annotations

import asyncio
from typing import Final

import eruca
from support.failover.works import Work
from support.waiting import until

COURIERS: Final = 3
LEASE_SECONDS: Final = 3.0
LONG_LEASE_SECONDS: Final = 300.0  # across a change of the master, on any machine


class Parcels(Work):
    """A sender, and couriers of one group."""

    TOPIC: Final = "parcels"
    GROUP: Final = "couriers"

    def __init__(self, client: eruca.AsyncClient) -> None:
        super().__init__()
        self.sent: set[str] = set()
        self.finished: set[str] = set()  # acknowledged, and the broker has confirmed that
        self.perhaps: set[str] = set()  # acknowledged, and the answer was lost
        self.again: list[str] = []  # received although they were finished
        self._client = client

    async def run(self) -> None:
        await self._client.admin.create_topic(self.TOPIC, queue_count=2)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send())
            carrying = [tasks.create_task(self._carry(name)) for name in range(COURIERS)]
            await self.is_over.wait()
            await until(lambda: self.sent <= self.finished | self.perhaps)
            for task in carrying:
                task.cancel()

    async def _send(self) -> None:
        async with self._client.producer(idempotent=True) as producer:
            while not self.is_over.is_set():
                text = str(len(self.sent))
                await producer.send(eruca.Message(self.TOPIC, text))
                self.sent.add(text)
                await self.pause()

    async def _carry(self, name: int) -> None:
        consumer = self._client.simple_consumer(
            self.GROUP, self.TOPIC, start="earliest", invisible_seconds=LEASE_SECONDS
        )
        turn = name
        async with consumer:
            while True:
                finished = set(self.finished)  # before the request
                deliveries = await received(consumer, 8)
                got = {delivery.message.text() for delivery in deliveries}
                self.again += sorted(got & finished)
                turn += 1
                if turn % 7 == 0:
                    continue  # forgotten: redelivered once the lease has expired
                await self._end(consumer, deliveries, got, is_nack=turn % 5 == 0)

    async def _end(
        self,
        consumer: eruca.AsyncSimpleConsumer,
        deliveries: list[eruca.Delivery],
        got: set[str],
        *,
        is_nack: bool,
    ) -> None:
        try:
            if is_nack:
                await consumer.nack(deliveries, delay_seconds=1)
            else:
                await consumer.ack(deliveries)
                self.finished |= got
                self.progress += len(got)
        except (eruca.StaleHandleError, eruca.ExpiredHandleError):
            pass  # redelivered: this courier's lease has ended
        except eruca.ErucaError:
            if not is_nack:
                self.perhaps |= got


async def received(consumer: eruca.AsyncSimpleConsumer, count_max: int) -> list[eruca.Delivery]:
    """Receive some messages, however long it takes: without a master the request fails."""
    while True:
        try:
            if deliveries := await consumer.receive(count_max, wait_seconds=1):
                return deliveries
        except eruca.ErucaError:
            await asyncio.sleep(0.1)  # the pace of the retries


class Leases(Work):
    """One client that leases messages of one master, and finishes them at the next."""

    GROUP: Final = "leases"

    def __init__(self, client: eruca.AsyncClient, topic: str) -> None:
        super().__init__()
        self.stale: list[eruca.ErucaError] = []  # refusals of handles that were used up
        self.finished: list[str] = []
        self.redelivered: list[str] = []  # finished messages that were delivered once more
        self._consumer = client.simple_consumer(
            self.GROUP, topic, start="earliest", invisible_seconds=LONG_LEASE_SECONDS
        )
        self._held: list[eruca.Delivery] = []

    async def run(self) -> None:
        await self.is_over.wait()
        while rest := await self._consumer.receive(32, wait_seconds=1):
            self._check_new(rest)
            await self._consumer.ack(rest)
            self._finish(rest)

    async def before(self) -> None:
        """Lease three messages, and finish the first one."""
        self._held = []
        while len(self._held) < 3:
            self._held += await received(self._consumer, 3 - len(self._held))
        self._check_new(self._held)
        await self._consumer.ack(self._held[0])
        self._finish(self._held[:1])

    async def after(self) -> None:
        """Finish the second by its old handle, and the third by the handle of a redelivery."""
        used, kept, rejected = self._held
        await self._consumer.ack(kept)
        self._finish([kept])
        await self._consumer.nack(rejected, delay_seconds=0)
        again: list[eruca.Delivery] = []
        while not any(one.message.text() == rejected.message.text() for one in again):
            again += await received(self._consumer, 1)
        for handle in (used, kept, rejected):
            try:
                await self._consumer.ack(handle)
            except (eruca.StaleHandleError, eruca.ExpiredHandleError) as error:
                self.stale.append(error)
        await self._consumer.ack(again)  # their leases have not been touched
        self._check_new(again)
        self._finish(again)
        self.progress += 1

    def _check_new(self, deliveries: list[eruca.Delivery]) -> None:
        got = {delivery.message.text() for delivery in deliveries}
        self.redelivered += sorted(got.intersection(self.finished))

    def _finish(self, deliveries: list[eruca.Delivery]) -> None:
        self.finished += [delivery.message.text() for delivery in deliveries]
