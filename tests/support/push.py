"""Sending, and waiting, around push consumers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import eruca
from eruca.core.consuming.push_settings import PushSettings
from support.waiting import until


def push_settings(group: str = "billing", **given: Any) -> PushSettings:  # noqa: ANN401
    """Return a push consumer's settings, by the client's defaults where nothing is given."""
    parameters = inspect.signature(eruca.AsyncClient.push_consumer).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    return PushSettings(group=group, **{**defaults, **given})


async def send(
    client: eruca.AsyncClient, topic: str, bodies: Iterable[object], *, key: str | None = None
) -> Sequence[eruca.SendResult]:
    """Send a message for each body."""
    messages = [eruca.Message(topic, str(body), sharding_key=key) for body in bodies]
    async with client.producer(batching=eruca.Batching(count_max=7)) as producer:
        return await producer.send_many(messages)


async def committed(client: eruca.AsyncClient, group: str, topic: str) -> int:
    """Return the sum of the group's committed offsets in a topic."""
    view = await client.context.routes.subscribe_view(topic)
    total = 0
    for urls in view.urls.values():
        answer = await client.context.broker_api.group_offsets(urls[0], group, topic)
        total += sum(offset.committed_offset or 0 for offset in answer.offsets)
    return total


async def until_shared(
    consumers: list[eruca.AsyncPushConsumer],
    topic: str,
    *,
    queues: int,
    within_seconds: float = 20,
) -> None:
    """Wait until the consumers hold all queues of a topic, as evenly as can be."""
    size, rest = divmod(queues, len(consumers))
    shares = sorted([size + 1] * rest + [size] * (len(consumers) - rest))

    def is_shared() -> bool:
        held = [[q for q in c.assignment if q.topic == topic] for c in consumers]
        return sorted(map(len, held)) == shares

    await until(is_shared, within_seconds=within_seconds)


class Gatherer:
    """A handler that keeps what it gets, and lets a test wait for it."""

    def __init__(self) -> None:
        self.messages: list[eruca.ReceivedMessage] = []

    async def __call__(self, message: eruca.ReceivedMessage) -> None:
        self.messages.append(message)

    @property
    def texts(self) -> list[str]:
        """The texts of the received messages."""
        return [message.text() for message in self.messages]

    async def until_count(self, count: int) -> None:
        """Wait until it has got so many."""
        await until(lambda: len(self.messages) >= count)
