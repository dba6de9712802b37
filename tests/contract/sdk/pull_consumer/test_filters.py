"""The pull consumer's filters."""

from __future__ import annotations

import pytest

import eruca
from support.pull_consumers import numbers, poll_all, send

pytestmark = pytest.mark.anyio


# Tags.


async def test_a_filter_lets_its_tags_through_and_no_others(
    client: eruca.AsyncClient, topic: str
) -> None:
    """``Aa`` and ``BB`` have one hash, so the broker cannot tell them apart."""
    for tag in ("Aa", "BB", "C", None):
        await send(client, topic, *numbers(0, 10), tag=tag)

    async with client.pull_consumer(topics=topic, filter="Aa || C") as consumer:
        messages = await poll_all(consumer, 20)
        assert await consumer.poll(wait_seconds=0.05) == []
        lag = await consumer.lag()

    assert {m.tag for m in messages} == {"Aa", "C"}
    assert set(lag.values()) == {0}


async def test_a_condition_over_properties_lets_through_what_meets_it(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        for price in ("10", "21", "many", "30"):
            await producer.send(eruca.Message(topic, price, properties={"price": price}))
        await producer.send(eruca.Message(topic, "none"))

    dear = eruca.sql("price > 20")
    async with client.pull_consumer("g", topics=topic, filter={topic: dear}) as consumer:
        messages = await poll_all(consumer, 2)
        assert await consumer.poll(wait_seconds=0.05) == []

    assert sorted(m.text() for m in messages) == ["21", "30"]


async def test_each_topic_may_have_a_filter_of_its_own(
    client: eruca.AsyncClient, topic: str
) -> None:
    other = f"{topic}-other"
    await client.admin.create_topic(other, queue_count=1)
    for name in (topic, other):
        await send(client, name, "a", tag="a")
        await send(client, name, "b", tag="b")

    async with client.pull_consumer(topics=[topic, other], filter={topic: "a"}) as consumer:
        messages = await poll_all(consumer, 3)

    assert sorted((m.topic, m.tag) for m in messages) == [
        (topic, "a"),
        (other, "a"),
        (other, "b"),
    ]
