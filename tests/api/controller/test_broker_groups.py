"""The controller's routes, as brokers see them: over each store, the same."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from support.controllers import (
    CREATE,
    GROUP_A,
    GROUPS,
    controller,
    group,
    if_match,
    replica,
    until_held,
)

pytestmark = pytest.mark.anyio


async def created(client: httpx.AsyncClient, name: str = "broker-a") -> str:
    answer = await client.put(f"{GROUPS}/{name}", json=group(), headers=CREATE)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["version"])


async def test_a_group_is_read_as_it_was_put(client: httpx.AsyncClient) -> None:
    put = await client.put(GROUP_A, json=group(), headers=CREATE)
    got = await client.get(GROUP_A)

    assert (put.status_code, got.status_code) == (201, 200)
    assert got.json() == put.json()
    assert got.headers["etag"] == put.headers["etag"] == f'"{got.json()["version"]}"'
    sent = group()
    for name in ("epoch", "master", "in_sync", "min_in_sync", "flush_mode", "by", "reason"):
        assert got.json()[name] == sent[name]
    assert got.json()["unclean"] is False
    assert got.json()["replicas"][0]["kind"] == "member"


async def test_a_change_needs_the_version_that_it_was_made_from(
    client: httpx.AsyncClient,
) -> None:
    first = await created(client)

    changed = await client.put(GROUP_A, json=group(epoch=2, master=2), headers=if_match(first))
    late = await client.put(GROUP_A, json=group(epoch=2, master=1), headers=if_match(first))

    assert changed.status_code == 200, changed.text
    assert (late.status_code, late.json()["code"]) == (412, "precondition-failed")
    assert changed.json()["version"] in late.json()["detail"]
    assert changed.json()["version"] in late.json()["fix"]
    assert (await client.get(GROUP_A)).json()["master"] == replica(2)


async def test_a_change_whose_answer_was_lost_is_repeated_and_not_made_again(
    client: httpx.AsyncClient,
) -> None:
    first = await created(client)
    change = group(epoch=2, by="replica 1")

    once = await client.put(GROUP_A, json=change, headers=if_match(first))
    again = await client.put(GROUP_A, json=change, headers=if_match(first))

    assert (once.status_code, again.status_code) == (200, 200)
    assert again.json() == once.json()
    history = (await client.get(f"{GROUP_A}/history")).json()["changes"]
    assert [one["epoch"] for one in history] == [2, 1]


async def test_a_creation_is_repeated_and_another_one_is_refused(
    client: httpx.AsyncClient,
) -> None:
    version = await created(client)

    again = await client.put(GROUP_A, json=group(), headers=CREATE)
    other = await client.put(GROUP_A, json=group(by="another"), headers=CREATE)

    assert (again.status_code, again.json()["version"]) == (201, version)
    assert (other.status_code, other.json()["code"]) == (412, "precondition-failed")


async def test_the_change_of_another_author_is_no_repetition(client: httpx.AsyncClient) -> None:
    first = await created(client)

    answers = [
        await client.put(GROUP_A, json=group(epoch=2, by=by), headers=if_match(first))
        for by in ("replica 1", "replica 2")
    ]

    assert [answer.status_code for answer in answers] == [200, 412]


async def test_of_many_changes_at_once_one_is_made(client: httpx.AsyncClient) -> None:
    first = await created(client)

    answers = await asyncio.gather(
        *(
            client.put(GROUP_A, json=group(epoch=2, by=f"n {n}"), headers=if_match(first))
            for n in range(12)
        )
    )

    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] + [412] * 11
    [winner] = [answer.json() for answer in answers if answer.status_code == 200]
    assert (await client.get(GROUP_A)).json() == winner
    history = (await client.get(f"{GROUP_A}/history")).json()["changes"]
    assert [one["by"] for one in history] == [winner["by"], "a test"]


async def test_a_held_request_is_answered_by_a_change_through_another_controller(
    client: httpx.AsyncClient, store_settings: dict[str, Any]
) -> None:
    first = await created(client)
    async with controller(store_settings) as other:
        held = asyncio.create_task(
            client.get(
                GROUP_A,
                params={"wait_seconds": 30},
                headers={"if-none-match": f'"{first}"'},
            )
        )
        await until_held(client)
        changed_at = time.monotonic()
        await other.put(GROUP_A, json=group(epoch=2), headers=if_match(first))

        answer = await held

        assert time.monotonic() - changed_at < 1.5  # far less, on a machine that is not busy
        assert (answer.status_code, answer.json()["epoch"]) == (200, 2)


async def test_a_held_request_ends_unchanged_when_its_time_is_over(
    client: httpx.AsyncClient,
) -> None:
    first = await created(client)

    answer = await client.get(
        GROUP_A, params={"wait_seconds": 0.2}, headers={"if-none-match": f'"{first}"'}
    )

    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["etag"] == f'"{first}"'


async def test_a_request_without_a_tag_is_held_until_the_group_exists(
    client: httpx.AsyncClient,
) -> None:
    held = asyncio.create_task(client.get(GROUP_A, params={"wait_seconds": 30}))
    await until_held(client)

    await created(client)

    assert (await held).status_code == 200


async def test_a_held_request_learns_that_the_group_is_gone(client: httpx.AsyncClient) -> None:
    first = await created(client)
    held = asyncio.create_task(
        client.get(GROUP_A, params={"wait_seconds": 30}, headers={"if-none-match": f'"{first}"'})
    )
    await until_held(client)

    removed = await client.delete(GROUP_A, headers=if_match(first))

    assert removed.status_code == 204
    answer = await held
    assert (answer.status_code, answer.json()["code"]) == (404, "broker-group-not-found")


async def test_a_removed_group_is_created_again_with_its_history(
    client: httpx.AsyncClient,
) -> None:
    first = await created(client)
    about = {"by": "an operator", "reason": "the machines are gone"}
    await client.delete(GROUP_A, params=about, headers=if_match(first))
    assert (await client.get(GROUPS)).json()["groups"] == []

    again = await client.put(GROUP_A, json=group(epoch=1), headers=CREATE)

    assert again.status_code == 201
    assert again.json()["version"] != first
    history = (await client.get(f"{GROUP_A}/history")).json()["changes"]
    assert [one["kind"] for one in history] == ["created", "removed", "created"]
    assert history[1]["by"] == "an operator"
    assert history[1]["reason"] == "the machines are gone"
    late = await client.put(GROUP_A, json=group(epoch=9), headers=if_match(first))
    assert late.status_code == 412, "the version of before the removal"


async def test_a_removal_needs_the_version_too(client: httpx.AsyncClient) -> None:
    first = await created(client)

    late = await client.delete(GROUP_A, headers=if_match("1-0000000000000000"))
    done = await client.delete(GROUP_A, headers=if_match(first))
    again = await client.delete(GROUP_A, headers=if_match(first))

    assert [answer.status_code for answer in (late, done, again)] == [412, 204, 404]
    [removed, _] = (await client.get(f"{GROUP_A}/history")).json()["changes"]
    assert (removed["by"], removed["reason"]) == (None, None)


async def test_groups_are_listed_by_name_page_by_page(client: httpx.AsyncClient) -> None:
    names = ["broker-a", "broker-b", "B", "z@room", "broker-aa"]
    for name in names:
        await created(client, name)
    gone = await created(client, "broker-ab")
    await client.delete(f"{GROUPS}/broker-ab", headers=if_match(gone))

    listed: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(GROUPS, params=query)).json()
        listed += [one["broker_name"] for one in page["groups"]]
        if (cursor := page["next_cursor"]) is None:
            break

    assert listed == sorted(names)


async def test_the_history_is_complete_and_in_order_page_by_page(
    client: httpx.AsyncClient,
) -> None:
    version = await created(client)
    for epoch in range(2, 12):
        answer = await client.put(GROUP_A, json=group(epoch), headers=if_match(version))
        version = answer.json()["version"]

    epochs: list[int] = []
    cursor: str | None = None
    while True:
        query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(f"{GROUP_A}/history", params=query)).json()
        epochs += [one["epoch"] for one in page["changes"]]
        if (cursor := page["next_cursor"]) is None:
            break

    assert epochs == list(range(11, 0, -1))


async def test_the_history_keeps_as_many_changes_as_are_set(
    store_settings: dict[str, Any],
) -> None:
    async with controller(store_settings | {"history_count_max": 10}) as client:
        version = await created(client)
        for epoch in range(2, 36):
            answer = await client.put(GROUP_A, json=group(epoch), headers=if_match(version))
            version = answer.json()["version"]

        history = (await client.get(f"{GROUP_A}/history")).json()

    assert [one["epoch"] for one in history["changes"]] == list(range(35, 25, -1))
    assert history["next_cursor"] is None


async def test_names_have_a_limit(store_settings: dict[str, Any]) -> None:
    async with controller(store_settings | {"groups_max": 2}) as client:
        for name in ("broker-a", "broker-b"):
            await created(client, name)

        refused = await client.put(f"{GROUPS}/broker-c", json=group(), headers=CREATE)

    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    assert "ERUCA_CONTROLLER_GROUPS_MAX" in refused.json()["fix"]


async def test_a_controller_knows_what_others_did_before_it_started(
    store_settings: dict[str, Any],
) -> None:
    async with controller(store_settings) as client:
        version = await created(client)

    async with controller(store_settings) as client:
        assert (await client.get(GROUP_A)).json()["version"] == version


@pytest.mark.parametrize(
    ("change", "status", "code", "pointer"),
    [
        (group(epoch=4), 409, "stale-epoch", "/body/epoch"),
        (group(epoch=5, master=2), 409, "conflict", "/body/master"),
        (group(epoch=6, master=3), 422, "validation-failed", "/body/in_sync"),
        (group(epoch=6, in_sync=[1, 1]), 422, "validation-failed", "/body/in_sync"),
        (group(epoch=0), 422, "validation-failed", "/body/epoch"),
        (group(epoch=6, min_in_sync=0), 422, "validation-failed", "/body/min_in_sync"),
    ],
)
async def test_a_row_that_breaks_a_rule_is_refused_with_field_value_and_fix(
    file_client: httpx.AsyncClient, change: dict[str, Any], status: int, code: str, pointer: str
) -> None:
    put = await file_client.put(GROUP_A, json=group(epoch=5), headers=CREATE)
    version = put.json()["version"]

    refused = await file_client.put(GROUP_A, json=change, headers=if_match(version))

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (status, code)
    assert problem["errors"][0]["pointer"].startswith(pointer)
    assert problem["fix"]
    assert (await file_client.get(GROUP_A)).json()["version"] == version


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 428, "precondition-required"),
        ({"if-match": "VERSION"}, 422, "validation-failed"),
        ({"if-match": 'W/"VERSION"'}, 422, "validation-failed"),
        ({"if-match": ""}, 422, "validation-failed"),
        ({"if-match": '"VERSION" "1-0"'}, 422, "validation-failed"),
        ({"if-match": '"1-0"'}, 412, "precondition-failed"),
        ({"if-match": '"1-0", "VERSION"'}, 200, None),
        ({"if-match": "*"}, 200, None),
        ({"if-none-match": '"VERSION"'}, 422, "validation-failed"),
        ({"if-none-match": "*"}, 412, "precondition-failed"),
        ({"if-none-match": "*", "if-match": "*"}, 422, "validation-failed"),
    ],
)
async def test_conditions_of_a_change_are_read_exactly(
    file_client: httpx.AsyncClient, headers: dict[str, str], status: int, code: str | None
) -> None:
    version = await created(file_client)
    stated = {name: value.replace("VERSION", version) for name, value in headers.items()}

    answer = await file_client.put(GROUP_A, json=group(epoch=2), headers=stated)

    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ('"VERSION"', 304),
        ('W/"VERSION"', 304),
        ('"1-0", "VERSION"', 304),
        ("*", 304),
        ('"1-0"', 200),
        ("VERSION", 422),
    ],
)
async def test_conditions_of_a_read_are_read_exactly(
    file_client: httpx.AsyncClient, header: str, status: int
) -> None:
    version = await created(file_client)

    answer = await file_client.get(
        GROUP_A, headers={"if-none-match": header.replace("VERSION", version)}
    )

    assert answer.status_code == status, answer.text


async def test_only_a_group_that_exists_can_be_matched(file_client: httpx.AsyncClient) -> None:
    for condition in ("*", '"1-0"'):
        headers = {"if-match": condition}
        answer = await file_client.put(GROUP_A, json=group(), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (412, "precondition-failed")

    assert (await file_client.get(GROUP_A)).status_code == 404
    assert (await file_client.get(f"{GROUP_A}/history")).status_code == 404
    assert (await file_client.delete(GROUP_A)).status_code == 428


async def test_held_requests_are_limited(file_client: httpx.AsyncClient, tmp_path: Any) -> None:  # noqa: ANN401
    settings = {"store": "file", "file": tmp_path / "groups.json", "held_requests_max": 0}
    async with controller(settings) as client:
        refused = await client.get(f"{GROUPS}/broker-x", params={"wait_seconds": 5})

    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")


async def test_the_time_of_waiting_has_a_limit(file_client: httpx.AsyncClient) -> None:
    refused = await file_client.get(GROUP_A, params={"wait_seconds": 61})

    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (
        422,
        "/query/wait_seconds",
    )


async def test_metrics_and_status_tell_of_groups_and_requests(client: httpx.AsyncClient) -> None:
    version = await created(client)
    await client.put(GROUP_A, json=group(epoch=7), headers=if_match(version))
    await client.put(GROUP_A, json=group(epoch=8), headers=if_match(version))
    root = str(client.base_url).partition("/v1")[0]

    metrics = (await client.get(f"{root}/metrics")).text
    status = (await client.get(f"{root}/v1/status")).json()

    for sample in (
        "eruca_controller_store_up 1.0",
        "eruca_controller_groups 1.0",
        'eruca_controller_group_epoch{broker="broker-a"} 7.0',
        'eruca_controller_group_in_sync{broker="broker-a"} 2.0',
        'eruca_controller_changes_total{kind="created"} 1.0',
        'eruca_controller_changes_total{kind="changed"} 1.0',
        "eruca_controller_refused_total 1.0",
    ):
        assert sample in metrics, sample
    assert status["changes"] == 2
    assert (await client.get(f"{root}/healthz")).status_code == 200
