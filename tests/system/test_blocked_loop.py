"""Members whose async handlers block the event loop, beside one that goes on.

A handler that blocks for several sessions costs its own queues the time and nothing else: the
member keeps them, and no message is handled twice. One that blocks for longer than
``consume_timeout_seconds`` has hung, and others take its queues over.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from support.group_member import MemberProcess
from support.patience import SESSION_SECONDS
from support.push import Gatherer, committed, send, until_shared
from support.waiting import until

pytestmark = pytest.mark.anyio

QUEUES = 4
SMALL = {"ERUCA_BROKER_SEGMENT_BYTES": str(16 * 1024 * 1024)}


class Members:
    """The members of a group that reads a topic; both have one name."""

    def __init__(self, url: str, directory: Path, name: str) -> None:
        self.name = name
        self._url = url
        self._directory = directory
        self.all: list[MemberProcess] = []

    def join(self, **settings: Any) -> MemberProcess:  # noqa: ANN401  (a consumer's settings)
        """Start a further member."""
        file = self._directory / f"{self.name}-{len(self.all)}.jsonl"
        chosen = {
            "start": "earliest",
            "membership": {"session_seconds": SESSION_SECONDS},
            **settings,
        }
        member = MemberProcess(len(self.all), file, (self._url, self.name, self.name), chosen)
        self.all.append(member)
        return member

    async def until_shared(self) -> None:
        """Wait until each holds as many queues as the others."""
        share = QUEUES // len(self.all)
        await until(
            lambda: all(len(member.queues(self.name)) == share for member in self.all),
        )

    def handled(self) -> Counter[str]:
        """Return how often each message was handled."""
        return Counter(h.text for member in self.all for h in member.handled())


@pytest.fixture(scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(brokers=2, settings=SMALL) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[eruca.AsyncClient]:
    async with eruca.AsyncClient(cluster.namesrv_urls) as client:
        yield client


@contextmanager
def group_of(cluster: LocalCluster, directory: Path, name: str) -> Iterator[Members]:
    """Yield a group without members, which are killed at the end."""
    members = Members(cluster.namesrv_urls[0], directory, name)
    try:
        yield members
    finally:
        for member in members.all:
            member.kill()


async def have_blocked(
    client: eruca.AsyncClient, members: Members, member: MemberProcess, seconds: float
) -> str:
    """Send a message whose handler blocks the event loop of a member; return it once it does."""
    topic, text = members.name, member.block_text(seconds)
    async with client.producer() as producer:
        await producer.send(eruca.Message(topic, text), queue=min(member.queues(topic)))
    await until(lambda: any(event.kind == "blocked" for event in member.events()))
    return text


async def until_handled(members: Members, texts: set[str]) -> None:
    await until(lambda: members.handled().keys() >= texts)


async def test_a_handler_that_blocks_for_several_sessions_keeps_its_queues(
    cluster: LocalCluster, client: eruca.AsyncClient, tmp_path: Path
) -> None:
    with (
        group_of(cluster, tmp_path, "concurrent") as concurrent,
        group_of(cluster, tmp_path, "orderly") as orderly,
    ):
        async with asyncio.TaskGroup() as side_by_side:
            side_by_side.create_task(keeps_its_queues(client, concurrent, ordered=False))
            side_by_side.create_task(keeps_its_queues(client, orderly, ordered=True))


async def keeps_its_queues(client: eruca.AsyncClient, members: Members, *, ordered: bool) -> None:
    """Block a handler of one of two members for several sessions; check what that changes."""
    topic = members.name
    await client.admin.create_topic(topic, queue_count=QUEUES // 2)
    blocked, other = members.join(ordered=ordered), members.join(ordered=ordered)
    await members.until_shared()
    before = blocked.queues(topic)

    block = await have_blocked(client, members, blocked, 2.5 * SESSION_SECONDS)
    sent = {str(number) for number in range(400)}
    await send(client, topic, sorted(sent))
    await until_handled(members, sent | {block})
    await members.until_shared()

    assert blocked.queues(topic) == before
    assert [event for event in blocked.events() if event.kind == "lost"] == []
    assert {h.queue for h in other.handled()}.isdisjoint(before)
    assert set(members.handled().values()) == {1}
    for member in members.all:
        await asyncio.to_thread(member.stop)
    assert await committed(client, topic, topic) == 401


async def test_a_handler_that_blocks_for_longer_than_its_time_limit_loses_its_queues(
    cluster: LocalCluster, client: eruca.AsyncClient, tmp_path: Path
) -> None:
    with group_of(cluster, tmp_path, "limited") as members:
        await client.admin.create_topic(members.name, queue_count=QUEUES // 2)
        await loses_its_queues(client, members)


async def loses_its_queues(client: eruca.AsyncClient, members: Members) -> None:
    """Block a handler for longer than its limit; check who handles what then."""
    topic = members.name
    limit = SESSION_SECONDS
    blocked, other = (
        members.join(consume_timeout_seconds=limit),
        members.join(consume_timeout_seconds=limit),
    )
    await members.until_shared()

    block = await have_blocked(client, members, blocked, 4 * SESSION_SECONDS)
    [began_at] = [event.at for event in blocked.events() if event.kind == "blocked"]
    sent = {str(number) for number in range(400)}
    await send(client, topic, sorted(sent))
    await until(lambda: len(other.queues(topic)) == QUEUES)
    taken_over_at = time.time()
    await until(lambda: {h.text for h in other.handled()} == sent | {block})
    assert blocked.handled() == []

    await until(lambda: any(e.kind == "lost" for e in blocked.events()))
    await members.until_shared()

    # The limit, then what was left of the session.
    assert limit < taken_over_at - began_at
    # What the member had pulled before it hung, it does not hand out any more.
    assert [h.text for h in blocked.handled()] == [block]
    assert {text for text, count in members.handled().items() if count > 1} == {block}


async def test_stopping_after_a_block_leaves_no_session_behind(
    client: eruca.AsyncClient,
) -> None:
    topic = group = "stopped"
    await client.admin.create_topic(topic, queue_count=QUEUES // 2)
    gatherer = Gatherer()
    for number in range(2):
        member = client.push_consumer(
            group, start="earliest", membership=eruca.Membership(session_seconds=SESSION_SECONDS)
        )
        member.subscribe(topic, handler=gatherer)
        async with member:
            await until_shared([member], topic, queues=QUEUES)
            await send(client, topic, range(10))
            await gatherer.until_count(10 * (number + 1))
            time.sleep(SESSION_SECONDS * 1.1)  # noqa: ASYNC251  (the thread is to renew sessions)

        at_brokers = await client.admin.groups.members(group)
        assert {name: answer.members for name, answer in at_brokers.items()} == {
            "broker-a": [],
            "broker-b": [],
        }
    assert len(gatherer.texts) == 20
