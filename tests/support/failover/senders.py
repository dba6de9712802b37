"""Producers of an unordered and of an ordered topic, and the groups that handle their messages."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Final, NamedTuple

import eruca
from support.failover.works import Work
from support.waiting import until

TASKS: Final = 3
KEYS: Final = 6


class Senders(Work):
    """Tasks that share a producer; each sends a message once the one before is acknowledged.

    Args:
        client: Of the cluster.
        topic: The topic to send to.
        idempotent: Whether brokers prevent duplicates.
    """

    def __init__(self, client: eruca.AsyncClient, topic: str, *, idempotent: bool) -> None:
        super().__init__()
        self.acknowledged: dict[str, eruca.SendResult] = {}
        self.has_ended = asyncio.Event()  # nothing more will be acknowledged
        self._client = client
        self._topic = topic
        self._idempotent = idempotent

    async def run(self) -> None:
        async with (
            self._client.producer(idempotent=self._idempotent) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            for name in range(TASKS):
                tasks.create_task(self._send_on(producer, name))
        self.has_ended.set()

    async def _send_on(self, producer: eruca.AsyncProducer, name: int) -> None:
        number = 0
        while not self.is_over.is_set():
            text = f"{self._topic}-{name}-{number}"
            message = eruca.Message(self._topic, text, keys=[text])
            self.acknowledged[text] = await producer.send(message)
            self.progress += 1
            number += 1
            await self.pause()


class Handling(NamedTuple):
    """One call of the ordered group's handler."""

    member: int
    queue: eruca.MessageQueue
    key: str
    number: int


class Accounts(Work):
    """A ledger: an ordered topic, a task for each sharding key, and two members of one group."""

    TOPIC: Final = "ledger"

    def __init__(self, client: eruca.AsyncClient) -> None:
        super().__init__()
        self.sent: dict[str, int] = {}  # by key, how many are acknowledged
        self.handled: list[Handling] = []  # in the order of their beginnings
        self.overlaps: list[tuple[Handling, Handling]] = []  # two handlers of one queue at a time
        self._client = client
        self._running: dict[eruca.MessageQueue, Handling] = {}

    async def run(self) -> None:
        await self._client.admin.create_topic(self.TOPIC, queue_count=4, ordered=True)
        async with self._member(0), self._member(1):
            async with (
                self._client.producer(idempotent=True) as producer,
                asyncio.TaskGroup() as tasks,
            ):
                for name in range(KEYS):
                    tasks.create_task(self._send_on(producer, f"account-{name}"))
            await until(self._has_all)

    async def _send_on(self, producer: eruca.AsyncProducer, key: str) -> None:
        self.sent[key] = 0
        while not self.is_over.is_set():
            body = f"{key}:{self.sent[key]}"
            await producer.send(eruca.Message(self.TOPIC, body, sharding_key=key))
            self.sent[key] += 1
            await self.pause()

    def _member(self, name: int) -> eruca.AsyncPushConsumer:
        member = self._client.push_consumer(
            "accountants",
            start="earliest",
            ordered=True,
            offsets=eruca.Offsets(commit_seconds=0.1),
        )

        @member.on(self.TOPIC)
        async def handle(message: eruca.ReceivedMessage) -> None:
            key, number = message.text().split(":")
            handling = Handling(name, message.queue, key, int(number))
            if (other := self._running.get(message.queue)) is not None:
                self.overlaps.append((other, handling))
            self._running[message.queue] = handling
            self.handled.append(handling)
            await self.pause()
            del self._running[message.queue]
            self.progress += 1

        return member

    def numbers(self) -> dict[str, list[int]]:
        """Return the handled numbers of each key, in their order."""
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for handling in self.handled:
            numbers[handling.key].append(handling.number)
        return dict(numbers)

    def _has_all(self) -> bool:
        counts = {key: len(set(numbers)) for key, numbers in self.numbers().items()}
        return counts == {key: count for key, count in self.sent.items() if count}


class Handlers(Work):
    """Three members of a group that handle a topic's messages in any order.

    Args:
        client: Of the cluster.
        senders: Whose messages they handle.
        topic: Their topic.
    """

    GROUP: Final = "handlers"

    def __init__(self, client: eruca.AsyncClient, senders: Senders, topic: str) -> None:
        super().__init__()
        self.handled: Counter[str] = Counter()
        self.passed: list[tuple[eruca.MessageQueue, int]] = []  # commits beyond what was handled
        self._offsets: defaultdict[eruca.MessageQueue, set[int]] = defaultdict(set)
        self._client = client
        self._senders = senders
        self._topic = topic

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch_commits())
            async with self._member(), self._member(), self._member():
                await self.is_over.wait()
                await until(lambda: self._senders.has_ended.is_set() and self._has_all())
            await watching

    def _member(self) -> eruca.AsyncPushConsumer:
        member = self._client.push_consumer(
            self.GROUP, start="earliest", offsets=eruca.Offsets(commit_seconds=0.1)
        )

        @member.on(self._topic)
        async def handle(message: eruca.ReceivedMessage) -> None:
            self.handled[message.text()] += 1
            self._offsets[message.queue].add(message.queue_offset)
            self.progress += 1

        return member

    async def _watch_commits(self) -> None:
        """Note the committed offsets, again and again."""
        while not self.is_over.is_set():
            try:
                offsets = await self._client.admin.groups.offsets(self.GROUP, topic=self._topic)
            except eruca.ErucaError:
                offsets = {}  # the group is not there yet, or no broker answers
            for queue, offset in offsets.items():
                committed = offset.committed_offset or 0
                if not self._offsets[queue].issuperset(range(committed)):
                    self.passed.append((queue, committed))
            await asyncio.sleep(0.1)  # the pace of the watch

    def _has_all(self) -> bool:
        return self.handled.keys() >= self._senders.acknowledged.keys()
