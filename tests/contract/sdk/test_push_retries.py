"""Retries of concurrent consumers: as often and as late as the group's policy says."""

from __future__ import annotations

import os
from collections import Counter

import pytest

import eruca
from eruca import ConsumeStatus
from eruca.contract.limits import GROUP_SIZE_MAX, PROPERTIES_SIZE_MAX
from support.patience import PATIENCE_SECONDS
from support.push import Gatherer, committed, send
from support.retried import dead_letters, is_committed
from support.waiting import stays, until, until_told

pytestmark = pytest.mark.anyio


async def test_a_group_whose_retry_topic_needs_the_longer_record_has_its_retries(
    client: eruca.AsyncClient, topic: str
) -> None:
    group = topic.ljust(GROUP_SIZE_MAX, "g")
    attempts: list[int] = []
    consumer = client.push_consumer(group, start="earliest")

    @consumer.on(topic)
    def handle(message: eruca.ReceivedMessage, context: eruca.ConsumeContext) -> ConsumeStatus:
        attempts.append(message.attempt)
        context.delay_seconds = 0
        return ConsumeStatus.SUCCESS if message.attempt > 2 else ConsumeStatus.RECONSUME_LATER

    await send(client, topic, [0])
    async with consumer:
        await until(lambda: attempts == [1, 2, 3])


@pytest.mark.parametrize("failure", ["raises", "returns", "async raises"])
async def test_a_failed_message_is_redelivered_under_its_own_topic(
    client: eruca.AsyncClient, topic: str, failure: str
) -> None:
    seen: list[eruca.ReceivedMessage] = []
    consumer = client.push_consumer(topic, start="earliest")

    def plain(
        message: eruca.ReceivedMessage, context: eruca.ConsumeContext
    ) -> ConsumeStatus | None:
        seen.append(message)
        context.delay_seconds = 0
        if message.attempt > 1:
            return None
        if failure == "returns":
            return ConsumeStatus.RECONSUME_LATER
        raise ValueError("not this time")

    async def on_loop(message: eruca.ReceivedMessage, context: eruca.ConsumeContext) -> None:
        plain(message, context)

    consumer.subscribe(topic, handler=on_loop if failure.startswith("async") else plain)
    await send(client, topic, range(5))
    async with consumer:
        await until(lambda: len(seen) == 10)

    again = [message for message in seen if message.attempt == 2]
    assert sorted(message.text() for message in again) == list("01234")
    assert {message.topic for message in again} == {topic}
    assert {message.queue.topic for message in again} == {f"%RETRY%{topic}"}
    assert {m.message_id for m in again} == {m.message_id for m in seen if m.attempt == 1}
    assert await committed(client, topic, topic) == 5


async def test_a_failed_message_is_redelivered_where_queues_are_configured(
    client: eruca.AsyncClient, topic: str
) -> None:
    seen: list[eruca.ReceivedMessage] = []
    queues = (await client.context.routes.subscribe_view(topic)).queues
    strategy = eruca.ByConfig(tuple(queues))
    consumer = client.push_consumer(
        topic, start="earliest", membership=eruca.Membership(strategy=strategy)
    )

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage, context: eruca.ConsumeContext) -> None:
        seen.append(message)
        context.delay_seconds = 0
        if message.attempt == 1:
            raise ValueError("not this time")

    await send(client, topic, range(5))
    async with consumer:
        await until(lambda: len(seen) == 10)

    assert sorted(message.text() for message in seen if message.attempt == 2) == list("01234")


async def test_what_an_ack_index_leaves_out_is_retried_alone(
    client: eruca.AsyncClient, topic: str
) -> None:
    batches: list[list[eruca.ReceivedMessage]] = []
    consumer = client.push_consumer(topic, start="earliest", batch_count_max=8)

    @consumer.on(topic)
    async def handle(messages: list[eruca.ReceivedMessage], context: eruca.ConsumeContext) -> None:
        batches.append(messages)
        if messages[0].attempt == 1:
            context.ack_index = 1
            context.delay_seconds = 0

    await send(client, topic, range(7), key="one queue")
    async with consumer:
        await until(lambda: sum(m.attempt == 2 for b in batches for m in b) >= 1)
        await until(
            lambda: (
                Counter(m.text() for b in batches for m in b).total()
                == 7 + sum(max(len(b) - 2, 0) for b in batches if b[0].attempt == 1)
            )
        )

    left_out = {m.text() for b in batches if b[0].attempt == 1 for m in b[2:]}
    assert {m.text() for b in batches for m in b if m.attempt == 2} == left_out


async def test_after_its_retries_a_message_is_a_dead_letter_with_the_reason(
    client: eruca.AsyncClient, topic: str
) -> None:
    attempts: list[int] = []
    consumer = client.push_consumer(topic, start="earliest", retries=eruca.Retries(retries_max=2))

    @consumer.on(topic)
    def handle(message: eruca.ReceivedMessage, context: eruca.ConsumeContext) -> None:
        attempts.append(message.attempt)
        context.delay_seconds = 0
        raise RuntimeError("the database is gone")

    [sent] = await send(client, topic, ["poison"])
    async with consumer:
        await until(lambda: len(attempts) == 3)
        await stays(lambda: len(attempts) == 3)

    assert attempts == [1, 2, 3]
    [letter] = await dead_letters(client, topic)
    assert letter["origin_topic"] == topic
    assert letter["message_id"] == sent.message_id
    assert letter["attempts"] == 3
    assert "the database is gone" in str(letter["last_error"])


async def test_delay_level_minus_one_is_a_dead_letter_at_once(
    client: eruca.AsyncClient, topic: str
) -> None:
    seen = Gatherer()
    consumer = client.push_consumer(topic, start="earliest")

    @consumer.on(topic)
    async def handle(
        message: eruca.ReceivedMessage, context: eruca.ConsumeContext
    ) -> ConsumeStatus:
        await seen(message)
        context.delay_level = -1
        return ConsumeStatus.RECONSUME_LATER

    await send(client, topic, [0])
    async with consumer:
        await seen.until_count(1)

    assert len(await dead_letters(client, topic)) == 1


async def test_a_delay_that_cannot_be_is_left_to_the_groups_policy(
    client: eruca.AsyncClient, topic: str
) -> None:
    settings = (
        b'{"start": "earliest", "retry_policy": {"kind": "customized", "delays_seconds": [0]}}'
    )
    view = await client.context.routes.subscribe_view(topic)
    for urls in view.urls.values():
        answer = await client.context.transport.request(
            "PUT",
            urls[0],
            f"/v1/groups/{topic}",
            headers=[("content-type", "application/json")],
            body=[settings],
            timeout=PATIENCE_SECONDS,
        )
        assert answer.status < 300, answer.body
    attempts: list[int] = []
    consumer = client.push_consumer(topic)

    @consumer.on(topic)
    def handle(message: eruca.ReceivedMessage, context: eruca.ConsumeContext) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            context.delay_seconds = -5
            raise ValueError("once more")

    await send(client, topic, [0])
    async with consumer:
        await until(lambda: attempts == [1, 2])


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "orderly"])
async def test_without_retries_the_first_failure_makes_a_dead_letter(
    client: eruca.AsyncClient, topic: str, *, ordered: bool
) -> None:
    seen: list[tuple[str, int]] = []
    consumer = client.push_consumer(
        topic, start="earliest", ordered=ordered, retries=eruca.Retries(retries_max=0)
    )

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage) -> None:
        seen.append((message.text(), message.attempt))
        if message.text() == "0":
            raise ValueError("never again")

    await send(client, topic, range(3), key="one queue")
    async with consumer:
        await until_told(lambda: is_committed(client, topic, 3))

    assert sorted(seen) == [("0", 1), ("1", 1), ("2", 1)]
    assert len(await dead_letters(client, topic)) == 1


async def test_what_is_too_much_to_be_sent_back_at_once_is_sent_back_in_parts(
    client: eruca.AsyncClient, topic: str
) -> None:
    consumer = client.push_consumer(
        topic,
        start="earliest",
        ordered=True,
        batch_count_max=8,
        # While it is suspended, the rest is pulled: the batches grow.
        retries=eruca.Retries(retries_max=2, suspend_seconds=0.5),
        # in which the rest is pulled: the batches grow
    )

    @consumer.on(topic)
    async def fail(messages: list[eruca.ReceivedMessage]) -> None:
        raise ValueError("not ever")

    messages = [
        eruca.Message(topic, os.urandom(3_500_000), sharding_key="one queue") for _ in range(8)
    ]
    async with client.producer() as producer:
        await producer.send_many(messages)
    async with consumer:
        await until_told(lambda: is_committed(client, topic, 8))

    assert len(await dead_letters(client, topic)) == 8


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_a_message_that_has_no_room_to_be_retried_is_a_dead_letter(
    client: eruca.AsyncClient, topic: str, ordered: bool
) -> None:
    seen = 0
    consumer = client.push_consumer(
        topic, start="earliest", ordered=ordered, retries=eruca.Retries(retries_max=1)
    )

    @consumer.on(topic)
    async def fail(message: eruca.ReceivedMessage) -> None:
        nonlocal seen
        seen += 1
        raise ValueError("not ever")

    full = eruca.Message(topic, b"full", properties={"a": "x" * (PROPERTIES_SIZE_MAX - 85)})
    async with client.producer() as producer:
        await producer.send(full)
    async with consumer:
        await until_told(lambda: is_committed(client, topic, 1))

    [letter] = await dead_letters(client, topic)
    assert letter["dead_letter_id"] == 0
    assert seen == 1 + ordered


async def test_a_redrive_ends_although_everything_it_sends_dies_again(
    client: eruca.AsyncClient, topic: str
) -> None:
    """It need not be iterated: the call itself redrives."""
    policy = eruca.CustomizedRetryPolicy(delays_seconds=[0])
    await client.admin.groups.create(topic, start="earliest", retries_max=0, retry_policy=policy)
    consumer = client.push_consumer(topic)

    @consumer.on(topic)
    async def fail(message: eruca.ReceivedMessage) -> None:
        raise ValueError(message.text())

    steps: list[eruca.RedriveStep] = []
    async with consumer:
        await send(client, topic, range(40))
        await until_told(lambda: _count_of(client, topic, at_least=40))
        summary = await client.admin.groups.redrive(topic, per_second=200, on_step=steps.append)
        again = await client.admin.groups.redrive(topic, dry_run=True)

    assert (summary.redriven, summary.skipped, summary.total) == (40, 0, 40)
    assert {step.total for step in steps} == {40}
    assert steps[-1].looked_at_count == 40
    assert sum(len(step.outcomes) for step in steps) == 40
    assert again.skipped == 40


async def _count_of(client: eruca.AsyncClient, group: str, *, at_least: int) -> bool:
    return len([held async for held in client.admin.groups.dead_letters(group)]) >= at_least
