"""A shop whose transactions are decided by itself, by a check, or only after the master changed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

import eruca
from eruca.contract.transactions import TransactionSummary
from support.failover.works import Work
from support.waiting import until_told

TASKS: Final = 3


class Shop(Work):
    """Tasks that share a transaction producer; the checker asks about what they leave open."""

    TOPIC: Final = "purchases"
    GROUP: Final = "shop"

    def __init__(self, client: eruca.AsyncClient) -> None:
        super().__init__()
        self.done: dict[str, str] = {}  # by transaction, what was done
        self.never: dict[str, str] = {}  # by transaction, what was not, and never will be
        self.checked = 0  # checks that were answered
        self._client = client
        self._producer: eruca.AsyncTransactionProducer | None = None
        self._across: AsyncExitStack | None = None  # a transaction across a change of the master

    async def run(self) -> None:
        await self._client.admin.create_topic(self.TOPIC, queue_count=2)
        async with self._client.transaction_producer(self.GROUP, check=self._check) as producer:
            self._producer = producer
            async with asyncio.TaskGroup() as tasks:
                for name in range(TASKS):
                    tasks.create_task(self._buy(producer, name))
            await until_told(self._undecided, lambda left: not left)

    async def before(self) -> None:
        """Store a half message at this master, to be decided at the next."""
        assert self._producer is not None
        self._across = AsyncExitStack()
        text = f"across-{len(self.done)}"
        transaction = await self._across.enter_async_context(
            self._producer.transaction(eruca.Message(self.TOPIC, text))
        )
        self.done[transaction.transaction_id] = text

    async def after(self) -> None:
        """Commit it."""
        assert self._across is not None
        await self._across.aclose()
        self._across = None

    async def _buy(self, producer: eruca.AsyncTransactionProducer, name: int) -> None:
        number = 0
        while not self.is_over.is_set():
            message = eruca.Message(self.TOPIC, f"{name}-{number}")
            await producer.send_in_transaction(message, self._execute)
            self.progress += 1
            number += 1
            await self.pause()

    async def _execute(self, half: eruca.HalfMessage) -> eruca.Verdict:
        assert half.transaction_id not in self.never
        text = half.message.body.decode()
        number = int(text.rpartition("-")[2])
        if number % 4 == 0:
            self.never[half.transaction_id] = text
            return "rollback"
        self.done[half.transaction_id] = text
        return "unknown" if number % 4 == 1 else "commit"

    async def _check(self, asked: eruca.TransactionCheck) -> eruca.Verdict:
        self.checked += 1
        if asked.transaction_id in self.done:
            return "commit"
        self.never[asked.transaction_id] = asked.message.text()
        return "rollback"

    async def _undecided(self) -> list[TransactionSummary]:
        found = self._client.admin.transactions.undecided(producer_group=self.GROUP)
        return [transaction async for transaction in found]
