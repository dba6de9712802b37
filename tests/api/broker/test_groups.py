"""Groups: created, changed, listed and deleted over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from eruca.contract import groups
from eruca_broker.api.examples import groups as examples
from support.brokers import client_of, open_broker
from support.group_members import TestMember

pytestmark = pytest.mark.anyio

DEFAULTS = {
    "start": "latest",
    "retries_max": 16,
    "retry_policy": None,
    "ordered": False,
    "consume_enabled": True,
    "broadcast_enabled": True,
    "subscription_mode": "shared",
}


async def put_topic(client: httpx.AsyncClient, queue_count: int = 2) -> None:
    counts = {"read_queue_count": queue_count, "write_queue_count": queue_count}
    assert (await client.put("/topics/orders", json=counts)).status_code in (200, 201)


async def test_a_group_is_created_once_and_then_changed(client: httpx.AsyncClient) -> None:
    created = await client.put("/groups/billing", json={})
    changed = await client.put("/groups/billing", json={"start": "earliest", "ordered": True})
    seen = await client.get("/groups/billing")

    assert (created.status_code, changed.status_code, seen.status_code) == (201, 200, 200)
    assert created.json().items() >= DEFAULTS.items()
    assert seen.json() == changed.json()
    assert (seen.json()["start"], seen.json()["ordered"]) == ("earliest", True)
    assert seen.json()["created_at"] == created.json()["created_at"]
    assert (seen.json()["members"], seen.json()["subscriptions"]) == (0, [])


async def test_what_is_not_named_of_a_groups_settings_stays_as_it_is(
    client: httpx.AsyncClient,
) -> None:
    policy = {"kind": "customized", "delays_seconds": [1.0, 2.5]}
    first = {"start": "earliest", "retries_max": 3, "retry_policy": policy}
    await client.put("/groups/billing", json=first)

    changed = (await client.put("/groups/billing", json={"ordered": True})).json()
    unchanged = (await client.put("/groups/billing", json={})).json()
    default = (await client.put("/groups/billing", json={"retry_policy": None})).json()

    assert changed.items() >= (DEFAULTS | first | {"ordered": True}).items()
    assert unchanged == changed
    assert default == changed | {"retry_policy": None}


@pytest.mark.parametrize(
    "settings",
    [
        {"start": "2026-11-21T08:00:00.000Z"},
        {"retry_policy": {"kind": "customized", "delays_seconds": [1, 2.5]}},
        {"retry_policy": {"kind": "exponential", "initial_seconds": 1, "multiplier": 3}},
        {"consume_enabled": False, "broadcast_enabled": False, "subscription_mode": "per_member"},
        {"retries_max": 0},
    ],
)
async def test_settings_are_kept_over_a_restart(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with open_broker(tmp_path) as app, client_of(app) as client:
        put = (await client.put("/groups/g", json=settings)).json()
    async with open_broker(tmp_path) as app, client_of(app) as client:
        again = (await client.get("/groups/g")).json()

    assert again == put
    times = {"start": settings["start"]} if "start" in settings else {}
    expected = groups.GroupSettings.model_validate(settings).model_dump(mode="json") | times
    assert {name: again[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"start": "yesterday"}, "/body/start"),
        ({"start": 5}, "/body/start"),
        ({"start": "2026-11-21T08:00:00"}, "/body/start"),
        ({"retries_max": 1001}, "/body/retries_max"),
        ({"retry_policy": {"kind": "sometimes"}}, "/body/retry_policy"),
        (
            {"retry_policy": {"kind": "customized", "delays_seconds": []}},
            "/body/retry_policy/delays_seconds",
        ),
        ({"retries": 3}, "/body/retries"),
    ],
)
async def test_settings_that_are_not_understood_are_refused(
    client: httpx.AsyncClient, settings: dict[str, Any], pointer: str
) -> None:
    answer = await client.put("/groups/g", json=settings)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_groups_are_listed_by_name_a_page_at_a_time(client: httpx.AsyncClient) -> None:
    for name in "cab":
        await client.put(f"/groups/{name}", json={})

    first = (await client.get("/groups?limit=2")).json()
    second = (await client.get(f"/groups?limit=2&cursor={first['next_cursor']}")).json()

    assert [group["group"] for group in first["groups"]] == ["a", "b"]
    assert [group["group"] for group in second["groups"]] == ["c"]
    assert second["next_cursor"] is None
    assert (await client.get("/groups?cursor=!")).status_code == 422


async def test_the_system_s_groups_are_left_to_it(client: httpx.AsyncClient) -> None:
    name = "CID_RMQ_SYS_TRANS"
    member = TestMember(client, group=name)

    assert (await client.put(f"/groups/{name}", json={})).json()["code"] == "permission-denied"
    assert (await client.delete(f"/groups/{name}")).json()["code"] == "permission-denied"
    assert (await member.beat()).json()["code"] == "permission-denied"


async def test_a_group_that_is_not_there_is_404(client: httpx.AsyncClient) -> None:
    for path in ("/groups/nobody", "/groups/nobody/members"):
        assert (await client.get(path)).json()["code"] == "group-not-found"
    assert (await client.delete("/groups/nobody")).json()["code"] == "group-not-found"
    reset = {"topic": "orders", "to": "earliest"}
    await put_topic(client)
    answer = await client.post("/groups/nobody/offsets:reset", json=reset)
    assert answer.json()["code"] == "group-not-found"


async def test_a_group_with_members_is_not_deleted_and_one_without_leaves_nothing(
    client: httpx.AsyncClient,
) -> None:
    await put_topic(client)
    member = TestMember(client)
    await member.beat()
    await member.lock(0)
    await member.commit((0, 7))

    refused = await client.delete("/groups/g")
    await member.leave()
    deleted = await client.delete("/groups/g")

    assert (refused.status_code, deleted.status_code) == (409, 204)
    assert "'a'" in refused.json()["detail"]
    assert (await client.get("/groups/g/offsets")).json()["offsets"] == []
    topics = (await client.get("/topics")).json()["topics"]
    assert [topic["topic"] for topic in topics] == ["orders"]


async def test_groups_can_be_made_to_be_created_first(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path, auto_create_groups=False) as app,
        client_of(app) as client,
    ):
        await put_topic(client)
        member = TestMember(client)
        commit = {"offsets": [{"topic": "orders", "queue_id": 0, "offset": 0}]}

        refused = await member.beat()
        assert refused.json()["code"] == "group-not-found"
        assert "PUT /v1/groups/g" in refused.json()["fix"]
        assert (await client.put("/groups/g/offsets", json=commit)).status_code == 404

        await client.put("/groups/g", json={})
        assert (await member.beat()).status_code == 201


async def test_how_many_groups_and_members_there_may_be_has_a_name(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path, groups_max=1, members_max=1) as app,
        client_of(app) as client,
    ):
        assert (await TestMember(client).beat()).status_code == 201
        other_group = await client.put("/groups/h", json={})
        other_member = await TestMember(client, "b").beat()

    assert (other_group.status_code, other_member.status_code) == (409, 429)
    assert "groups_max" in other_group.json()["detail"]
    assert "members_max" in other_member.json()["detail"]


async def test_a_group_that_only_ever_committed_has_the_default_settings(
    client: httpx.AsyncClient,
) -> None:
    await put_topic(client)
    commit = {"offsets": [{"topic": "orders", "queue_id": 0, "offset": 0}]}
    await client.put("/groups/g/offsets", json=commit)

    assert (await client.get("/groups/g")).json().items() >= DEFAULTS.items()


def test_the_examples_are_of_the_models_they_stand_for() -> None:
    cases: tuple[tuple[type[BaseModel], object], ...] = (
        (groups.GroupSettings, examples.GROUP_SETTINGS),
        (groups.GroupConfig, examples.GROUP),
        (groups.GroupList, examples.GROUP_LIST),
        (groups.Heartbeat, examples.HEARTBEAT),
        (groups.MemberAnswer, examples.MEMBER_ANSWER),
        (groups.MemberList, examples.MEMBER_LIST),
        (groups.LockRequest, examples.LOCK_REQUEST),
        (groups.LockAnswer, examples.LOCK_ANSWER),
        (groups.LockRelease, examples.LOCK_RELEASE),
        (groups.GroupOffsets, examples.GROUP_OFFSETS),
        (groups.GroupLagList, examples.GROUP_LAG_LIST),
        (groups.ResetAnswer, examples.RESET_ANSWER),
        *((groups.OffsetCommits, example) for example in examples.OFFSET_COMMITS),
        *((groups.OffsetReset, example) for example in examples.OFFSET_RESETS),
    )
    for model, example in cases:
        model.model_validate(example, extra="forbid")


@pytest.mark.parametrize("start", [5, True, None, {}, ["earliest"]])
async def test_a_start_in_no_form_there_is_is_told_the_forms(
    client: httpx.AsyncClient, start: object
) -> None:
    refused = await client.put("/groups/g", json={"start": start})

    assert refused.status_code == 422
    assert refused.json()["errors"] == [
        {
            "pointer": "/body/start",
            "detail": 'Input should be "earliest", "latest" or a time as in 2026-11-21T08:00:00Z; '
            f"got {json.dumps(start)}",
        }
    ]
