"""Delayed messages, some of which are recalled."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import eruca
from support.failover.works import Work, everything
from support.waiting import until_told

DELAYS_SECONDS: Final = (0.5, 9.0, 2.0, 14.0, 4.0, 6.5)  # some longer than a fail-over
RECALLED_EACH: Final = 5


class Reminders(Work):
    """A sender of delayed messages that recalls some of them at once, some later."""

    TOPIC: Final = "reminders"

    def __init__(self, client: eruca.AsyncClient) -> None:
        super().__init__()
        self.sent: dict[str, eruca.SendResult] = {}
        self.recalled: set[str] = set()
        self.in_doubt: set[str] = set()  # recalled, and the answer was lost
        self.found: list[eruca.ReceivedMessage] = []  # delivered, at the end
        self._client = client
        self._across: list[str] = []  # to be recalled after a change of the master

    async def run(self) -> None:
        await self._client.admin.create_topic(self.TOPIC, queue_count=2)
        async with self._client.producer(idempotent=True) as producer:
            while not self.is_over.is_set():
                number = len(self.sent)
                delay = DELAYS_SECONDS[number % len(DELAYS_SECONDS)]
                message = eruca.Message(self.TOPIC, str(number), delay_seconds=delay)
                self.sent[str(number)] = await producer.send(message)
                self.progress += 1
                if number % RECALLED_EACH == 0:
                    await self._recall(str(number))
                await asyncio.sleep(0.03)  # the pace of the load
        self.found = await until_told(
            lambda: everything(self._client, self.TOPIC), self._are_all_delivered
        )

    async def before(self) -> None:
        """Choose messages that this master is to deliver after the longest delay."""
        longest = DELAYS_SECONDS.index(max(DELAYS_SECONDS))
        late = [text for text in self.sent if int(text) % len(DELAYS_SECONDS) == longest]
        self._across = [text for text in late[-3:] if text not in self.recalled | self.in_doubt]

    async def after(self) -> None:
        """Recall them at the next."""
        for text in self._across:
            await self._recall(text)

    async def _recall(self, text: str) -> None:
        handle = self.sent[text].recall_handle
        assert handle is not None
        try:
            await self._client.admin.recall_scheduled(handle)
        except eruca.AlreadyDeliveredError:
            return
        except eruca.ErucaError:
            self.in_doubt.add(text)
        else:
            self.recalled.add(text)

    def _are_all_delivered(self, found: list[eruca.ReceivedMessage]) -> bool:
        delivered = Counter(message.text() for message in found)
        return delivered.keys() >= self.sent.keys() - self.recalled - self.in_doubt
