"""Handlers receive the matching messages: tags, conditions, several topics and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

import eruca
from support.push import Gatherer, committed, until_shared
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

LONG_TAG = "t" * 4_000


async def send_tagged(
    client: eruca.AsyncClient, topic: str, tags: Iterable[str | None], *, each: int = 3
) -> int:
    """Send messages of each tag, whose bodies are the tag; return how many."""
    messages = [
        eruca.Message(topic, str(tag), tag=tag, sharding_key=str(number))
        for tag in tags
        for number in range(each)
    ]
    async with client.producer() as producer:
        await producer.send_many(messages)
    return len(messages)


async def until_done(client: eruca.AsyncClient, group: str, topic: str, count: int) -> None:
    """Wait until the group is past *count* messages, those its filter holds back included."""

    async def is_past() -> bool:
        return await committed(client, group, topic) == count

    await until_told(is_past)


@pytest.mark.parametrize(
    ("sent", "subscribed", "expected"),
    [
        (["A"], "A", ["A"]),
        (["A"], "B", []),
        (["A"], "A || B", ["A"]),
        (["A", "B"], "A||B", ["A", "B"]),
        (["A", "B"], "   A   ||   B  ", ["A", "B"]),
        (["A", "B", "C"], "A || B", ["A", "B"]),
        (["A", "B"], "A || C", ["A"]),
        (["A", "B", "C"], "X || A || C", ["A", "C"]),
        (["A", "B", None], "*", ["A", "B", "None"]),
        (["A", None], None, ["A", "None"]),
        ([None], "A", []),
        (["a", "A"], "a", ["a"]),
        (["Aa", "BB"], "BB", ["BB"]),  # of one hash
        (["*", "A"], "*", ["*", "A"]),
        ([LONG_TAG, "A"], LONG_TAG, [LONG_TAG]),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_a_tag_subscription_lets_through_its_tags(
    client: eruca.AsyncClient,
    topic: str,
    sent: list[str | None],
    subscribed: str | None,
    expected: list[str],
) -> None:
    gatherer = Gatherer()
    consumer = client.push_consumer(topic, start="earliest")
    consumer.subscribe(topic, subscribed, gatherer)

    count = await send_tagged(client, topic, sent)
    async with consumer:
        await until_done(client, topic, topic, count)

    assert Counter(gatherer.texts) == dict.fromkeys(expected, 3)


async def test_groups_of_different_tags_each_get_their_part(
    client: eruca.AsyncClient, topic: str
) -> None:
    parts = {"A": {"A"}, "B || C": {"B", "C"}, "*": {"A", "B", "C", "None"}}
    gatherers = {expression: Gatherer() for expression in parts}
    consumers = []
    for number, (expression, gatherer) in enumerate(gatherers.items()):
        consumer = client.push_consumer(f"{topic}-{number}", start="earliest")
        consumer.subscribe(topic, expression, gatherer)
        consumers.append(consumer)

    async with consumers[0], consumers[1], consumers[2]:
        count = await send_tagged(client, topic, ["A", "B", "C", None])
        for number in range(3):
            await until_done(client, f"{topic}-{number}", topic, count)

    for expression, expected in parts.items():
        assert Counter(gatherers[expression].texts) == dict.fromkeys(expected, 3)


async def test_members_of_one_tag_that_come_late_and_go_early_leave_nothing_out(
    client: eruca.AsyncClient, topic: str
) -> None:
    gatherer = Gatherer()

    def member() -> eruca.AsyncPushConsumer:
        consumer = client.push_consumer(topic, start="earliest")
        consumer.subscribe(topic, "A", gatherer)
        return consumer

    first, second = member(), member()
    async with first:
        count = await send_tagged(client, topic, ["A", "B"], each=50)
        async with second:
            await until_shared([first, second], topic, queues=4)
            count += await send_tagged(client, topic, ["A", "B"], each=50)
        await until_shared([first], topic, queues=4)
        count += await send_tagged(client, topic, ["A", "B"], each=50)
        await until_done(client, topic, topic, count)

    assert gatherer.texts == ["A"] * 150


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("price > 20", [25, 30, 35]),
        ("price BETWEEN 10 AND 20", [10, 15, 20]),
        ("TAGS IN ('T0', 'T10') OR price = 35", [0, 10, 35]),
        ("weight > 1", []),
        (None, [0, 5, 10, 15, 20, 25, 30, 35]),
    ],
    ids=str,
)
async def test_a_condition_lets_through_what_meets_it(
    client: eruca.AsyncClient,
    topic: str,
    condition: str | None,
    expected: list[int],
    ordered: bool,
) -> None:
    gatherer = Gatherer()
    consumer = client.push_consumer(topic, start="earliest", ordered=ordered)
    consumer.on(topic, sql=condition)(gatherer)
    async with client.producer() as producer:
        await producer.send_many(
            [
                eruca.Message(
                    topic,
                    str(price),
                    tag=f"T{price}",
                    properties={"price": str(price)},
                    sharding_key="one queue",
                )
                for price in range(0, 40, 5)
            ]
        )

    async with consumer:
        await until_done(client, topic, topic, 8)

    handled = [int(text) for text in gatherer.texts]
    assert (handled if ordered else sorted(handled)) == expected


@pytest.mark.parametrize("members", [1, 2])
async def test_topics_with_filters_of_their_own_are_consumed_together(
    client: eruca.AsyncClient, name: str, members: int
) -> None:
    filters = {f"{name}-x": "A", f"{name}-y": "B || C", f"{name}-z": "*"}
    gatherer = Gatherer()
    consumers = []
    for topic in filters:
        await client.admin.create_topic(topic, queue_count=2)
    for _ in range(members):
        consumer = client.push_consumer(name, start="earliest")
        for topic, expression in filters.items():
            consumer.subscribe(topic, expression, gatherer)
        consumers.append(consumer)

    for consumer in consumers:
        await consumer.start()
    for topic in filters:
        await until_shared(consumers, topic, queues=4)
        await until_done(client, name, topic, await send_tagged(client, topic, "ABC"))
    for consumer in consumers:
        await consumer.stop()

    assert Counter((m.topic[-1], m.tag) for m in gatherer.messages) == {
        (topic[-1], tag): 3
        for topic, expression in filters.items()
        for tag in "ABC"
        if expression == "*" or tag in expression
    }


async def test_a_tag_is_handled_in_order_though_others_lie_between(
    client: eruca.AsyncClient, topic: str
) -> None:
    gatherers = {tag: Gatherer() for tag in "AB"}
    consumer = client.push_consumer(topic, start="earliest", ordered=True)
    for tag, gatherer in gatherers.items():
        consumer.subscribe(topic, tag, gatherer)
    async with client.producer() as producer:
        for number in range(60):
            message = eruca.Message(
                topic, str(number), tag="ABC"[number % 3], sharding_key=str(number % 5)
            )
            await producer.send(message)

    async with consumer:
        await until(lambda: sum(len(g.messages) for g in gatherers.values()) == 40)

    for number, tag in enumerate("AB"):
        for key in range(5):
            of_key = [int(m.text()) for m in gatherers[tag].messages if m.sharding_key == str(key)]
            assert of_key == [n for n in range(60) if n % 3 == number and n % 5 == key]
