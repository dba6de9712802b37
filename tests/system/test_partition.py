"""A member of a group that is cut off from brokers, under constant traffic.

Its network goes through a proxy that breaks connections, or swallows everything and delivers it
later. The member gives its queues up before anybody else gets them; what was on its way then, and
arrives at last, changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import eruca
from support.detour import client_by
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.patience import PAUSE_SECONDS, SESSION_SECONDS
from support.push import until_shared
from support.tcp_proxy import TcpProxy, tcp_proxy
from support.waiting import until

pytestmark = pytest.mark.anyio

TOPIC, GROUP = "flights", "billing"
COMMIT_SECONDS = 0.1


class Member:
    """A member, and what happened to it when."""

    def __init__(self, client: eruca.AsyncClient, *, ordered: bool) -> None:
        self.handled: list[tuple[float, eruca.ReceivedMessage]] = []
        self.got: dict[eruca.MessageQueue, float] = {}
        self.lost: dict[eruca.MessageQueue, float] = {}
        self.consumer = client.push_consumer(
            GROUP,
            start="earliest",
            ordered=ordered,
            # By circle, so that each member has queues of both brokers.
            membership=eruca.Membership(
                strategy=eruca.AveragelyByCircle(), session_seconds=SESSION_SECONDS
            ),
            offsets=eruca.Offsets(commit_seconds=COMMIT_SECONDS),
            stop_timeout_seconds=PAUSE_SECONDS,
            listeners=eruca.Listeners(
                on_assigned=lambda queues: self._note(self.got, queues),
                on_lost=lambda queues: self._note(self.lost, queues),
            ),
        )
        self.consumer.subscribe(TOPIC, handler=self._handle)

    @property
    def queues(self) -> set[eruca.MessageQueue]:
        """The queues of the topic that it reads."""
        return {queue for queue in self.consumer.assignment if queue.topic == TOPIC}

    def _note(
        self, into: dict[eruca.MessageQueue, float], queues: list[eruca.MessageQueue]
    ) -> None:
        for queue in queues:
            if queue.topic == TOPIC:
                into[queue] = time.monotonic()

    async def _handle(self, message: eruca.ReceivedMessage) -> None:
        self.handled.append((time.monotonic(), message))


class Stage:
    """Two members, of which one reaches each broker through a proxy."""

    def __init__(
        self, cluster: InProcessCluster, proxies: dict[str, TcpProxy], far: Member, near: Member
    ) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.far = far
        self.near = near
        self.sent: list[str] = []
        self.is_over = False

    @property
    def consumers(self) -> list[eruca.AsyncPushConsumer]:
        """Both."""
        return [self.far.consumer, self.near.consumer]

    async def send_on(self) -> None:
        """Send without a pause, to every queue in turn."""
        async with (
            eruca.AsyncClient(self.cluster.namesrv_urls) as client,
            client.producer(batching=eruca.Batching(count_max=1)) as producer,
        ):
            while not self.is_over:
                text = str(len(self.sent))
                await producer.send(eruca.Message(TOPIC, text))
                self.sent.append(text)
                await asyncio.sleep(0.02)  # the load's pace

    async def until_everything_is_handled(self) -> None:
        """End the traffic, and wait until every message has been handled by somebody."""
        self.is_over = True

        def is_done() -> bool:
            return {m.text() for _, m in self.far.handled + self.near.handled} >= set(self.sent)

        await until(is_done)

    def repeated(self) -> Counter[str]:
        """Return which messages were handled more than once, and how often."""
        counts = Counter(m.text() for _, m in self.far.handled + self.near.handled)
        return Counter({text: count for text, count in counts.items() if count > 1})

    def uncommitted(self, cut_at: float) -> set[str]:
        """Return what the far member handled when it could not commit that any more, or hardly."""
        margin = COMMIT_SECONDS + PAUSE_SECONDS  # a busy machine commits late
        return {m.text() for at, m in self.far.handled if at > cut_at - margin}


@asynccontextmanager
async def stage(directory: Path, *, ordered: bool) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(in_process_cluster(directory))
        proxies: dict[str, TcpProxy] = {}
        ways: dict[str, str] = {}
        for name, url in cluster.broker_urls.items():
            place = urlsplit(url)
            assert place.hostname is not None
            assert place.port is not None
            target = (place.hostname, place.port)
            proxies[name] = await stack.enter_async_context(tcp_proxy(target))
            ways[url] = f"http://127.0.0.1:{proxies[name].port}"
        namesrvs = cluster.namesrv_urls
        near_client = await stack.enter_async_context(eruca.AsyncClient(namesrvs))
        far_client = await stack.enter_async_context(client_by(ways, namesrvs))
        await near_client.admin.create_topic(TOPIC, queue_count=2)
        far = Member(far_client, ordered=ordered)
        near = Member(near_client, ordered=ordered)
        running = Stage(cluster, proxies, far, near)
        await stack.enter_async_context(far.consumer)
        await stack.enter_async_context(near.consumer)
        await until_shared(running.consumers, TOPIC, queues=4)
        sending = asyncio.create_task(running.send_on())
        await until(lambda: len(running.sent) > 100)
        try:
            yield running
        finally:
            running.is_over = True
            await sending
            for proxy in proxies.values():
                await proxy.heal()


@pytest.mark.parametrize("how", ["cut", "frozen"])
async def test_a_member_that_is_cut_off_gives_up_before_another_takes_over(
    tmp_path: Path, how: str
) -> None:
    async with asyncio.TaskGroup() as side_by_side:
        for ordered in (False, True):
            directory = tmp_path / ("orderly" if ordered else "concurrent")
            directory.mkdir()
            side_by_side.create_task(gives_up(directory, how, ordered=ordered))


async def gives_up(directory: Path, how: str, *, ordered: bool) -> None:
    """Cut a member off; check that it gives its queues up before the other takes them over."""
    async with stage(directory, ordered=ordered) as running:
        far, near = running.far, running.near
        before = set(far.queues)
        cut_at = time.monotonic()
        for proxy in running.proxies.values():
            if how == "cut":
                await proxy.cut()
            else:
                proxy.freeze()
        await until(lambda: near.got.keys() >= before)

        for queue in before:
            assert far.lost[queue] <= near.got[queue]
        last = max(at for at, _ in far.handled)
        assert last <= min(near.got[queue] for queue in before)

        await asyncio.sleep(SESSION_SECONDS / 2)  # traffic that only one of them sees
        for proxy in running.proxies.values():
            await proxy.heal()
        await until_shared(running.consumers, TOPIC, queues=4)
        enough = len(running.sent) + 100
        await until(lambda: len(running.sent) > enough)
        await running.until_everything_is_handled()

    repeated = running.repeated()
    assert repeated.keys() <= running.uncommitted(cut_at)
    assert set(repeated.values()) <= {2}


async def test_a_member_that_is_cut_off_from_one_broker_reads_on_from_the_others(
    tmp_path: Path,
) -> None:
    async with asyncio.TaskGroup() as side_by_side:
        for broker in ("broker-a", "broker-b"):  # the coordinator, and the other one
            directory = tmp_path / f"cut-off-from-{broker}"
            directory.mkdir()
            side_by_side.create_task(reads_on(directory, broker))


async def reads_on(directory: Path, broker: str) -> None:
    """Cut a member off from a broker; check that it keeps its queue at the other one."""
    async with stage(directory, ordered=False) as running:
        far = running.far
        [kept] = [queue for queue in far.queues if queue.broker_name != broker]
        cut_at = time.monotonic()
        await running.proxies[broker].cut()
        await until(lambda: far.lost)
        read = sum(message.queue == kept for _, message in far.handled)
        await until(lambda: sum(m.queue == kept for _, m in far.handled) > read + 50)
        assert kept in far.queues
        assert {queue.broker_name for queue in far.lost} == {broker}

        await running.proxies[broker].heal()
        await until_shared(running.consumers, TOPIC, queues=4)
        await running.until_everything_is_handled()

    assert running.repeated().keys() <= running.uncommitted(cut_at)
