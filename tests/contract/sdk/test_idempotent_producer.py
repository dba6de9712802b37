"""An idempotent producer: answers are lost, and each message is there once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

import eruca
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.transport import HttpResponse, HttpTransport
from eruca.contract.errors import TransportError
from eruca.contract.records import Buffer
from support.in_process_cluster import InProcessCluster

pytestmark = pytest.mark.anyio

PATIENCE = 60.0  # seconds for all attempts together, on a machine that is busy


class LostAnswers:
    """A network that brings every request to its broker, and loses every second answer to one."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport
        self.urls: list[str] = []
        self._turn = 0

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> HttpResponse:
        """Return every second answer."""
        answer = await self._transport.request(
            method, url, target, headers=headers, body=body, timeout=timeout
        )
        if method == "POST" and "/topics/" in target:
            self.urls.append(url)
            self._turn += 1
            if self._turn % 2:
                raise TransportError("the answer was lost")
        return answer

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.close()


@asynccontextmanager
async def forgetful_client(
    cluster: InProcessCluster,
) -> AsyncIterator[tuple[eruca.AsyncClient, LostAnswers]]:
    network = LostAnswers(Http1Transport())
    async with eruca.AsyncClient(cluster.namesrv_urls, hot_transport=network) as client:
        yield client, network


async def bodies(client: eruca.AsyncClient, topic: str) -> list[str]:
    """Return the bodies of everything in *topic*, sorted."""
    offsets = await client.admin.queues(topic)
    left = sum(queue.max_offset - queue.min_offset for queue in offsets.values())
    found: list[str] = []
    async with client.pull_consumer(topics=topic) as consumer:
        while len(found) < left:
            found += [message.text() for message in await consumer.poll()]
    return sorted(found)


async def test_each_message_is_stored_once_whatever_answers_are_lost(
    cluster: InProcessCluster, client: eruca.AsyncClient, topic: str
) -> None:
    async with (
        forgetful_client(cluster) as (lossy, network),
        lossy.producer(
            idempotent=True,
            retries_max=20,
            send_timeout_seconds=PATIENCE,
            batching=eruca.Batching(count_max=7),
        ) as producer,
    ):
        results = await asyncio.gather(
            *(producer.send(eruca.Message(topic, f"{number:03}")) for number in range(60))
        )
        alone = [await producer.send(eruca.Message(topic, f"1{n:02}")) for n in range(5)]
    results += alone

    assert len(network.urls) > len({result.log_offset for result in alone})
    assert any(result.replayed for result in results)
    assert len({(result.queue, result.queue_offset) for result in results}) == 65
    assert await bodies(client, topic) == [f"{n:03}" for n in (*range(60), *range(100, 105))]


async def test_many_at_once_and_such_as_are_delivered_later_are_stored_once(
    cluster: InProcessCluster, client: eruca.AsyncClient, topic: str
) -> None:
    messages = [eruca.Message(topic, f"{number:03}") for number in range(100)]
    later = [eruca.Message(topic, "later", delay_seconds=3_600) for _ in range(3)]
    async with (
        forgetful_client(cluster) as (lossy, _),
        lossy.producer(idempotent=True, retries_max=20, send_timeout_seconds=PATIENCE) as producer,
    ):
        results = await producer.send_many(messages)
        waiting = await producer.send_many(later)

    assert await bodies(client, topic) == [f"{n:03}" for n in range(100)]
    assert all(result.replayed for result in results)
    assert all(result.replayed and result.deliver_at is not None for result in waiting)
    ids = {result.message_id for result in waiting}
    scheduled = [item async for item in client.admin.scheduled(topic)]
    assert sorted(item.message.message_id or "" for item in scheduled) == sorted(ids)


async def test_a_retry_stays_with_the_broker_that_may_have_stored_it(
    cluster: InProcessCluster, topic: str
) -> None:
    async with (
        forgetful_client(cluster) as (lossy, network),
        lossy.producer(idempotent=True, send_timeout_seconds=PATIENCE) as producer,
    ):
        for _ in range(4):
            await producer.send(eruca.Message(topic, "x"))

    pairs = list(zip(network.urls[::2], network.urls[1::2], strict=True))
    assert len(pairs) == 4
    assert all(first == second for first, second in pairs)


async def test_without_it_a_lost_answer_stores_a_message_twice(
    cluster: InProcessCluster, client: eruca.AsyncClient, topic: str
) -> None:
    async with (
        forgetful_client(cluster) as (lossy, _),
        lossy.producer(send_timeout_seconds=PATIENCE) as producer,
    ):
        result = await producer.send(eruca.Message(topic, "x"))

    assert not result.replayed
    assert await bodies(client, topic) == ["x", "x"]


async def test_an_id_that_cannot_be_a_key_is_refused_alone(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer(idempotent=True) as producer:
        outcomes = await asyncio.gather(
            producer.send(eruca.Message(topic, "a", message_id="größer")),
            producer.send(eruca.Message(topic, "b")),
            return_exceptions=True,
        )

    assert isinstance(outcomes[0], eruca.ValidationError)
    assert isinstance(outcomes[1], eruca.SendResult)


async def test_other_content_under_an_id_is_refused_as_the_same_class(
    client: eruca.AsyncClient, topic: str
) -> None:
    queue = sorted(await client.admin.queues(topic))[0]
    async with client.producer(idempotent=True) as producer:
        first = await producer.send(eruca.Message(topic, "a", message_id="own"), queue=queue)
        again = await producer.send(eruca.Message(topic, "a", message_id="own"), queue=queue)
        with pytest.raises(eruca.IdempotencyKeyReusedError, match="its body"):
            await producer.send(eruca.Message(topic, "b", message_id="own"), queue=queue)

    assert again.replayed
    assert again.log_offset == first.log_offset
