"""The sync twin of the push consumer: handlers in threads, started and stopped from any thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter

import anyio.from_thread
import anyio.to_thread
import pytest

import eruca
from support.in_process_cluster import InProcessCluster
from support.patience import PATIENCE_SECONDS
from support.push import send
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_messages_are_handled_without_async(cluster: InProcessCluster, name: str) -> None:
    def run(namesrv_urls: list[str]) -> None:
        with eruca.Client(namesrv_urls) as client:
            client.admin.create_topic(name, queue_count=2)
            consumer = client.push_consumer(name, start="earliest", concurrency=4)
            seen: Counter[str] = Counter()
            threads: set[str] = set()
            done = threading.Event()

            @consumer.on(name, tag="UA || AA")
            def handle(message: eruca.ReceivedMessage, context: eruca.ConsumeContext) -> None:
                assert not context.is_lost
                seen[message.text()] += 1
                threads.add(threading.current_thread().name)
                if seen.total() == 200:
                    done.set()

            with client.producer() as producer:
                tags = ["UA", "AA", "DL"]
                producer.send_many(
                    [eruca.Message(name, str(n), tag=tags[n % 3]) for n in range(300)]
                )
            with consumer:
                assert done.wait(20)
                assert consumer.is_running
                # The messages may be in some of the queues only.
                anyio.from_thread.run(until, lambda: len(consumer.assignment) == 6)
            assert not consumer.is_running
            assert seen == Counter(str(n) for n in range(300) if n % 3 < 2)
            assert all(thread.startswith("eruca-handler") for thread in threads)

    await anyio.to_thread.run_sync(run, cluster.namesrv_urls)


async def test_run_returns_when_another_thread_stops_the_consumer(
    cluster: InProcessCluster, name: str
) -> None:
    def run(namesrv_urls: list[str]) -> None:
        with eruca.Client(namesrv_urls) as client:
            client.admin.create_topic(name, queue_count=1)
            consumer = client.push_consumer(name, start="earliest", ordered=True)
            handled = threading.Event()

            @consumer.on(name)
            def handle(message: eruca.ReceivedMessage) -> None:
                handled.set()

            with client.producer() as producer:
                producer.send(eruca.Message(name, "0"))
            running = threading.Thread(target=consumer.run)
            running.start()
            assert handled.wait(20)
            consumer.stop()
            running.join(20)
            assert not running.is_alive()

    await anyio.to_thread.run_sync(run, cluster.namesrv_urls)


async def test_closing_the_client_stops_its_consumers(cluster: InProcessCluster, name: str) -> None:
    def run(namesrv_urls: list[str]) -> None:
        client = eruca.Client(namesrv_urls)
        client.admin.create_topic(name, queue_count=1)
        consumer = client.push_consumer(name)
        consumer.subscribe(name, handler=lambda message: None)
        consumer.start()
        client.close()
        assert not consumer.is_running

    await anyio.to_thread.run_sync(run, cluster.namesrv_urls)


async def test_what_a_listener_exits_with_is_raised_to_who_waits_for_the_consumer(
    cluster: InProcessCluster, name: str
) -> None:
    def run(namesrv_urls: list[str]) -> None:
        with eruca.Client(namesrv_urls) as client:
            client.admin.create_topic(name, queue_count=1)

            def leave(_: list[eruca.MessageQueue]) -> None:
                sys.exit(3)

            consumer = client.push_consumer(name, listeners=eruca.Listeners(on_assigned=leave))
            consumer.subscribe(name, handler=lambda message: None)
            raised: list[BaseException] = []

            def consume() -> None:
                try:
                    consumer.run()
                except BaseException as error:
                    raised.append(error)

            running = threading.Thread(target=consume, daemon=True)
            running.start()
            running.join(20)
            assert [repr(error) for error in raised] == ["SystemExit(3)"]
            assert client.admin.list_topics()  # the client goes on

    await anyio.to_thread.run_sync(run, cluster.namesrv_urls)


LEFT_RUNNING = """
import sys, threading, time
import eruca
begun = threading.Event()
def handle(message):
    begun.set()
    time.sleep(0.1)
consumer = eruca.Client(sys.argv[1]).push_consumer(sys.argv[2], start="earliest", concurrency=1)
consumer.subscribe(sys.argv[2], handler=handle)
consumer.start()
assert begun.wait(20)
sys.exit(3)
"""


async def test_a_process_ends_though_there_is_always_a_next_message(
    client: eruca.AsyncClient, cluster: InProcessCluster, topic: str
) -> None:
    enough = range(int(10 * PATIENCE_SECONDS * 2))  # at 0.1 s each
    await send(client, topic, enough, key="one queue")

    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-W", "ignore", "-c", LEFT_RUNNING, *cluster.namesrv_urls, topic],
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    )

    assert done.returncode == 3
