"""The simple consumer against real brokers: messages one by one, kept while they are handled."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress

import anyio.to_thread
import pytest

import eruca
from support.in_process_cluster import InProcessCluster
from support.patience import PATIENCE_SECONDS, PAUSE_SECONDS
from support.waiting import until

pytestmark = pytest.mark.anyio


async def send(client: eruca.AsyncClient, topic: str, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_many(
            [eruca.Message(topic, str(n), sharding_key=str(n)) for n in range(count)]
        )


async def received(consumer: eruca.AsyncSimpleConsumer, count: int) -> list[eruca.Delivery]:
    got: list[eruca.Delivery] = []
    while len(got) < count:
        some = await consumer.receive(32, 10)
        assert some, f"only {len(got)} of {count}"
        got += some
    return got


async def test_every_message_of_every_broker_comes_once(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 200)
    consumer = client.simple_consumer(topic, topic, start="earliest")

    got = await received(consumer, 200)
    await consumer.ack(got)

    assert Counter(one.message.text() for one in got) == Counter(map(str, range(200)))
    assert {one.broker_name for one in got} == {"broker-a", "broker-b"}
    assert await consumer.receive(wait_seconds=0) == []
    with pytest.raises(eruca.StaleHandleError):
        await consumer.ack(got[0])


async def test_a_message_comes_as_other_consumers_get_it(
    client: eruca.AsyncClient, topic: str
) -> None:
    sent = eruca.Message(
        topic,
        b"\xff\x00 not text " * 1_000,
        tag="T",
        keys=["k1", "k2"],
        properties={"color": "red"},
        sharding_key="s",
        flag=7,
    )
    async with client.producer() as producer:
        result = await producer.send(sent)
    async with client.pull_consumer(topics=topic) as puller:
        [pulled] = await puller.poll(wait_seconds=20)

    [one] = await client.simple_consumer(topic, topic, start="earliest").receive()

    message = one.message
    assert message.message_id == result.message_id == pulled.message_id
    assert message.body == sent.body == pulled.body
    for name in (
        "queue", "queue_offset", "tag", "keys", "properties", "sharding_key", "flag", "born_at",
        "born_host", "stored_at", "store_host", "log_offset", "offset_message_id", "attempt",
    ):  # fmt: skip
        assert getattr(message, name) == getattr(pulled, name), name


async def test_a_message_given_up_is_redelivered_and_counts(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 1)
    consumer = client.simple_consumer(topic, topic, start="earliest")

    [first] = await consumer.receive()
    await consumer.nack(first, delay_seconds=0)
    [second] = await consumer.receive()

    assert (first.attempt, second.attempt) == (1, 2)
    assert second.message.attempt == 2
    assert second.message.message_id == first.message.message_id
    with pytest.raises(eruca.StaleHandleError):
        await consumer.ack(first)
    await consumer.ack(second)


async def test_what_is_not_finished_in_time_is_redelivered(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 1)
    consumer = client.simple_consumer(topic, topic, start="earliest", invisible_seconds=1)

    [first] = await consumer.receive()
    [second] = await consumer.receive(wait_seconds=20, invisible_seconds=60)

    assert second.attempt == 2
    assert (await consumer.extend(second)) > second.visible_at
    await consumer.ack(second)
    with pytest.raises(eruca.StaleHandleError):
        await consumer.extend(first)


async def test_a_message_may_be_finished_at_its_third_attempt(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 1)
    consumer = client.simple_consumer(topic, topic, start="earliest", invisible_seconds=1)

    attempts = []
    for invisible_seconds in (1, 1, 60):
        [one] = await consumer.receive(wait_seconds=20, invisible_seconds=invisible_seconds)
        attempts.append(one.attempt)
    await consumer.ack(one)

    assert attempts == [1, 2, 3]
    assert await consumer.receive(wait_seconds=0) == []


async def test_of_a_batch_only_what_was_not_finished_is_redelivered(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 20)
    consumer = client.simple_consumer(topic, topic, start="earliest")

    got = await received(consumer, 20)
    await consumer.ack(got[1:])
    await consumer.extend(got[0], invisible_seconds=1)
    [again] = await consumer.receive(wait_seconds=20)
    await consumer.ack(again)

    assert (again.message.message_id, again.attempt) == (got[0].message.message_id, 2)
    assert await consumer.receive(wait_seconds=0) == []


async def test_in_an_ordered_group_each_key_comes_in_order_also_after_a_failure(
    client: eruca.AsyncClient, topic: str
) -> None:
    await client.admin.groups.create(topic, start="earliest", ordered=True)
    async with client.producer() as producer:
        for number in range(10):
            for key in "abc":
                await producer.send(eruca.Message(topic, f"{key}{number}", sharding_key=key))
    consumer = client.simple_consumer(topic, topic)

    done: dict[str, list[str]] = {key: [] for key in "abc"}
    while sum(map(len, done.values())) < 30:
        got = await consumer.receive(32, 10)
        assert got
        for one in got:
            text = one.message.text()
            if text in ("a3", "b0") and one.attempt == 1:
                await consumer.nack(one, delay_seconds=0)  # what lies behind it waits for it
                continue
            await consumer.ack(one)
            done[text[0]].append(text)

    assert done == {key: [f"{key}{number}" for number in range(10)] for key in "abc"}


async def test_a_message_is_kept_while_it_is_handled_and_then_finished(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 1)
    kept = 2 * PAUSE_SECONDS  # it is extended half-way
    consumer = client.simple_consumer(topic, topic, start="earliest", invisible_seconds=kept)
    [one] = await consumer.receive()

    async with consumer.handling(one) as handling:
        # Others ask for longer than the message would be kept without being extended.
        assert await consumer.receive(wait_seconds=kept + 1) == []
        assert not handling.is_lost
        assert handling.message.text() == "0"

    assert await consumer.receive(wait_seconds=0) == []
    with pytest.raises(eruca.StaleHandleError):
        await consumer.ack(one)


async def test_a_handler_that_raises_gives_the_message_up(
    client: eruca.AsyncClient, topic: str
) -> None:
    await client.admin.groups.create(topic, start="earliest", retries_max=0)
    await send(client, topic, 1)
    consumer = client.simple_consumer(topic, topic, start="earliest")
    [one] = await consumer.receive()

    with pytest.raises(ZeroDivisionError):
        async with consumer.handling(one):
            raise ZeroDivisionError(os.fsdecode(b"no aircraft \xff"))

    letters = [held async for held in client.admin.groups.dead_letters(topic)]
    assert [held.letter.last_error for held in letters] == [
        "ZeroDivisionError: no aircraft \\udcff"
    ]


async def test_a_handler_that_is_cancelled_leaves_the_message_to_others_at_once(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 1)
    consumer = client.simple_consumer(topic, topic, start="earliest", invisible_seconds=600)
    [one] = await consumer.receive()

    async def handle() -> None:
        async with consumer.handling(one):
            await asyncio.Event().wait()

    task = asyncio.create_task(handle())
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    [again] = await consumer.receive()
    assert again.attempt == 2


async def test_a_cancellation_at_the_end_of_the_block_is_heard(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 1)
    consumer = client.simple_consumer(topic, topic, start="earliest")
    [one] = await consumer.receive()

    async def handle() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with consumer.handling(one):
            asyncio.get_running_loop().call_soon(task.cancel)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(handle())


async def test_what_was_finished_in_the_block_is_not_finished_again(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 2)
    consumer = client.simple_consumer(topic, topic, start="earliest")
    one, other = await received(consumer, 2)

    async with consumer.handling(one) as handling:
        await handling.ack()
    async with consumer.handling(other) as handling:
        await handling.nack(delay_seconds=0)

    [again] = await consumer.receive()
    assert again.message == other.message


async def test_who_waits_gets_what_is_sent_then(client: eruca.AsyncClient, topic: str) -> None:
    consumer = client.simple_consumer(topic, topic, start="earliest")
    waiting = asyncio.create_task(consumer.receive(wait_seconds=20))
    await until(lambda: consumer._turn >= 2)

    await send(client, topic, 1)

    assert len(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == 1


async def test_filters_of_both_kinds_are_the_brokers(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async with client.producer() as producer:
        for tag in ("UA", "DL", "AA"):
            await producer.send(eruca.Message(topic, tag, tag=tag, properties={"n": "3"}))

    by_tag = await received(
        client.simple_consumer(f"{name}-tag", topic, filter="UA || AA", start="earliest"), 2
    )
    condition = eruca.sql("n > 2 AND TAGS = 'DL'")
    by_sql = await received(
        client.simple_consumer(f"{name}-sql", topic, filter=condition, start="earliest"), 1
    )

    assert sorted(one.message.text() for one in by_tag) == ["AA", "UA"]
    assert [one.message.text() for one in by_sql] == ["DL"]


async def test_another_filter_than_the_groups_is_refused(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, 8)
    await client.simple_consumer(topic, topic, start="earliest").receive()

    with pytest.raises(eruca.SubscriptionConflictError):
        await client.simple_consumer(topic, topic, filter="UA").receive(wait_seconds=0)


async def test_several_topics_are_received_in_turn(client: eruca.AsyncClient, name: str) -> None:
    topics = [f"{name}-{letter}" for letter in "xy"]
    for topic in topics:
        await client.admin.create_topic(topic, queue_count=1)
        await send(client, topic, 5)
    consumer = client.simple_consumer(name, topics, start="earliest")

    got = await received(consumer, 10)
    await consumer.ack(got)

    assert Counter(one.message.topic for one in got) == dict.fromkeys(topics, 5)


async def test_a_topic_that_does_not_exist_is_said_to_be_missing(
    client: eruca.AsyncClient, name: str
) -> None:
    with pytest.raises(eruca.TopicNotFoundError):
        await client.simple_consumer(name, name).receive(wait_seconds=0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"group": ""},
        {"topics": ()},
        {"topics": "no good"},
        {"filter": {"other": "*"}},
        {"start": "somewhere"},
        {"invisible_seconds": 0},
        {"invisible_seconds": 50_000},
    ],
)
async def test_settings_that_make_no_sense_are_refused(
    client: eruca.AsyncClient, arguments: dict[str, object]
) -> None:
    given: dict[str, object] = {"group": "g", "topics": "t", **arguments}
    with pytest.raises(eruca.ValidationError):
        client.simple_consumer(**given)  # type: ignore[arg-type]


async def test_a_closed_consumer_says_so(client: eruca.AsyncClient, topic: str) -> None:
    async with client.simple_consumer(topic, topic) as consumer:
        pass

    with pytest.raises(eruca.ClosedError):
        await consumer.receive()
    with pytest.raises(eruca.ValidationError):
        await client.simple_consumer(topic, topic).receive(33)


async def test_the_same_without_async(cluster: InProcessCluster, name: str) -> None:
    def run() -> None:
        with eruca.Client(cluster.namesrv_urls) as client:
            client.admin.create_topic(name, queue_count=1)
            with client.producer() as producer:
                producer.send_many([eruca.Message(name, str(n)) for n in range(3)])
            with client.simple_consumer(name, name, start="earliest") as consumer:
                got = consumer.receive(1) + consumer.receive(1) + consumer.receive(1)
                with consumer.handling(got[0]) as handling:
                    assert handling.message.body
                with pytest.raises(ZeroDivisionError), consumer.handling(got[1]):
                    raise ZeroDivisionError
                consumer.ack(got[2])
                with pytest.raises(eruca.StaleHandleError):
                    consumer.ack(got[0])

    await anyio.to_thread.run_sync(run)
