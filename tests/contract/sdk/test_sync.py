"""The sync twin against real brokers: the same as the async one, from any thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio.to_thread
import pytest

import eruca
from support.in_process_cluster import InProcessCluster
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def off_the_loop(cluster: InProcessCluster, *steps: object) -> None:
    """Run blocking steps in a thread: the cluster lives on this one's event loop."""
    for step in steps:
        await anyio.to_thread.run_sync(step, cluster.namesrv_urls)  # type: ignore[arg-type]


async def test_messages_are_sent_and_pulled_without_async(
    cluster: InProcessCluster, name: str
) -> None:
    def run(namesrv_urls: list[str]) -> None:
        with eruca.Client(namesrv_urls) as client:
            assert sorted(client.admin.create_topic(name, queue_count=2)) == [
                "broker-a",
                "broker-b",
            ]
            with client.producer() as producer:
                one = producer.send(eruca.Message(name, "0"))
                many = producer.send_many([eruca.Message(name, str(n)) for n in range(1, 50)])
                later = [producer.submit(eruca.Message(name, str(n))) for n in range(50, 60)]
                ids = {r.message_id for r in (one, *many, *(f.result(20) for f in later))}
            with client.pull_consumer("sync-group", topics=name) as consumer:
                messages = [next(consumer) for _ in range(60)]
                assert sum(consumer.lag().values()) == 0
            assert {m.message_id for m in messages} == ids
            offsets = client.admin.groups.offsets("sync-group", topic=name)
            assert sum(o.committed_offset or 0 for o in offsets.values()) == 60

    await off_the_loop(cluster, run)


async def test_batches_and_logs_are_iterated_over(cluster: InProcessCluster, name: str) -> None:
    def run(namesrv_urls: list[str]) -> None:
        with eruca.Client(namesrv_urls) as client:
            client.admin.create_topic(name, queue_count=1)
            with client.producer() as producer:
                producer.send_many([eruca.Message(name, str(n)) for n in range(30)])
            count = 0
            for batch in client.pull_consumer(topics=name).batches(count_max=10, wait_seconds=20):
                count += len(batch)
                if count == 30:
                    break
            with client.log_follower("broker-a") as follower:
                assert next(follower).log_offset == 0
                assert len(follower.read()) > 0

    await off_the_loop(cluster, run)


async def test_what_is_made_while_it_is_asked_for_is_made_in_the_thread_that_calls(
    cluster: InProcessCluster, name: str
) -> None:
    """So it may use what no other thread may, and the client itself."""

    def run(namesrv_urls: list[str]) -> None:
        makers: set[int] = set()

        with eruca.Client(namesrv_urls) as client, client.producer() as producer:

            def messages() -> Iterator[eruca.Message]:
                for topic in client.admin.create_topic(name, queue_count=1):
                    makers.add(threading.get_ident())
                    yield eruca.Message(name, topic)

            assert len(producer.send_many(messages())) == 2
        assert makers == {threading.get_ident()}

    await off_the_loop(cluster, run)


async def test_threads_share_a_producer_and_its_batches(
    cluster: InProcessCluster, name: str
) -> None:
    def run(namesrv_urls: list[str]) -> None:
        with eruca.Client(namesrv_urls) as client, ThreadPoolExecutor(16) as threads:
            client.admin.create_topic(name, queue_count=1)
            producer = client.producer()
            sent = threads.map(lambda n: producer.send(eruca.Message(name, str(n))), range(400))
            assert len({result.message_id for result in sent}) == 400
            assert sum(q.max_offset for q in client.admin.queues(name).values()) == 400

    await off_the_loop(cluster, run)


async def test_errors_are_the_same_classes(cluster: InProcessCluster, name: str) -> None:
    def run(namesrv_urls: list[str]) -> None:
        with eruca.Client(namesrv_urls) as client:
            with pytest.raises(eruca.TopicNotFoundError):
                client.pull_consumer(topics=name).poll(wait_seconds=20)
            queue = eruca.MessageQueue(name, "broker-a", 77)
            future = client.producer().submit(eruca.Message(name, "x"), queue=queue)
            with pytest.raises(eruca.NotFoundError):
                future.result(20)

    await off_the_loop(cluster, run)


def sdk_threads() -> int:
    return sum(thread.name == "eruca" for thread in threading.enumerate())


async def test_a_closed_client_refuses_and_closing_again_is_harmless(
    cluster: InProcessCluster,
) -> None:
    def run(namesrv_urls: list[str]) -> None:
        client = eruca.Client(namesrv_urls)
        assert sdk_threads() == 0, "making a client starts nothing"
        producer = client.producer()
        assert sdk_threads() == 1
        client.close()

        assert sdk_threads() == 0
        with pytest.raises(eruca.ClosedError):
            client.producer()
        with pytest.raises(eruca.ClosedError):
            producer.send(eruca.Message("orders", "x"))
        producer.close()
        client.close()

    await off_the_loop(cluster, run)


async def test_a_client_that_was_never_used_closes_without_a_thread() -> None:
    with eruca.Client("http://127.0.0.1:1"):
        pass


FORKED = """
import os, signal, eruca
client = eruca.Client("http://127.0.0.1:1", timeout_seconds=1)
try:
    client.admin.list_topics()
except eruca.ErucaError:
    pass
lock = client._portal._lock
lock.acquire()  # as another thread may have it that is just sending
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        client.admin.list_topics()
    except eruca.ClosedError as error:
        print(error, flush=True)
    client.close()
    os._exit(0)
lock.release()
os.wait()
client.close()
"""


async def test_a_child_process_is_told_to_make_a_client_of_its_own() -> None:
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FORKED],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
    )

    assert "before this process was forked" in done.stdout
    assert done.stderr == ""


LEFT_OPEN = """
import eruca
client = eruca.Client("http://127.0.0.1:1", timeout_seconds=1)
try:
    client.admin.list_topics()
except eruca.NameServersUnreachableError:
    print("refused")
"""


@pytest.mark.parametrize(
    ("code", "is_warned"), [(LEFT_OPEN, True), (LEFT_OPEN + "client.close()\n", False)]
)
async def test_a_client_that_was_left_open_does_not_keep_the_process_and_is_warned_of(
    code: str, *, is_warned: bool
) -> None:
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-W", "default::ResourceWarning", "-c", code],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
    )

    assert done.stdout == "refused\n"
    assert ("ResourceWarning: an Eruca client was not closed" in done.stderr) is is_warned
    assert is_warned or not done.stderr


def names_of(kind: type) -> Iterator[str]:
    return (name for name in vars(kind) if not name.startswith("_"))


@pytest.mark.parametrize(
    ("of_async", "of_sync"),
    [
        (eruca.AsyncClient, eruca.Client),
        (eruca.AsyncProducer, eruca.Producer),
        (eruca.AsyncPullConsumer, eruca.PullConsumer),
        (eruca.AsyncAdmin, eruca.Admin),
        (eruca.AsyncLogFollower, eruca.LogFollower),
    ],
    ids=lambda kind: kind.__name__,
)
async def test_the_same_names_are_in_both(of_async: type, of_sync: type) -> None:
    assert set(names_of(of_sync)) == set(names_of(of_async)) - {"context", "leave"}
