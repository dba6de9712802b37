"""Locks: one reader for each queue, whatever happens to readers and broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.group_members import TestMember, held
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def app(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServiceApp]:
    async with open_broker(tmp_path / "store", clock) as app:
        yield app


@pytest.fixture
async def pair(client: httpx.AsyncClient) -> tuple[TestMember, TestMember]:
    await client.put("/topics/orders", json={"read_queue_count": 3, "write_queue_count": 3})
    members = TestMember(client, "a"), TestMember(client, "b")
    for member in members:
        await member.beat()
    return members


async def send(client: httpx.AsyncClient, queue_id: int = 0, count: int = 1) -> None:
    messages = {"messages": [{"body": {"text": "x"}}] * count}
    path = f"/topics/orders/messages?queue_id={queue_id}"
    assert (await client.post(path, json=messages)).status_code < 300


async def held_lock(app: ServiceApp, member: TestMember, *queue_ids: int) -> asyncio.Task[Any]:
    """Let *member* wait for a lock, and return once the broker holds its request."""
    task = asyncio.create_task(member.lock(*queue_ids, wait_seconds=30))
    await held(app)
    return task


def granted(answer: httpx.Response) -> list[int]:
    return [lock["queue_id"] for lock in answer.json()["locks"]]


async def test_a_queue_is_granted_to_one_member_only(pair: tuple[TestMember, TestMember]) -> None:
    a, b = pair

    assert granted(await a.lock(0, 1)) == [0, 1]
    answer = await b.lock(0, 2)

    assert granted(answer) == [2]
    [refused] = answer.json()["refused"]
    assert (refused["queue_id"], refused["owner"]) == (0, "a")
    assert 0 < refused["expires_in_seconds"] <= 30


async def test_a_lock_asked_for_again_is_the_same(pair: tuple[TestMember, TestMember]) -> None:
    a, _ = pair
    first = await a.lock(0)

    assert (await a.lock(0)).json() == first.json()


async def test_a_release_commits_and_hands_over_to_who_waits(
    pair: tuple[TestMember, TestMember], app: ServiceApp, client: httpx.AsyncClient
) -> None:
    a, b = pair
    await send(client, count=19)
    await a.lock(0)
    waiting = await held_lock(app, b, 0)

    assert (await a.release((0, 17))).status_code == 204

    [lock] = (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).json()["locks"]
    assert (lock["next_offset"], lock["committed_offset"]) == (17, 17)
    assert lock["token"] > a.tokens["orders", 0]
    assert (await a.release((0, 18))).json()["code"] == "stale-lock"
    assert (await a.commit((0, 18))).json()["code"] == "stale-lock"
    assert (await b.commit((0, 19))).status_code == 204


@pytest.mark.parametrize("way", ["leave", "expire"])
async def test_the_queues_of_who_goes_are_for_who_waits(
    pair: tuple[TestMember, TestMember], app: ServiceApp, clock: ManualClock, way: str
) -> None:
    a, b = pair
    await a.lock(0)
    await b.beat(session_seconds=300)
    waiting = await held_lock(app, b, 0)

    if way == "leave":
        await a.leave()
    else:
        clock.advance(31)
        await broker_of(app).members.expiry_step()

    assert granted(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == [0]


async def test_a_wait_without_success_is_answered_with_the_owner(
    pair: tuple[TestMember, TestMember],
) -> None:
    a, b = pair
    await a.lock(0)

    answer = await b.lock(0, wait_seconds=0.05)

    assert answer.json()["locks"] == []
    assert answer.json()["refused"][0]["owner"] == "a"


async def test_of_many_that_wait_one_gets_the_queue_at_each_release(
    pair: tuple[TestMember, TestMember], client: httpx.AsyncClient, app: ServiceApp
) -> None:
    owner, _ = pair
    await owner.lock(0)
    others = [TestMember(client, f"c{n}") for n in range(5)]
    for other in others:
        await other.beat()
    waits = {asyncio.create_task(other.lock(0, wait_seconds=30)): other for other in others}
    await held(app, len(waits))

    while waits:
        await owner.release((0, None))
        [told], _ = await asyncio.wait(
            waits, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        assert granted(told.result()) == [0]
        owner = waits.pop(told)


async def test_who_comes_back_after_its_session_has_lost_its_queues(
    pair: tuple[TestMember, TestMember], clock: ManualClock
) -> None:
    a, b = pair
    await a.lock(0)
    await b.beat(session_seconds=300)
    clock.advance(31)
    assert granted(await b.lock(0)) == [0]

    assert (await a.commit((0, 5))).json()["code"] == "stale-lock"
    assert (await a.lock(1)).json()["code"] == "member-not-found"
    returned = await a.beat()
    assert returned.status_code == 201
    assert returned.json()["lost_locks"] == [{"topic": "orders", "queue_id": 0}]


async def test_a_commit_is_stored_whole_or_not_at_all(
    pair: tuple[TestMember, TestMember], client: httpx.AsyncClient
) -> None:
    a, _ = pair
    await a.lock(0, 1)
    a.tokens["orders", 1] -= 1

    answer = await a.commit((0, 5), (1, 5))

    assert (answer.status_code, answer.json()["code"]) == (409, "stale-lock")
    assert answer.json()["errors"][0]["pointer"] == "/body/offsets/1"
    offsets = (await client.get("/groups/g/offsets")).json()["offsets"]
    assert [o["committed_offset"] for o in offsets] == [None] * 3


async def test_locks_outlive_the_broker_and_their_owner_may_go_on(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_broker(tmp_path, clock) as app, client_of(app) as client:
        await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
        a, b = TestMember(client, "a"), TestMember(client, "b")
        for member in (a, b):
            await member.beat()
        await send(client, count=5)
        await a.lock(0)
        await a.commit((0, 3))

    async with open_broker(tmp_path, clock) as app, client_of(app) as client:
        a.client = b.client = client
        assert (await client.get("/groups/g/members")).json()["members"] == []
        assert (await client.delete("/groups/g")).status_code == 409
        assert (await b.lock(0)).json()["code"] == "member-not-found"
        await b.beat(session_seconds=300)
        assert granted(await b.lock(0)) == []
        assert (await a.commit((0, 4))).status_code == 204
        assert (await a.beat()).json()["lost_locks"] == []
        assert (await a.commit((0, 5))).status_code == 204

    async with open_broker(tmp_path, clock) as app, client_of(app) as client:
        a.client = b.client = client
        await b.beat(session_seconds=300)
        clock.advance(31)
        assert (await a.commit((0, 6))).json()["code"] == "stale-lock"
        [lock] = (await b.lock(0)).json()["locks"]
        assert lock["next_offset"] == 5


async def test_a_deleted_topic_s_locks_are_gone_and_who_waits_is_told(
    pair: tuple[TestMember, TestMember], app: ServiceApp, client: httpx.AsyncClient
) -> None:
    a, b = pair
    await a.lock(0)
    waiting = await held_lock(app, b, 0)

    await client.delete("/topics/orders")

    assert (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).json()["code"] == "topic-not-found"
    assert (await a.beat()).json()["lost_locks"] == [{"topic": "orders", "queue_id": 0}]


async def test_a_lock_is_refused_or_granted_whenever_its_topic_is_deleted(
    client: httpx.AsyncClient,
) -> None:
    for ticks in range(10):
        topic = f"orders-{ticks}"
        await client.put(f"/topics/{topic}", json={"read_queue_count": 1, "write_queue_count": 1})
        member = TestMember(client, topics=(topic,))
        await member.beat()
        asked = asyncio.create_task(member.lock(0, topic=topic))
        for _ in range(ticks):
            await asyncio.sleep(0)

        await client.delete(f"/topics/{topic}")

        answer = await asked
        assert answer.status_code in (200, 404), answer.text
        assert (await member.lock(0, topic=topic)).status_code == 404
        await member.leave()


async def test_locks_need_consumption_to_be_switched_on(
    pair: tuple[TestMember, TestMember], client: httpx.AsyncClient
) -> None:
    a, _ = pair
    await send(client)
    await a.lock(0)
    await client.put("/groups/g", json={"consume_enabled": False})

    assert (await a.lock(1)).json()["code"] == "permission-denied"
    assert (await a.beat()).json()["consume_enabled"] is False
    assert (await a.release((0, 1))).status_code == 204


async def test_broadcasting_members_have_no_locks(
    pair: tuple[TestMember, TestMember], client: httpx.AsyncClient
) -> None:
    member = TestMember(client, group="h")
    await member.beat(message_model="broadcasting")

    assert (await member.lock(0)).json()["code"] == "conflict"
    assert (await client.get("/topics/%25RETRY%25h")).status_code == 404


@pytest.mark.parametrize(("topic", "queue_id", "status"), [("orders", 3, 404), ("unknown", 0, 404)])
async def test_what_cannot_be_read_cannot_be_locked(
    pair: tuple[TestMember, TestMember], topic: str, queue_id: int, status: int
) -> None:
    answer = await pair[0].lock(queue_id, topic=topic)

    assert answer.status_code == status
    assert answer.json()["errors"][0]["pointer"] == "/body/queues/0"


async def test_every_queue_that_cannot_be_locked_for_one_reason_is_pointed_at(
    pair: tuple[TestMember, TestMember], client: httpx.AsyncClient
) -> None:
    queues = [("gone", 0), ("orders", 0), ("gone", 1), ("orders", 3)]

    answer = await client.post(
        "/groups/g/locks",
        json={
            "client_id": pair[0].name,
            "incarnation": pair[0].incarnation,
            "queues": [{"topic": topic, "queue_id": queue_id} for topic, queue_id in queues],
        },
    )

    assert answer.json()["code"] == "topic-not-found"
    assert [e["pointer"] for e in answer.json()["errors"]] == ["/body/queues/0", "/body/queues/2"]


async def test_a_group_begins_where_its_settings_say_and_only_once(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await client.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})
    await send(client, count=3)
    clock.advance(60)
    when = "2023-11-14T22:13:50Z"  # between the two sends, as the clock has it
    await send(client, count=2)
    for group, start, offset, reason in (
        ("early", "earliest", 0, "earliest"),
        ("late", "latest", 5, "latest"),
        ("timed", when, 3, "time"),
    ):
        member = TestMember(client, group=group)
        await member.beat(start=start)
        await send(client)  # what comes after the start does not move it
        [lock] = (await member.lock(0)).json()["locks"]
        assert (lock["next_offset"] - offset, lock["started"]["reason"]) == (
            lock["started"]["offset"] - offset,
            reason,
        )
        assert lock["committed_offset"] is None
        if group != "late":
            assert lock["next_offset"] == offset
        await member.leave()
        await client.put(f"/groups/{group}", json={"start": "earliest"})
        await member.beat()
        [again] = (await member.lock(0)).json()["locks"]
        assert again["started"] == lock["started"]


async def test_what_is_added_after_the_group_came_is_read_from_its_begin(
    client: httpx.AsyncClient,
) -> None:
    member = TestMember(client, topics=("orders", "later"))
    await client.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})
    await send(client)
    await member.beat()
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
    await send(client, queue_id=1, count=2)
    await client.post("/topics/later/messages?queue_id=0", json={"body": {"text": "x"}})

    locks = (await member.lock(0, 1)).json()["locks"]
    later = (await member.lock(0, topic="later")).json()["locks"]

    assert [(lock["next_offset"], lock["started"]["reason"]) for lock in [*locks, *later]] == [
        (1, "latest"),
        (0, "added"),
        (0, "added"),
    ]


async def test_a_broker_that_meets_a_group_later_starts_where_the_group_met_the_topic(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await client.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})
    await send(client, count=3)
    clock.advance(60)
    await send(client, count=2)
    member = TestMember(client)
    await member.beat(topics_since={"orders": "2023-11-14T22:13:50Z"})

    [lock] = (await member.lock(0)).json()["locks"]

    assert (lock["next_offset"], lock["started"]["reason"]) == (3, "since")


async def test_a_group_that_committed_before_reads_its_other_queues_from_their_begin(
    client: httpx.AsyncClient,
) -> None:
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
    for queue_id in (0, 1):
        await send(client, queue_id=queue_id, count=2)
    commit = {"offsets": [{"topic": "orders", "queue_id": 0, "offset": 1}]}
    await client.put("/groups/g/offsets", json=commit)
    member = TestMember(client)
    await member.beat()

    locks = (await member.lock(0, 1)).json()["locks"]

    assert [lock["next_offset"] for lock in locks] == [1, 0]
