"""A message's content comes back as it was sent, up to its limits, or is refused."""

from __future__ import annotations

import string
from typing import Any

import pytest

import eruca
from eruca.contract.limits import BODY_SIZE_MAX, KEY_SIZE_MAX, USER_PROPERTY_COUNT_MAX
from support.received import received

pytestmark = pytest.mark.anyio

VISIBLE = string.ascii_letters + string.digits + string.punctuation + " "


async def is_empty(client: eruca.AsyncClient, topic: str) -> bool:
    return not any(queue.max_offset for queue in (await client.admin.queues(topic)).values())


@pytest.mark.parametrize("body", [" ", " \t\n ", "中文", "😀 🜚", "中文 and 😀\n"])
async def test_bodies_of_blanks_chinese_and_emoji_arrive_byte_for_byte(
    client: eruca.AsyncClient, topic: str, body: str
) -> None:
    async with client.producer() as producer:
        await producer.send(eruca.Message(topic, body))

    [message] = await received(client, topic, 1)
    assert message.body == body.encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"tag": "标签"},
        {"keys": ["键", "ключ", "🔑"]},
        {"tag": "t" * KEY_SIZE_MAX},
        {"keys": ["k" * KEY_SIZE_MAX]},
        {"keys": ["中" * KEY_SIZE_MAX]},
        {"properties": {"english": "value", "中文": "值"}},
        {"properties": {"special": VISIBLE.strip()}},
        {"properties": {"chinese": "中" * 10 * 1_024}},
        {"properties": {"long": "v" * 16 * 1_024}},
        {"properties": {f"p{n}": "v" for n in range(USER_PROPERTY_COUNT_MAX)}},
        {"tag": "t" * 2_048, "keys": ["k" * 2_048], "properties": {"p": "v" * 12 * 1_024}},
    ],
    ids=lambda fields: "+".join(fields) + f" {len(str(fields))}",
)
async def test_tags_keys_and_properties_arrive_as_they_were_sent(
    client: eruca.AsyncClient, topic: str, fields: dict[str, Any]
) -> None:
    sent = eruca.Message(topic, "x", **fields)
    async with client.producer() as producer:
        await producer.send(sent)

    [message] = await received(client, topic, 1)
    assert message.tag == sent.tag
    assert message.keys == list(sent.keys)
    assert message.properties == dict(sent.properties)


@pytest.mark.parametrize(
    ("fields", "about"),
    [
        ({"tag": "t" * (KEY_SIZE_MAX + 1)}, "tag"),
        ({"keys": ["k" * (KEY_SIZE_MAX + 1)]}, "keys"),
        ({"tag": "标签|"}, "tag"),
        ({"tag": "a\0"}, "tag"),
        ({"keys": ["a\0"]}, "keys"),
        ({"properties": {"p": "a\0"}}, "properties"),
        ({"properties": {"UNIQ_KEY": "x"}}, "properties"),
        ({"properties": {f"p{n}": "v" for n in range(USER_PROPERTY_COUNT_MAX + 1)}}, "properties"),
        ({"properties": {"chinese": "中" * 20 * 1_024}}, "properties"),
        ({"properties": {"p": "v" * 32 * 1_024}}, "properties"),
        ({"keys": ["k" * KEY_SIZE_MAX], "properties": {"p": "v" * 30 * 1_024}}, "properties"),
    ],
    ids=lambda fields: str(fields)[:40],
)
async def test_what_is_not_allowed_or_too_large_is_refused_before_anything_is_sent(
    client: eruca.AsyncClient, topic: str, fields: dict[str, Any], about: str
) -> None:
    async with client.producer() as producer:
        with pytest.raises((eruca.ValidationError, eruca.TooLargeError), match=f"^{about}: "):
            await producer.send(eruca.Message(topic, "x", **fields))

    assert await is_empty(client, topic)


async def send(client: eruca.AsyncClient, kind: str, group: str, message: eruca.Message) -> None:
    if kind == "transaction":
        async with client.transaction_producer(group) as transactions:
            await transactions.send_in_transaction(message, lambda _half: "commit")
    else:
        async with client.producer() as producer:
            await producer.send(message)


KINDS: dict[str, dict[str, Any]] = {
    "normal": {},
    "ordered": {"sharding_key": "k"},
    "delayed": {"delay_seconds": 0.1},
    "transaction": {},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("property_size", [0, 16 * 1_024])
async def test_a_message_of_each_kind_may_have_a_body_of_4_mib_and_properties_beside_it(
    client: eruca.AsyncClient, topic: str, name: str, kind: str, property_size: int
) -> None:
    body = bytes(BODY_SIZE_MAX)
    properties = {"p": "v" * property_size} if property_size else {}

    await send(client, kind, name, eruca.Message(topic, body, properties=properties, **KINDS[kind]))

    [message] = await received(client, topic, 1)
    assert BODY_SIZE_MAX == 4 * 1_024 * 1_024
    assert message.body == body
    assert message.properties == properties


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_of_no_kind_may_have_a_byte_more(
    client: eruca.AsyncClient, topic: str, name: str, kind: str
) -> None:
    with pytest.raises(eruca.TooLargeError):
        await send(
            client, kind, name, eruca.Message(topic, bytes(BODY_SIZE_MAX + 1), **KINDS[kind])
        )

    assert await is_empty(client, topic)


async def test_what_a_message_says_survives_a_batch_and_each_is_found_by_its_own_ids(
    client: eruca.AsyncClient, topic: str
) -> None:
    queue = eruca.MessageQueue(topic, "broker-a", 1)
    sent = [
        eruca.Message(
            topic,
            f"{number}",
            tag=f"t{number}",
            keys=[f"k{number}", "all"],
            properties={"number": str(number)},
            flag=number,
        )
        for number in range(100)
    ]
    async with client.producer() as producer:
        results = await producer.send_many(sent, queue=queue)

    assert len({result.stored_at_ms for result in results}) == 1  # of one batch
    assert [result.queue_offset for result in results] == list(range(100))
    assert len({result.message_id for result in results}) == 100
    for result, message in list(zip(results, sent, strict=True))[::33]:
        by_place = (await client.admin.message_by_offset_id(result.offset_message_id)).message
        [by_id] = await client.admin.messages_by_key(topic, result.message_id)
        assert by_place.queue_offset == by_id.queue_offset == result.queue_offset
        assert (by_place.tag, by_place.flag) == (message.tag, message.flag)
    async with client.pull_consumer(queues=[queue]) as consumer:
        await consumer.seek(queue, 50)
        rest: list[eruca.ReceivedMessage] = []
        while len(rest) < 50:
            rest += await consumer.poll()
    assert [
        (m.text(), m.tag, m.keys, dict(m.properties), m.flag, m.queue_offset) for m in rest
    ] == [(f"{n}", f"t{n}", [f"k{n}", "all"], {"number": str(n)}, n, n) for n in range(50, 100)]
