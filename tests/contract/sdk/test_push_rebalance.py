"""Members that come and go: queues are shared evenly, and handed over without a trace."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import eruca
from support.patience import PATIENCE_SECONDS, SESSION_SECONDS
from support.push import Gatherer, send, until_shared
from support.waiting import until

pytestmark = pytest.mark.anyio


def member(
    client: eruca.AsyncClient,
    topic: str,
    gatherer: Gatherer,
    **settings: object,
) -> eruca.AsyncPushConsumer:
    consumer = client.push_consumer(topic, start="earliest", **settings)  # type: ignore[arg-type]
    consumer.subscribe(topic, handler=gatherer)
    return consumer


@asynccontextmanager
async def sending(client: eruca.AsyncClient, topic: str) -> AsyncIterator[list[str]]:
    """Send without a pause; what has been acknowledged is in the list."""
    sent: list[str] = []
    is_over = False

    async def send_on() -> None:
        async with client.producer(batching=eruca.Batching(count_max=3)) as producer:
            number = 0
            while not is_over:
                texts = [str(number + n) for n in range(8)]
                await producer.send_many([eruca.Message(topic, text) for text in texts])
                sent.extend(texts)
                number += 8
                await asyncio.sleep(0.002)  # the load's pace

    task = asyncio.create_task(send_on())
    try:
        yield sent
    finally:
        is_over = True
        await task


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "orderly"])
async def test_members_that_come_and_go_cause_neither_a_duplicate_nor_a_gap(
    client: eruca.AsyncClient, topic: str, *, ordered: bool
) -> None:
    gatherer = Gatherer()
    async with sending(client, topic) as sent, AsyncExitStack() as stack:
        members: list[eruca.AsyncPushConsumer] = []
        for _ in range(4):
            joined = member(client, topic, gatherer, ordered=ordered)
            await stack.enter_async_context(joined)
            members.append(joined)
            await until_shared(members, topic, queues=4)
        while len(members) > 1:
            await members.pop(0).stop()
            await until_shared(members, topic, queues=4)
        enough = len(sent) + 100
        await until(lambda: len(sent) > enough)
        await until(lambda: len(gatherer.messages) >= len(sent))

    async with member(client, topic, gatherer):
        await gatherer.until_count(len(sent))
    counts = Counter(gatherer.texts)
    assert counts.keys() == set(sent)
    assert {text: n for text, n in counts.items() if n > 1} == {}
    if ordered:
        for queue in {message.queue for message in gatherer.messages}:
            offsets = [m.queue_offset for m in gatherer.messages if m.queue == queue]
            assert offsets == list(range(len(offsets)))


async def test_the_program_is_told_what_comes_and_what_goes(
    client: eruca.AsyncClient, topic: str
) -> None:
    told: list[tuple[str, list[eruca.MessageQueue]]] = []

    async def on_assigned(queues: list[eruca.MessageQueue]) -> None:
        told.append(("assigned", queues))

    def on_revoked(queues: list[eruca.MessageQueue]) -> None:
        told.append(("revoked", queues))

    first = member(
        client,
        topic,
        Gatherer(),
        listeners=eruca.Listeners(on_assigned=on_assigned, on_revoked=on_revoked),
    )
    second = member(client, topic, Gatherer())
    async with first:
        await until_shared([first], topic, queues=4)
        async with second:
            await until_shared([first, second], topic, queues=4)
            held = set(first.assignment)

    assigned = {queue for what, queues in told if what == "assigned" for queue in queues}
    revoked = [queue for what, queues in told if what == "revoked" for queue in queues]
    assert len(assigned) == 6  # the retry topic's two are among them
    assert held < assigned
    assert set(revoked) == assigned


async def test_one_queue_is_one_members_and_another_takes_over_when_it_goes(
    client: eruca.AsyncClient, name: str
) -> None:
    await client.admin.create_topic(name, queue_count=1, broker_name="broker-a")
    gatherers = [Gatherer(), Gatherer()]
    first, second = (member(client, name, gatherer, ordered=True) for gatherer in gatherers)

    async with first, second:
        await until_shared([first, second], name, queues=1)
        await send(client, name, range(50))
        await until(lambda: sum(len(g.messages) for g in gatherers) == 50)
        assert sorted(len(g.messages) for g in gatherers) == [0, 50]
        owner = 0 if gatherers[0].messages else 1
        await (first, second)[owner].stop()
        await send(client, name, range(50, 100))
        await gatherers[1 - owner].until_count(50)

    assert [int(text) for text in gatherers[1 - owner].texts] == list(range(50, 100))


async def test_queues_that_are_added_are_shared_too(client: eruca.AsyncClient, topic: str) -> None:
    gatherer = Gatherer()
    members = [member(client, topic, gatherer) for _ in range(2)]
    async with members[0], members[1]:
        await until_shared(members, topic, queues=4)
        await client.admin.create_topic(topic, queue_count=4)
        await until_shared(members, topic, queues=8)
        await send(client, topic, range(400))
        await gatherer.until_count(400)

    assert len({message.queue for message in gatherer.messages}) > 4


async def test_a_topic_that_is_deleted_keeps_nobody_from_the_queues_of_another(
    client: eruca.AsyncClient, topic: str
) -> None:
    other = f"{topic}-other"
    await client.admin.create_topic(other, queue_count=2)
    gatherer = Gatherer()
    members = [member(client, topic, gatherer) for _ in range(2)]
    for one in members:
        one.subscribe(other, handler=gatherer)
    async with members[0]:
        async with members[1]:
            await until_shared(members, topic, queues=4)
            await until_shared(members, other, queues=4)
            await client.admin.delete_topic(topic)
        await until_shared(members[:1], other, queues=4)
        await send(client, other, range(20))
        await gatherer.until_count(20)


async def test_a_configured_strategy_gives_a_member_what_it_says(
    client: eruca.AsyncClient, topic: str
) -> None:
    queues = sorted(await client.admin.queues(topic))
    gatherer = Gatherer()
    consumer = member(
        client,
        topic,
        gatherer,
        membership=eruca.Membership(strategy=eruca.ByConfig((queues[0], queues[3]))),
    )

    def own() -> list[eruca.MessageQueue]:
        return [queue for queue in consumer.assignment if queue.topic == topic]

    async with consumer:
        await until(lambda: len(own()) == 2)
        assert own() == [queues[0], queues[3]]


async def test_a_reset_by_an_operator_moves_members_that_run(
    client: eruca.AsyncClient, topic: str, cluster: object
) -> None:
    gatherer = Gatherer()
    lost: list[eruca.MessageQueue] = []
    consumer = member(
        client,
        topic,
        gatherer,
        membership=eruca.Membership(session_seconds=SESSION_SECONDS),
        listeners=eruca.Listeners(on_lost=lost.extend),
        offsets=eruca.Offsets(commit_seconds=0.05),
    )
    async with consumer:
        await send(client, topic, range(100))
        await gatherer.until_count(100)
        view = await client.context.routes.subscribe_view(topic)
        for urls in view.urls.values():
            answer = await client.context.transport.request(
                "POST",
                urls[0],
                f"/v1/groups/{topic}/offsets:reset",
                headers=[("content-type", "application/json")],
                body=[b'{"topic": "%s", "to": "earliest"}' % topic.encode()],
                timeout=PATIENCE_SECONDS,
            )
            assert answer.status == 200, answer.body
        await gatherer.until_count(200)

    assert set(Counter(gatherer.texts).values()) == {2}
    assert len(lost) == 4


@pytest.mark.parametrize("is_told", [False, True], ids=["at the release", "by a heartbeat"])
async def test_a_reset_while_queues_are_handed_over_leaves_none_without_a_reader(
    client: eruca.AsyncClient, topic: str, *, is_told: bool
) -> None:
    gatherer, may_end = Gatherer(), asyncio.Event()

    async def handle(message: eruca.ReceivedMessage) -> None:
        await gatherer(message)
        await may_end.wait()

    lost: list[eruca.MessageQueue] = []
    first = client.push_consumer(
        topic,
        start="earliest",
        membership=eruca.Membership(session_seconds=SESSION_SECONDS),
        listeners=eruca.Listeners(on_lost=lost.extend),
    )
    first.subscribe(topic, handler=handle)
    second = member(
        client, topic, Gatherer(), membership=eruca.Membership(session_seconds=SESSION_SECONDS)
    )
    await send_evenly(client, topic, 1)
    async with first:
        await gatherer.until_count(4)
        async with second:
            await until(lambda: len([q for q in first.assignment if q.topic == topic]) == 2)

            await client.admin.groups.reset(topic, topic, to="earliest")
            if is_told:
                await until(lambda: len(lost) == 4)
            may_end.set()

            await until_shared([first, second], topic, queues=4)


async def test_groups_each_get_everything(client: eruca.AsyncClient, topic: str) -> None:
    gatherers = [Gatherer(), Gatherer(), Gatherer()]
    consumers = []
    for number, gatherer in enumerate(gatherers):
        consumer = client.push_consumer(f"{topic}-{number}", start="earliest")
        consumer.subscribe(topic, handler=gatherer)
        consumers.append(consumer)

    await send(client, topic, range(50))
    async with consumers[0], consumers[1], consumers[2]:
        for gatherer in gatherers:
            await gatherer.until_count(50)

    assert [sorted(map(int, gatherer.texts)) for gatherer in gatherers] == [list(range(50))] * 3


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "orderly"])
async def test_four_members_take_a_quarter_each_and_the_two_that_stay_a_half(
    client: eruca.AsyncClient, topic: str, *, ordered: bool
) -> None:
    gatherers = [Gatherer() for _ in range(4)]
    members = [member(client, topic, gatherer, ordered=ordered) for gatherer in gatherers]
    async with members[0], members[1]:
        async with members[2], members[3]:
            await until_shared(members, topic, queues=4)
            await send_evenly(client, topic, 25)
            await until(lambda: sum(len(g.messages) for g in gatherers) == 100)
            assert [len(gatherer.messages) for gatherer in gatherers] == [25] * 4
        await until_shared(members[:2], topic, queues=4)
        await send_evenly(client, topic, 25)
        await until(lambda: sum(len(g.messages) for g in gatherers) == 200)

    assert [len(gatherer.messages) for gatherer in gatherers] == [75, 75, 25, 25]
    every = [message for gatherer in gatherers for message in gatherer.messages]
    assert len({(message.queue, message.queue_offset) for message in every}) == 200
    if ordered:
        for gatherer in gatherers:
            for queue in {message.queue for message in gatherer.messages}:
                offsets = [m.queue_offset for m in gatherer.messages if m.queue == queue]
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


async def send_evenly(client: eruca.AsyncClient, topic: str, count: int) -> None:
    """Send so many messages to each queue."""
    async with client.producer() as producer:
        for queue in await client.admin.queues(topic):
            messages = [eruca.Message(topic, str(number)) for number in range(count)]
            await producer.send_many(messages, queue=queue)
