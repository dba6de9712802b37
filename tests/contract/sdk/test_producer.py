"""The producer against real brokers: where messages go, and what comes back."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import eruca
from eruca.aio.http.http1 import CONNECTIONS_MAX
from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.contract.limits import BODY_SIZE_MAX
from support.in_process_cluster import InProcessCluster
from support.waiting import until_told

pytestmark = pytest.mark.anyio


async def stored(client: eruca.AsyncClient, topic: str) -> list[eruca.ReceivedMessage]:
    """Return everything in *topic*, queue by queue."""
    offsets = await client.admin.queues(topic)
    left = sum(queue.max_offset - queue.min_offset for queue in offsets.values())
    messages: list[eruca.ReceivedMessage] = []
    async with client.pull_consumer(topics=topic) as consumer:
        while len(messages) < left:
            messages += await consumer.poll()
    return sorted(messages, key=lambda message: (message.queue, message.queue_offset))


async def test_a_message_comes_back_as_it_was_sent(client: eruca.AsyncClient, topic: str) -> None:
    sent = eruca.Message(
        topic,
        "grün",
        keys=["k1", "k2"],
        tag="t",
        properties={"p": "v"},
        sharding_key="s",
        flag=-5,
    )
    async with client.producer() as producer:
        result = await producer.send(sent)

    (message,) = await stored(client, topic)
    assert (message.body, message.keys, message.tag) == (sent.body, ["k1", "k2"], "t")
    assert (message.properties, message.sharding_key, message.flag) == ({"p": "v"}, "s", -5)
    assert (message.message_id, message.queue) == (result.message_id, result.queue)
    assert (message.queue_offset, message.log_offset) == (result.queue_offset, result.log_offset)
    assert message.offset_message_id == result.offset_message_id
    assert message.stored_at == result.stored_at
    assert message.born_host.ip == "127.0.0.1"
    assert result.durability == "written"


async def test_an_id_that_is_given_is_kept(client: eruca.AsyncClient, topic: str) -> None:
    async with client.producer() as producer:
        result = await producer.send(eruca.Message(topic, "x", message_id="my-own-id"))

    assert result.message_id == "my-own-id"
    assert [m.message_id for m in await stored(client, topic)] == ["my-own-id"]


async def test_messages_one_after_another_spread_over_all_queues(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        queues = [(await producer.send(eruca.Message(topic, "x"))).queue for _ in range(8)]

    assert set(Counter(queues).values()) == {2}
    assert len(set(queues)) == 4


async def test_messages_at_the_same_time_share_batches(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        results = await asyncio.gather(
            *(producer.send(eruca.Message(topic, str(number))) for number in range(200))
        )

    assert len({result.stored_at_ms for result in results}) < 20
    bodies = {result.message_id: str(number) for number, result in enumerate(results)}
    assert {m.message_id: m.text() for m in await stored(client, topic)} == bodies


async def test_messages_of_one_sharding_key_stay_in_order(
    client: eruca.AsyncClient, topic: str
) -> None:
    keys = [f"key-{number}" for number in range(10)]
    async with client.producer(batching=eruca.Batching(in_flight_max=8)) as producer:
        futures = [
            await producer.submit(eruca.Message(topic, str(number), sharding_key=key))
            for number in range(100)
            for key in keys
        ]
        results = await asyncio.gather(*futures)

    queues = sorted(await client.admin.queues(topic))
    for key, result in zip(keys, results, strict=False):
        assert result.queue == queues[queue_of_hash(string_hash(key), len(queues))]
    for key in keys:
        numbers = [int(m.text()) for m in await stored(client, topic) if m.sharding_key == key]
        assert numbers == list(range(100))


async def test_a_named_queue_gets_the_message(client: eruca.AsyncClient, topic: str) -> None:
    queue = eruca.MessageQueue(topic, "broker-b", 1)
    async with client.producer() as producer:
        assert (await producer.send(eruca.Message(topic, "x"), queue=queue)).queue == queue


async def test_a_selector_picks_the_queue(client: eruca.AsyncClient, topic: str) -> None:
    async with client.producer() as producer:
        results = [
            await producer.send(
                eruca.Message(topic, "x"), selector=eruca.by_hash, selector_arg="XXX001"
            )
            for _ in range(3)
        ]

    queues = sorted(await client.admin.queues(topic))
    assert [result.queue for result in results] == [queues[3]] * 3  # RocketMQ's own example


async def test_sends_that_are_not_awaited_go_to_the_queue_that_is_named_or_selected(
    client: eruca.AsyncClient, topic: str
) -> None:
    queue = sorted(await client.admin.queues(topic))[2]
    async with client.producer() as producer:
        futures = [
            await producer.submit(eruca.Message(topic, "future"), queue=queue),
            await producer.submit(
                eruca.Message(topic, "future"), selector=lambda _queues, _key: queue, selector_arg=1
            ),
        ]
        await producer.send_oneway(eruca.Message(topic, "one-way"), queue=queue)
        await producer.send_oneway(
            eruca.Message(topic, "one-way"), selector=lambda _queues, _key: queue, selector_arg=1
        )
        results = await asyncio.gather(*futures)

    assert {result.queue for result in results} == {queue}
    messages = await stored(client, topic)
    assert Counter((m.text(), m.queue) for m in messages) == {
        ("future", queue): 2,
        ("one-way", queue): 2,
    }


async def test_what_a_selector_raises_reaches_the_caller_and_nothing_is_sent(
    client: eruca.AsyncClient, topic: str
) -> None:
    def select(_queues: object, _key: object) -> eruca.MessageQueue:
        raise LookupError("no queue for this key")

    async with client.producer() as producer:
        for send in (producer.send, producer.submit, producer.send_oneway):
            with pytest.raises(LookupError, match="no queue for this key"):
                await send(eruca.Message(topic, "x"), selector=select, selector_arg=1)

    assert await stored(client, topic) == []


async def test_without_retries_a_send_arrives_all_the_same(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer(retries_max=0) as producer:
        await producer.send(eruca.Message(topic, "x"))

    assert [message.text() for message in await stored(client, topic)] == ["x"]


async def test_a_queue_of_another_topic_is_refused(client: eruca.AsyncClient, topic: str) -> None:
    queue = eruca.MessageQueue("another", "broker-a", 0)
    async with client.producer() as producer:
        with pytest.raises(eruca.ValidationError, match="found one of another"):
            await producer.send(eruca.Message(topic, "x"), queue=queue)


async def test_a_queue_that_does_not_exist_is_refused_by_its_broker(
    client: eruca.AsyncClient, topic: str
) -> None:
    queue = eruca.MessageQueue(topic, "broker-a", 9)
    async with client.producer() as producer:
        with pytest.raises(eruca.NotFoundError, match="queue"):
            await producer.send(eruca.Message(topic, "x"), queue=queue)


async def test_many_messages_come_back_in_the_callers_order(
    client: eruca.AsyncClient, topic: str
) -> None:
    messages = [
        eruca.Message(topic, str(n), sharding_key=f"key-{n % 7}" if n % 2 else None)
        for n in range(3_000)
    ]
    async with client.producer(batching=eruca.Batching(count_max=100)) as producer:
        results = await producer.send_many(messages)

    bodies: dict[tuple[eruca.MessageQueue, int | None], str] = {
        (m.queue, m.queue_offset): m.text() for m in await stored(client, topic)
    }
    assert [bodies[r.queue, r.queue_offset] for r in results] == [str(n) for n in range(3_000)]


async def test_many_messages_of_one_key_stay_in_order(
    client: eruca.AsyncClient, topic: str
) -> None:
    messages = [eruca.Message(topic, str(n), sharding_key="one") for n in range(1_000)]
    async with client.producer(batching=eruca.Batching(count_max=50, in_flight_max=8)) as producer:
        await producer.send_many(messages)

    assert [int(m.text()) for m in await stored(client, topic)] == list(range(1_000))


async def test_many_messages_may_be_of_several_topics(
    client: eruca.AsyncClient, topic: str
) -> None:
    other = f"{topic}-other"
    await client.admin.create_topic(other, queue_count=1)
    async with client.producer() as producer:
        results = await producer.send_many(
            [eruca.Message([topic, other][n % 2], str(n)) for n in range(10)]
        )

    assert [result.queue.topic for result in results] == [topic, other] * 5


async def test_no_messages_are_no_work(client: eruca.AsyncClient) -> None:
    async with client.producer() as producer:
        assert await producer.send_many([]) == []


@pytest.mark.parametrize("threshold", [1_000, None])
async def test_large_bodies_come_back_whole(
    client: eruca.AsyncClient, topic: str, threshold: int | None
) -> None:
    bodies = [b"a" * 100_000, bytes(range(256)) * 100, b"b" * BODY_SIZE_MAX]
    async with client.producer(compression_threshold_bytes=threshold) as producer:
        await producer.send_many([eruca.Message(topic, body) for body in bodies])

    messages = await stored(client, topic)
    assert sorted(message.body for message in messages) == sorted(bodies)
    assert (sum(message.size for message in messages) < 200_000) == (threshold is not None)


async def test_a_topic_that_does_not_exist_is_created_by_sending(
    client: eruca.AsyncClient, name: str
) -> None:
    async with client.producer() as producer:
        first = await producer.send(eruca.Message(name, "x"))
        second = await producer.send(eruca.Message(name, "y", sharding_key="k"))

    assert {first.queue.topic, second.queue.topic} == {name}
    assert len(await client.admin.queues(name)) >= 4


async def test_a_topic_that_may_not_be_written_to_is_refused(
    client: eruca.AsyncClient, topic: str
) -> None:
    await client.admin.create_topic(topic, queue_count=2, permission="r")
    async with client.producer() as producer:
        with pytest.raises((eruca.NoRouteError, eruca.PermissionDeniedError)):
            await producer.send(eruca.Message(topic, "x"))


async def test_what_was_sent_one_way_arrives(client: eruca.AsyncClient, topic: str) -> None:
    async with client.producer() as producer:
        for number in range(10):
            await producer.send_oneway(eruca.Message(topic, str(number)))
        await producer.flush()

    assert len(await stored(client, topic)) == 10


async def test_leaving_the_context_sends_what_was_submitted(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        futures = [await producer.submit(eruca.Message(topic, "x")) for _ in range(500)]

    assert all(future.done() and not future.exception() for future in futures)
    assert len(await stored(client, topic)) == 500


async def test_closing_the_client_sends_what_was_submitted(
    cluster: InProcessCluster, client: eruca.AsyncClient, topic: str
) -> None:
    async with eruca.AsyncClient(cluster.namesrv_urls) as other:
        future = await other.producer().submit(eruca.Message(topic, "x"))

    assert future.result().queue.topic == topic
    with pytest.raises(eruca.ClosedError):
        other.producer()


async def test_a_closed_producer_takes_no_more(client: eruca.AsyncClient, topic: str) -> None:
    producer = client.producer()
    await producer.close()

    for send in (producer.send, producer.submit, producer.send_oneway):
        with pytest.raises(eruca.ClosedError):
            await send(eruca.Message(topic, "x"))
    with pytest.raises(eruca.ClosedError):
        await producer.send_many([eruca.Message(topic, "x")])
    await producer.close()  # again, harmless


async def test_more_than_the_buffer_holds_is_sent_all_the_same(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer(buffer_bytes_max=50_000) as producer:
        await asyncio.gather(
            *(producer.send(eruca.Message(topic, b"x" * 2_000)) for _ in range(300)),
            producer.send_many([eruca.Message(topic, b"y" * 2_000) for _ in range(300)]),
            producer.send(eruca.Message(topic, b"z" * 100_000)),
        )

    assert len(await stored(client, topic)) == 601


async def test_sends_do_not_wait_for_consumers_of_the_same_client(
    client: eruca.AsyncClient, topic: str
) -> None:
    """Each of them has a request that its broker holds, on a connection of its own."""
    queue = eruca.MessageQueue(topic, "broker-a", 0)
    consumers = [client.pull_consumer(queues=[queue]) for _ in range(CONNECTIONS_MAX)]
    polls = [asyncio.create_task(consumer.poll(wait_seconds=20)) for consumer in consumers]
    await until_told(
        lambda: client.admin.broker_status("broker-a"),
        lambda status: status.held_requests >= CONNECTIONS_MAX,
    )

    async with client.producer() as producer:
        await producer.send(eruca.Message(topic, "through"), queue=queue)

    assert {len(messages) for messages in await asyncio.gather(*polls)} == {1}


async def test_a_cancelled_send_that_has_not_left_is_taken_back(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        sends = [
            asyncio.create_task(producer.send(eruca.Message(topic, str(number))))
            for number in range(10)
        ]
        await asyncio.sleep(0)  # each has put its message into the batch, which leaves next turn
        for send in sends[::2]:
            send.cancel()
        await asyncio.wait(sends)

    assert [m.text() for m in await stored(client, topic)] == ["1", "3", "5", "7", "9"]


async def test_health_is_known_only_with_latency_fault_tolerance(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as plain, client.producer(latency_fault=True) as careful:
        for _ in range(8):
            await plain.send(eruca.Message(topic, "x"))
            await careful.send(eruca.Message(topic, "x"))

        assert plain.broker_health() == ()
        names = {health.broker_name for health in careful.broker_health()}
        assert names == {"broker-a", "broker-b"}


@pytest.mark.parametrize(
    "settings",
    [
        {"group": "with blank"},
        {"retries_max": -1},
        {"send_timeout_seconds": 0},
        {"batching": None},
        {"buffer_bytes_max": 0},
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_settings_that_make_no_sense_are_refused(
    client: eruca.AsyncClient, settings: dict[str, object]
) -> None:
    with pytest.raises(eruca.ValidationError):
        client.producer(**settings)  # type: ignore[arg-type]
