"""The push consumer against real brokers: handlers of every kind, and what becomes of messages."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import pytest

import eruca
from support.in_process_cluster import InProcessCluster
from support.patience import PATIENCE_SECONDS
from support.push import Gatherer, committed, send
from support.waiting import stays, until

pytestmark = pytest.mark.anyio


async def test_every_message_is_handled_once_and_committed(
    client: eruca.AsyncClient, topic: str
) -> None:
    gatherer = Gatherer()
    consumer = client.push_consumer(topic, start="earliest")
    consumer.subscribe(topic, handler=gatherer)
    await send(client, topic, range(500))

    async with consumer:
        await gatherer.until_count(500)

    assert Counter(gatherer.texts) == Counter(map(str, range(500)))
    assert await committed(client, topic, topic) == 500


async def test_a_plain_function_runs_in_threads_many_at_a_time(
    client: eruca.AsyncClient, topic: str
) -> None:
    barrier = threading.Barrier(4, timeout=PATIENCE_SECONDS)
    names: set[str] = set()
    consumer = client.push_consumer(topic, start="earliest", concurrency=4)

    @consumer.on(topic)
    def handle(message: eruca.ReceivedMessage) -> None:
        barrier.wait()
        names.add(threading.current_thread().name)

    await send(client, topic, range(40))
    async with consumer:
        await until(lambda: len(names) == 4)
        barrier.abort()  # those that wait for a fourth, which does not come

    assert all(name.startswith("eruca-handler") for name in names)


async def test_quick_plain_functions_and_async_ones_share_a_consumer(
    client: eruca.AsyncClient, topic: str
) -> None:
    handled: list[tuple[str, str]] = []
    consumer = client.push_consumer(topic, start="earliest")

    @consumer.on(topic, tag="plain")
    def plain(message: eruca.ReceivedMessage) -> None:
        handled.append(("plain", message.text()))

    @consumer.on(topic, tag="async")
    async def on_loop(message: eruca.ReceivedMessage) -> None:
        handled.append(("async", message.text()))

    tags = ["plain", "async", "neither"]
    async with client.producer() as producer, consumer:
        await producer.send_many(
            [eruca.Message(topic, str(n), tag=tags[n % 3]) for n in range(300)]
        )
        await until(lambda: len(handled) == 200)

    assert Counter(kind for kind, _ in handled) == {"plain": 100, "async": 100}
    assert all(tags[int(text) % 3] == kind for kind, text in handled)


async def test_conditions_over_properties_are_evaluated_at_the_broker(
    client: eruca.AsyncClient, topic: str
) -> None:
    gatherer = Gatherer()
    consumer = client.push_consumer(topic, start="earliest")
    consumer.on(topic, sql="price > 5")(gatherer)
    async with client.producer() as producer, consumer:
        await producer.send_many(
            [eruca.Message(topic, str(n), properties={"price": str(n)}) for n in range(10)]
        )
        await gatherer.until_count(4)

    assert sorted(gatherer.texts) == ["6", "7", "8", "9"]


async def test_batches_hold_several_messages_of_one_queue(
    client: eruca.AsyncClient, topic: str
) -> None:
    batches: list[list[eruca.ReceivedMessage]] = []
    consumer = client.push_consumer(topic, start="earliest", batch_count_max=10)

    @consumer.on(topic)
    async def handle(messages: list[eruca.ReceivedMessage]) -> None:
        batches.append(messages)

    await send(client, topic, range(200))
    async with consumer:
        await until(lambda: sum(map(len, batches)) == 200)

    assert max(map(len, batches)) > 1
    assert max(map(len, batches)) <= 10
    for batch in batches:
        assert len({message.queue for message in batch}) == 1


async def test_a_handler_that_asks_for_it_gets_the_context(
    client: eruca.AsyncClient, topic: str
) -> None:
    contexts: list[eruca.ConsumeContext] = []
    consumer = client.push_consumer(topic, start="earliest")

    @consumer.on(topic)
    def handle(message: eruca.ReceivedMessage, context: eruca.ConsumeContext) -> None:
        assert context.queue == message.queue
        contexts.append(context)

    await send(client, topic, [0])
    async with consumer:
        await until(lambda: contexts)
        assert not contexts[0].is_lost

    assert contexts[0].is_lost  # it has been handed back


async def test_stopping_waits_for_handlers_and_commits_what_they_have_done(
    client: eruca.AsyncClient, topic: str
) -> None:
    begun, go = threading.Event(), threading.Event()
    done: list[str] = []
    consumer = client.push_consumer(topic, start="earliest", concurrency=1)

    @consumer.on(topic)
    def handle(message: eruca.ReceivedMessage) -> None:
        begun.set()
        assert go.wait(20)
        done.append(message.text())

    await send(client, topic, range(20), key="one queue")
    await consumer.start()
    await until(begun.is_set)
    stopping = asyncio.create_task(consumer.stop())
    await stays(lambda: not stopping.done())
    go.set()
    await stopping

    assert await committed(client, topic, topic) == len(done) < 20


async def test_a_consumer_that_is_stopped_while_it_starts_is_no_member_afterwards(
    client: eruca.AsyncClient, topic: str
) -> None:
    consumer = client.push_consumer(topic, start="earliest")
    consumer.subscribe(topic, handler=Gatherer())
    running = asyncio.create_task(consumer.run())
    await until(lambda: consumer.is_running)

    await consumer.stop()
    await running

    groups = await client.admin.groups.members(topic)
    assert [found.members for found in groups.values() if found.members] == []
    assert not consumer.is_running
    assert consumer.assignment == []


async def test_a_client_that_is_closed_at_once_gives_up_a_consumer_that_starts(
    client: eruca.AsyncClient, cluster: InProcessCluster, topic: str
) -> None:
    other = eruca.AsyncClient(cluster.namesrv_urls)
    consumer = other.push_consumer(topic, start="earliest")
    consumer.subscribe(topic, handler=Gatherer())
    starting = asyncio.create_task(consumer.start())
    await until(lambda: consumer.is_running)

    await other.close(drain=False)

    with pytest.raises(eruca.ClosedError):
        await starting
    assert not consumer.is_running


async def test_once_a_client_is_closed_at_once_no_plain_function_gets_anything(
    client: eruca.AsyncClient, cluster: InProcessCluster, topic: str
) -> None:
    begun: list[str] = []
    may_end = threading.Event()
    other = eruca.AsyncClient(cluster.namesrv_urls)
    consumer = other.push_consumer(topic, start="earliest", concurrency=1)

    @consumer.on(topic)
    def handle(message: eruca.ReceivedMessage) -> None:
        begun.append(message.text())
        may_end.wait(PATIENCE_SECONDS)

    await send(client, topic, range(50))
    await consumer.start()
    await until(lambda: begun)

    await other.close(drain=False)

    may_end.set()
    await stays(lambda: len(begun) == 1)


async def test_a_handler_that_does_not_end_is_given_up_and_its_message_is_redelivered(
    client: eruca.AsyncClient, topic: str
) -> None:
    begun, never = asyncio.Event(), asyncio.Event()
    consumer = client.push_consumer(topic, start="earliest", stop_timeout_seconds=0.2)

    @consumer.on(topic)
    async def stuck(message: eruca.ReceivedMessage) -> None:
        begun.set()
        await never.wait()

    await send(client, topic, [0])
    async with consumer:
        await begun.wait()

    gatherer = Gatherer()
    other = client.push_consumer(topic)
    other.subscribe(topic, handler=gatherer)
    async with other:
        await gatherer.until_count(1)
    assert gatherer.texts == ["0"]


async def test_a_paused_consumer_hands_nothing_out_until_it_is_resumed(
    client: eruca.AsyncClient, topic: str
) -> None:
    gatherer = Gatherer()
    consumer = client.push_consumer(topic, start="earliest")
    consumer.subscribe(topic, handler=gatherer)

    async with consumer:
        await until(lambda: len(consumer.assignment) >= 4)
        await consumer.pause()
        await send(client, topic, range(20))
        await stays(lambda: not gatherer.texts)
        await consumer.resume()
        await gatherer.until_count(20)


async def test_flow_control_bounds_what_is_held(client: eruca.AsyncClient, topic: str) -> None:
    go = asyncio.Event()
    consumer = client.push_consumer(
        topic, start="earliest", limits=eruca.Limits(queue_count_max=10), concurrency=1
    )

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage) -> None:
        await go.wait()

    await send(client, topic, range(500), key="one queue")
    async with consumer:
        running = consumer._running
        assert running is not None
        await until(lambda: any(held.process.count for held in running._held.values()))
        # One pull may bring what there is room for in all queues that it is for.
        await stays(lambda: sum(h.process.count for h in running._held.values()) <= 10 * 6)
        go.set()
        await until(lambda: sum(h.process.next_offset for h in running._held.values()) == 500)


async def test_a_new_group_starts_where_it_is_told_to(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, range(10))
    gatherer = Gatherer()
    consumer = client.push_consumer(topic, start="latest")
    consumer.subscribe(topic, handler=gatherer)

    async with consumer:
        await until(lambda: len(consumer.assignment) >= 4)
        await send(client, topic, range(10, 20))
        await gatherer.until_count(10)

    assert sorted(map(int, gatherer.texts)) == list(range(10, 20))


async def test_a_topic_that_comes_later_is_consumed_if_it_is_waited_for(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    later = f"{name}-later"
    gatherer = Gatherer()
    consumer = client.push_consumer(name, start="earliest", wait_for_topics=True)
    consumer.subscribe(later, handler=gatherer)

    async with consumer:
        await client.admin.create_topic(later, queue_count=1)
        await send(client, later, [0])
        await gatherer.until_count(1)


async def test_what_cannot_work_is_refused_at_the_start(
    client: eruca.AsyncClient, topic: str
) -> None:
    with pytest.raises(eruca.ValidationError, match="no handler"):
        await client.push_consumer("group").start()
    with pytest.raises(eruca.ValidationError, match="cannot be called"):
        client.push_consumer("group").subscribe(topic)
    with pytest.raises(eruca.ValidationError, match="group"):
        client.push_consumer("not a name")
    with pytest.raises(eruca.ValidationError, match="system"):
        client.push_consumer("CID_RMQ_SYS_mine")
    absent = client.push_consumer("group")
    absent.subscribe("no-such-topic", handler=print)
    with pytest.raises(eruca.TopicNotFoundError) as missing:
        await absent.start()
    assert any("wait_for_topics=True" in note for note in missing.value.__notes__)


async def test_other_subscriptions_than_the_groups_are_refused_naming_the_difference(
    client: eruca.AsyncClient, topic: str
) -> None:
    first = client.push_consumer(topic, client_id="first")
    first.subscribe(topic, "a", Gatherer())
    second = client.push_consumer(topic, client_id="second")
    second.subscribe(topic, "b", Gatherer())

    async with first:
        with pytest.raises(eruca.SubscriptionConflictError, match="first"):
            await second.start()

    assert not second.is_running


async def test_a_client_id_is_used_by_one_process_at_a_time(
    client: eruca.AsyncClient, topic: str
) -> None:
    first = client.push_consumer(topic, client_id="mine")
    first.subscribe(topic, handler=Gatherer())
    second = client.push_consumer(topic, client_id="mine")
    second.subscribe(topic, handler=Gatherer())

    async with first:
        with pytest.raises(eruca.ClientIdInUseError):
            await second.start()


async def test_a_static_member_is_fenced_by_a_later_one_of_its_client_id(
    client: eruca.AsyncClient, topic: str
) -> None:
    gatherer = Gatherer()
    first = client.push_consumer(
        topic, client_id="mine", membership=eruca.Membership(is_static=True, session_seconds=3)
    )
    first.subscribe(topic, handler=Gatherer())
    second = client.push_consumer(
        topic, client_id="mine", membership=eruca.Membership(is_static=True)
    )
    second.subscribe(topic, handler=gatherer)

    await first.start()
    async with second:
        with pytest.raises(eruca.ClientIdInUseError):
            await first.wait_stopped()
        await send(client, topic, range(20))
        await gatherer.until_count(20)


async def test_a_slow_async_handler_is_cancelled_at_its_time_limit(
    client: eruca.AsyncClient, topic: str
) -> None:
    cancelled = asyncio.Event()
    consumer = client.push_consumer(topic, start="earliest", consume_timeout_seconds=0.1)

    @consumer.on(topic)
    async def slow(message: eruca.ReceivedMessage) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await send(client, topic, [0])
    async with consumer:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await cancelled.wait()


@pytest.mark.parametrize("drain", [True, False], ids=["stopped", "given up"])
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("consume_timeout_seconds", [0.1, 900], ids=["late", "in time"])
async def test_a_consumer_ends_though_its_handler_takes_no_notice_of_it(
    cluster: InProcessCluster,
    topic: str,
    drain: bool,
    ordered: bool,
    consume_timeout_seconds: float,
) -> None:
    seen = asyncio.Event()
    client = eruca.AsyncClient(cluster.namesrv_urls)
    consumer = client.push_consumer(
        topic,
        start="earliest",
        ordered=ordered,
        consume_timeout_seconds=consume_timeout_seconds,
        stop_timeout_seconds=0.1,
    )

    @consumer.on(topic)
    async def stubborn(message: eruca.ReceivedMessage) -> None:
        try:
            if consume_timeout_seconds > 1:
                seen.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.set()
            if consume_timeout_seconds < 1:
                await asyncio.Event().wait()  # it cleans up, and is told to end meanwhile

    await send(client, topic, range(5))
    await consumer.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await seen.wait()
    closing = asyncio.create_task(client.close(drain=drain))
    ended, _ = await asyncio.wait({closing}, timeout=PATIENCE_SECONDS)

    assert ended


async def test_a_blocked_event_loop_is_told_of(
    client: eruca.AsyncClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = False
    consumer = client.push_consumer(
        topic, start="earliest", membership=eruca.Membership(session_seconds=3)
    )

    @consumer.on(topic)
    async def blocking(message: eruca.ReceivedMessage) -> None:
        nonlocal blocked
        time.sleep(2.2)  # noqa: ASYNC251  (what must not be done, and is)
        blocked = True

    await send(client, topic, [0])
    async with consumer:
        await until(lambda: blocked and "the event loop was blocked" in caplog.text)


async def test_an_end_of_the_event_loop_that_breaks_off_a_handler_is_not_held_up_by_it(
    client: eruca.AsyncClient, topic: str
) -> None:
    begun = asyncio.Event()
    consumer = client.push_consumer(
        topic, start="earliest", stop_timeout_seconds=10 * PATIENCE_SECONDS
    )

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    await send(client, topic, range(1))
    async with asyncio.timeout(2 * PATIENCE_SECONDS), consumer:
        await begun.wait()
        for task in asyncio.all_tasks():  # as asyncio.run does, after sys.exit in a handler
            if task.get_name().startswith("eruca worker"):
                task.cancel()

    assert await committed(client, topic, topic) == 0  # it is handled again
