"""Members: who may join, how long they stay, and what watchers receive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from eruca_broker.core.state.group_state import Group
from eruca_broker.processors.groups.member_lists import MemberLists
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
async def member(client: httpx.AsyncClient) -> TestMember:
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
    return TestMember(client)


async def members_of(client: httpx.AsyncClient) -> list[str]:
    return [m["client_id"] for m in (await client.get("/groups/g/members")).json()["members"]]


async def generation_of(client: httpx.AsyncClient) -> int:
    return int((await client.get("/groups/g/members")).json()["generation"])


async def test_the_first_member_makes_the_group_and_its_retry_topic(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    joined = await member.beat(start="earliest")
    renewed = await member.beat(start="latest")

    assert (joined.status_code, renewed.status_code) == (201, 200)
    assert joined.json()["generation"] == renewed.json()["generation"]
    group = (await client.get("/groups/g")).json()
    assert (group["start"], group["members"], group["subscription_version"]) == ("earliest", 1, 1)
    assert group["subscriptions"] == [{"topic": "orders", "filter": "*", "filter_type": "tag"}]
    retries = (await client.get("/topics/%25RETRY%25g")).json()
    assert (retries["read_queue_count"], retries["permission"]) == (1, "rw")


async def test_every_change_of_members_makes_a_generation_that_is_greater(
    member: TestMember, client: httpx.AsyncClient, clock: ManualClock, app: ServiceApp
) -> None:
    other = TestMember(client, "b")
    generations: list[int] = []
    await member.beat()
    for change in (other.beat, other.leave, other.beat):
        generations.append(await generation_of(client))
        await change()
    generations.append(await generation_of(client))
    clock.advance(20)
    await member.beat()
    assert await generation_of(client) == generations[-1]
    clock.advance(20)
    await broker_of(app).members.expiry_step()
    generations.append(await generation_of(client))

    assert await members_of(client) == ["a"]
    assert generations == sorted(set(generations))


async def test_generations_grow_from_one_run_to_the_next(tmp_path: Path) -> None:
    generations: list[int] = []
    for _ in range(3):
        async with open_broker(tmp_path) as app, client_of(app) as client:
            member = TestMember(client)
            if generations:
                assert await generation_of(client) > generations[-1]
            assert (await member.beat()).status_code == 201
            await TestMember(client, "b").beat()
            generations.append(await generation_of(client))

    assert generations == sorted(set(generations))


async def test_a_member_that_subscribes_otherwise_is_refused_and_told_the_difference(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.beat()
    other = TestMember(client, "b")

    answer = await other.beat(
        subscriptions=[{"topic": "orders", "filter": "UA"}, {"topic": "payments"}]
    )

    assert (answer.status_code, answer.json()["code"]) == (409, "subscription-conflict")
    for named in ("'a'", "'orders'", "'UA'", "'payments'", "version 1"):
        assert named in answer.json()["detail"]
    assert await members_of(client) == ["a"]


async def test_who_is_alone_may_subscribe_again(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.beat()
    before = await generation_of(client)

    changed = await member.beat(subscriptions=[{"topic": "payments"}])

    assert (changed.status_code, changed.json()["subscription_version"]) == (200, 2)
    assert await generation_of(client) > before
    await member.leave()
    await TestMember(client, "b").beat()
    assert (await client.get("/groups/g")).json()["subscription_version"] == 3


async def test_a_group_is_cut_over_to_a_new_version_and_the_old_members_are_refused(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.beat()
    other = TestMember(client, "b", topics=("orders", "payments"))

    assert (await other.beat(replaces_subscription_version=0)).status_code == 409
    assert (await other.beat(replaces_subscription_version=1)).status_code == 201
    refused = await member.beat()
    again = await other.beat(replaces_subscription_version=1)

    assert (refused.status_code, refused.json()["code"]) == (409, "subscription-conflict")
    assert (again.status_code, again.json()["subscription_version"]) == (200, 2)
    followed = await member.beat(subscriptions=[{"topic": "payments"}, {"topic": "orders"}])
    assert followed.status_code == 200


async def test_per_member_subscriptions_may_differ(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await client.put("/groups/g", json={"subscription_mode": "per_member"})
    await member.beat()
    joined = await TestMember(client, "b").beat(subscriptions=[{"topic": "orders", "filter": "UA"}])

    assert joined.status_code == 201
    listed = (await client.get("/groups/g/members")).json()["members"]
    assert [m["subscriptions"][0]["filter"] for m in listed] == ["*", "UA"]
    subscriptions = (await client.get("/groups/g")).json()["subscriptions"]
    assert [s["filter"] for s in subscriptions] == ["*", "UA"]


async def test_a_group_is_clustering_or_broadcasting_and_not_both(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.beat()
    other = TestMember(client, "b")
    conflict = await other.beat(message_model="broadcasting")
    assert conflict.json()["code"] == "subscription-conflict"

    await client.put("/groups/h", json={"broadcast_enabled": False})
    forbidden = await TestMember(client, group="h").beat(message_model="broadcasting")
    assert (forbidden.status_code, forbidden.json()["code"]) == (403, "permission-denied")


async def test_a_client_id_belongs_to_one_process_while_its_session_lasts(
    member: TestMember, client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await member.beat(session_seconds=10)
    twin = TestMember(client, incarnation="2")

    refused = await twin.beat()
    assert (refused.status_code, refused.json()["code"]) == (409, "client-id-in-use")
    assert (await twin.leave()).json()["code"] == "client-id-in-use"
    assert (await twin.lock(0)).json()["code"] == "client-id-in-use"

    clock.advance(10.5)
    assert (await twin.beat()).status_code == 201
    assert (await member.beat()).json()["code"] == "client-id-in-use"


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_static_member_s_successor_takes_over_at_once_and_fences_it(
    tmp_path: Path, restarts: bool
) -> None:
    async with open_broker(tmp_path) as app, client_of(app) as client:
        await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
        await client.post("/topics/orders/messages?queue_id=0", json={"body": {"text": "x"}})
        old, new = TestMember(client), TestMember(client, incarnation="2")
        await old.beat(is_static=True)
        await old.lock(0, 1)

        taken = await new.beat(is_static=True)
        assert taken.status_code == 201
        locked = (await new.lock(0, 1)).json()
        assert [lock["token"] > old.tokens["orders", 0] for lock in locked["locks"]] == [True] * 2
        assert (await old.commit((0, 1))).json()["code"] == "stale-lock"
        if not restarts:
            assert (await old.beat(is_static=True)).json()["code"] == "client-id-in-use"
            assert (await new.commit((0, 1))).status_code == 204
    if restarts:
        async with open_broker(tmp_path) as app, client_of(app) as client:
            old.client = new.client = client
            assert (await old.beat(is_static=True)).json()["code"] == "client-id-in-use"
            assert (await new.commit((0, 1))).status_code == 204
            assert (await new.beat(is_static=True)).json()["lost_locks"] == []


@pytest.mark.parametrize("is_noticed", [False, True], ids=["at once", "after the loop has come by"])
async def test_a_static_member_that_was_frozen_does_not_oust_its_successor(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock, is_noticed: bool
) -> None:
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
    old, new = TestMember(client), TestMember(client, incarnation="2")
    await old.beat(is_static=True, session_seconds=10)
    await old.lock(0, 1)
    clock.advance(10.5)
    if is_noticed:
        await broker_of(app).members.expiry_step()

    assert (await new.beat(is_static=True)).status_code == 201
    await new.lock(0, 1)
    back = await old.beat(is_static=True, session_seconds=10)

    assert (back.status_code, back.json()["code"]) == (409, "client-id-in-use")
    assert (await new.beat(is_static=True)).json()["lost_locks"] == []


async def test_a_static_member_that_was_frozen_comes_back_where_nobody_took_its_place(
    member: TestMember, clock: ManualClock
) -> None:
    await member.beat(is_static=True, session_seconds=10)
    clock.advance(10.5)

    assert (await member.beat(is_static=True, session_seconds=10)).status_code == 201
    assert (await member.lock(0)).status_code == 200


async def test_only_static_members_are_taken_over(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.beat()

    answer = await TestMember(client, incarnation="2").beat(is_static=True)

    assert answer.json()["code"] == "client-id-in-use"


async def test_a_watcher_is_told_of_a_change_at_once(
    member: TestMember, client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await member.beat()
    known = (await client.get("/groups/g/members")).headers["etag"]
    watching = asyncio.create_task(
        client.get("/groups/g/members?wait_seconds=30", headers={"if-none-match": known})
    )
    await held(app)

    await TestMember(client, "b").beat()

    answer = await asyncio.wait_for(watching, PATIENCE_SECONDS)
    assert answer.status_code == 200
    assert [m["client_id"] for m in answer.json()["members"]] == ["a", "b"]
    assert answer.headers["etag"] != known


async def test_a_watcher_of_what_does_not_change_is_answered_304(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.beat()
    known = (await client.get("/groups/g/members")).headers["etag"]

    answer = await client.get(
        "/groups/g/members?wait_seconds=0.05", headers={"if-none-match": known}
    )

    assert (answer.status_code, answer.content) == (304, b"")
    stale = await client.get("/groups/g/members?wait_seconds=30", headers={"if-none-match": '"1"'})
    assert stale.status_code == 200


async def test_what_a_client_has_already_is_told_in_every_form_of_if_none_match(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.beat()
    etag = (await client.get("/groups/g/members")).headers["etag"]

    for known in (etag, etag.removeprefix("W/"), f'"1", {etag}', "*"):
        again = await client.get("/groups/g/members", headers={"if-none-match": known})
        assert (again.status_code, again.headers["etag"]) == (304, etag), known
    for unknown in ('"1"', '"1", "2"', etag.strip('W/"'), ""):
        again = await client.get("/groups/g/members", headers={"if-none-match": unknown})
        assert again.status_code == 200, unknown


async def test_what_all_watchers_are_told_is_put_together_once(
    member: TestMember, client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await member.beat()
    await member.lock(1, 0)
    known = (await client.get("/groups/g/members")).headers["etag"]
    made: list[str] = []
    body = MemberLists._body

    def noted(lists: MemberLists, group: Group, generation: int) -> bytes:
        made.append(group.name)
        return body(lists, group, generation)

    monkeypatch.setattr(MemberLists, "_body", noted)
    watching = [
        asyncio.create_task(
            client.get("/groups/g/members?wait_seconds=30", headers={"if-none-match": known})
        )
        for _ in range(20)
    ]
    await held(app, len(watching))

    await TestMember(client, "b").beat()

    answers = await asyncio.gather(*watching)
    assert made == ["g"]
    assert {answer.headers["etag"] for answer in answers} == {f'W/"{await generation_of(client)}"'}
    for answer in answers:
        a, b = answer.json()["members"]
        assert a["locks"] == [{"topic": "orders", "queue_id": n} for n in (0, 1)]
        assert (b["client_id"], b["locks"]) == ("b", [])


async def test_what_has_changed_without_being_news_is_told_to_who_asks_later(
    member: TestMember, client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await member.beat()
    before = (await client.get("/groups/g/members")).json()

    await member.lock(0)
    clock.advance(5)
    await member.beat()

    after = (await client.get("/groups/g/members")).json()
    assert after["generation"] == before["generation"]
    assert after["members"][0]["locks"] == [{"topic": "orders", "queue_id": 0}]
    assert after["members"][0]["last_seen_at"] > before["members"][0]["last_seen_at"]


async def test_a_watcher_of_a_group_that_is_deleted_is_answered_404(
    member: TestMember, client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await client.put("/groups/g", json={})
    known = (await client.get("/groups/g/members")).headers["etag"]
    watching = asyncio.create_task(
        client.get("/groups/g/members?wait_seconds=30", headers={"if-none-match": known})
    )
    await held(app)

    await client.delete("/groups/g")

    assert (await asyncio.wait_for(watching, PATIENCE_SECONDS)).status_code == 404


async def test_who_is_no_member_cannot_leave(member: TestMember) -> None:
    await member.beat()
    await member.leave()

    assert (await member.leave()).json()["code"] == "member-not-found"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subscriptions": []}, "validation-failed"),
        ({"subscriptions": [{"topic": "a"}, {"topic": "a"}]}, "validation-failed"),
        ({"subscriptions": [{"topic": "a", "filter": "x ||"}]}, None),
        ({"subscriptions": [{"topic": "a", "filter": "||"}]}, "filter-syntax"),
        (
            {"subscriptions": [{"topic": "a", "filter": "b >", "filter_type": "sql92"}]},
            "filter-syntax",
        ),
        ({"session_seconds": 2}, "validation-failed"),
        ({"session_seconds": 301}, "validation-failed"),
        ({"incarnation": ""}, "validation-failed"),
        ({"unknown": 1}, "validation-failed"),
        ({"topics_since": {"a": "yesterday"}}, "validation-failed"),
    ],
)
async def test_a_heartbeat_that_is_not_understood_changes_nothing(
    client: httpx.AsyncClient, fields: dict[str, object], code: str | None
) -> None:
    answer = await TestMember(client).beat(**fields)

    assert answer.json().get("code") == code
    assert (await client.get("/groups/g")).status_code == (404 if code else 200)


async def test_lost_locks_are_told_with_each_heartbeat(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.beat()
    await member.lock(0, 1)
    assert (await member.beat()).json()["lost_locks"] == []

    await client.post("/groups/g/offsets:reset", json={"topic": "orders", "to": "earliest"})

    lost = (await member.beat()).json()["lost_locks"]
    assert lost == [{"topic": "orders", "queue_id": q} for q in (0, 1)]
    await member.lock(0, 1)
    assert (await member.beat()).json()["lost_locks"] == []


async def test_members_and_expiries_are_counted_in_the_metrics(
    member: TestMember, client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    async def value(name: str) -> float:
        text = (await client.get("http://localhost/metrics")).text
        [line] = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(line.split()[1])

    await member.beat()
    await member.lock(0, 1)
    assert await value("eruca_broker_members") == 1
    assert await value("eruca_broker_locked_queues") == 2
    assert await value("eruca_broker_groups") == 1

    clock.advance(31)
    await broker_of(app).members.expiry_step()

    assert await value("eruca_broker_members") == 0
    assert await value("eruca_broker_locked_queues") == 0
    assert await value("eruca_broker_sessions_expired_total") == 1
