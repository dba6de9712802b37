"""The policy at the controllers, over each store that keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from support.controllers import CREATE, controller, if_match, until_held
from support.kubernetes import KubernetesServer
from support.policies import ANN, policy_change, stored_key
from support.rules import bearer, write_rules
from support.waiting import until_told

pytestmark = pytest.mark.anyio

POLICY: Final = "/policy"
SHOP: Final = "user:shop"
READER: Final = "service:reader"
SHOP_RULE: Final = {"allow": ["produce"], "on": ["topic:orders*"], "to": [SHOP]}


def change(*rules: dict[str, Any], keys: tuple[str, ...] = (ANN, READER)) -> dict[str, Any]:
    """Return a change of the policy in which ann is the administrator."""
    return policy_change(*rules, roles={"query-service": [READER]}, keys=keys)


@pytest.fixture
def closed_settings(store_settings: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    if store_settings["store"] == "kubernetes":
        pytest.skip("keeps no policy; another test says so")
    first = write_rules(
        tmp_path / "first.toml", roles={"administrator": [ANN], "query-service": [READER]}
    )
    return {
        **store_settings,
        "ERUCA_AUTH": "controller",
        "ERUCA_AUTH_FILE": str(first),
        "policy_file": tmp_path / "kept" / "policy.json",
    }


@asynccontextmanager
async def closed(settings: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a controller whose rules are those of its store, called as ann."""
    async with controller(settings) as client:
        client.headers.update(bearer(ANN))
        yield client


async def test_no_number_is_so_great_that_none_can_follow(
    closed_settings: dict[str, Any],
) -> None:
    async with closed(closed_settings) as client:
        version = (await client.get(POLICY)).json()["version"]
        statuses = []
        for above in (2**63 - 2, 10**12 + 1, 10**12):
            put = await client.put(
                f"{POLICY}?above={above}", json=change(SHOP_RULE), headers=if_match(version)
            )
            statuses.append(put.status_code)
        last = await client.put(POLICY, json=change(), headers=if_match(put.json()["version"]))
        assert [*statuses, last.status_code] == [422, 422, 200, 200]
        assert last.json()["number"] == 10**12 + 2


async def test_the_first_policy_is_stored_once(closed_settings: dict[str, Any]) -> None:
    async with closed(closed_settings) as client:
        first = await client.get(POLICY)
        assert first.status_code == 200, first.text
        assert (first.json()["number"], first.json()["by"]) == (1, "ERUCA_AUTH_FILE")
        assert first.headers["etag"] == f'"{first.json()["version"]}"'
        assert (await client.get(POLICY, headers=bearer(SHOP))).status_code == 401
        put = await client.put(
            POLICY, json=change(SHOP_RULE), headers=if_match(first.json()["version"])
        )
        assert put.status_code == 200, put.text
    async with closed(closed_settings) as client:
        again = await client.get(POLICY)
        assert again.json() == put.json()
        assert again.json()["by"] == ANN


async def test_each_version_can_be_read_by_its_number(closed_settings: dict[str, Any]) -> None:
    async with closed(closed_settings) as client:
        first = (await client.get(POLICY)).json()
        put = await client.put(
            f"{POLICY}?above=6", json=change(SHOP_RULE), headers=if_match(first["version"])
        )
        assert (await client.get(f"{POLICY}/versions/1")).json() == first
        assert (await client.get(f"{POLICY}/versions/7")).json() == put.json()
        for number, status in ((2, 404), (8, 404), (0, 422), (2**63 - 1, 422)):
            assert (await client.get(f"{POLICY}/versions/{number}")).status_code == status
        reader = await client.get(f"{POLICY}/versions/1", headers=bearer(READER))
        assert reader.status_code == 200  # who may read the policy


async def test_a_change_needs_the_version_and_is_in_the_history(
    closed_settings: dict[str, Any],
) -> None:
    async with closed(closed_settings) as client:
        first = (await client.get(POLICY)).json()["version"]
        without = await client.put(POLICY, json=change(SHOP_RULE))
        creating = await client.put(POLICY, json=change(SHOP_RULE), headers=CREATE)
        put = await client.put(POLICY, json=change(SHOP_RULE), headers=if_match(first))
        repeated = await client.put(POLICY, json=change(SHOP_RULE), headers=if_match(first))
        late = await client.put(POLICY, json=change(), headers=if_match(first))
        assert [one.status_code for one in (without, creating, put, repeated, late)] == [
            428,
            412,
            200,
            200,
            412,
        ]
        assert repeated.json() == put.json()
        assert put.json()["version"] in late.json()["fix"]
        page = (await client.get(f"{POLICY}/history?limit=1")).json()
        [newest] = page["changes"]
        assert (newest["number"], newest["by"], newest["reason"]) == (2, ANN, "it is tested")
        assert newest["differences"]["rights"] == [
            {
                "principal": SHOP,
                "right": "produce",
                "on": "topic:orders*",
                "before": "refused",
                "after": "allowed",
            }
        ]
        rest = await client.get(f"{POLICY}/history", params={"cursor": page["next_cursor"]})
        assert [one["number"] for one in rest.json()["changes"]] == [1]


async def test_of_changes_to_one_version_one_is_made(closed_settings: dict[str, Any]) -> None:
    async with closed(closed_settings) as client:
        version = (await client.get(POLICY)).json()["version"]
        changes = [change({**SHOP_RULE, "on": [f"topic:t{i}"]}) for i in range(6)]
        answers = await asyncio.gather(
            *(client.put(POLICY, json=one, headers=if_match(version)) for one in changes)
        )
        assert sorted(answer.status_code for answer in answers) == [200] + [412] * 5
        history = (await client.get(f"{POLICY}/history")).json()["changes"]
        assert [one["number"] for one in history] == [2, 1]


async def test_a_held_request_ends_at_a_change_through_another_controller(
    closed_settings: dict[str, Any], tmp_path: Path
) -> None:
    other = {**closed_settings, "policy_file": tmp_path / "other" / "policy.json"}
    async with closed(closed_settings) as client, closed(other) as second:
        version = (await client.get(POLICY)).json()["version"]
        held = asyncio.create_task(
            second.get(
                f"{POLICY}?wait_seconds=30",
                headers={**bearer(READER), "if-none-match": f'"{version}"'},
            )
        )
        await until_held(second)
        put = await client.put(POLICY, json=change(SHOP_RULE), headers=if_match(version))
        answer = await held
        assert (answer.status_code, answer.json()) == (200, put.json())
        known = {"if-none-match": answer.headers["etag"]}
        assert (await second.get(POLICY, headers=known)).status_code == 304


async def test_a_revocation_is_in_force_at_every_controller(
    closed_settings: dict[str, Any], tmp_path: Path
) -> None:
    other = {**closed_settings, "policy_file": tmp_path / "other" / "policy.json"}
    async with closed(closed_settings) as client, closed(other) as second:
        version = (await client.get(POLICY)).json()["version"]
        assert (await second.get(POLICY, headers=bearer(READER))).status_code == 200
        put = await client.put(POLICY, json=change(keys=(ANN,)), headers=if_match(version))
        assert put.status_code == 200
        for one in (client, second):
            await until_told(
                partial(one.get, POLICY, headers=bearer(READER)),
                lambda answer: answer.status_code == 401,
                within_seconds=5,
            )


async def test_a_preview_changes_nothing_and_warns(closed_settings: dict[str, Any]) -> None:
    async with closed(closed_settings) as client:
        before = (await client.get(POLICY)).json()
        answer = await client.post(f"{POLICY}:preview", json=change(SHOP_RULE, keys=(READER, SHOP)))
        assert answer.status_code == 200, answer.text
        preview = answer.json()
        assert preview["version"] == before["version"]
        assert preview["locks_out"] is True
        assert preview["differences"]["keys_added"] == [f"{stored_key(SHOP)['id']} of {SHOP}"]
        assert preview["differences"]["keys_removed"] == [f"{stored_key(ANN)['id']} of {ANN}"]
        assert (await client.get(POLICY)).json() == before


@pytest.mark.parametrize(
    "locking",
    [
        change(keys=(READER,)),
        {**change(), "policy": {**change()["policy"], "roles": {"query-service": [READER]}}},
    ],
)
async def test_nobody_locks_himself_out(
    closed_settings: dict[str, Any], locking: dict[str, Any]
) -> None:
    async with closed(closed_settings) as client:
        before = (await client.get(POLICY)).json()
        answer = await client.put(POLICY, json=locking, headers=if_match(before["version"]))
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert (await client.get(POLICY)).json() == before


async def test_readers_may_not_change_it(closed_settings: dict[str, Any]) -> None:
    async with closed(closed_settings) as client:
        client.headers.update(bearer(READER))
        version = (await client.get(POLICY)).json()["version"]
        for answer in (
            await client.put(POLICY, json=change(), headers=if_match(version)),
            await client.post(f"{POLICY}:preview", json=change()),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_numbers_jump_over_those_that_services_have(closed_settings: dict[str, Any]) -> None:
    async with closed(closed_settings) as client:
        version = (await client.get(POLICY)).json()["version"]
        put = await client.put(
            f"{POLICY}?above=41", json=change(SHOP_RULE), headers=if_match(version)
        )
        assert put.json()["number"] == 42
        again = await client.put(POLICY, json=change(), headers=if_match(put.json()["version"]))
        assert again.json()["number"] == 43


async def test_a_store_from_an_older_copy_is_refused(
    closed_settings: dict[str, Any], tmp_path: Path
) -> None:
    """The controller's own rules never go back, either."""
    if closed_settings["store"] != "file":
        pytest.skip("the file is the store that a test can put back")
    kept = tmp_path / "controller" / "policy.jsonl"
    async with closed(closed_settings) as client:
        older = kept.read_bytes()
        version = (await client.get(POLICY)).json()["version"]
        put = await client.put(POLICY, json=change(keys=(ANN,)), headers=if_match(version))
        await until_told(
            lambda: client.get(POLICY, headers=bearer(READER)),
            lambda answer: answer.status_code == 401,
        )
    kept.write_bytes(older)
    async with closed(closed_settings) as client:
        metrics_url = str(client.base_url).replace("/v1/", "/metrics")
        metrics = await until_told(
            lambda: client.get(metrics_url),
            lambda answer: "eruca_access_rules_stale 1.0" in answer.text,
        )
        assert "eruca_access_rules_age_seconds" in metrics.text
        assert (await client.get(POLICY, headers=bearer(READER))).status_code == 401
        old = (await client.get(POLICY)).json()
        assert old["number"] < put.json()["number"]
        mended = await client.put(
            f"{POLICY}?above={put.json()['number']}",
            json=change(keys=(ANN,)),
            headers=if_match(old["version"]),
        )
        assert mended.json()["number"] == put.json()["number"] + 1
        await until_told(
            lambda: client.get(metrics_url),
            lambda answer: "eruca_access_rules_stale 0.0" in answer.text,
        )


async def test_an_emptied_store_does_not_bring_the_first_policy_back(
    closed_settings: dict[str, Any], tmp_path: Path
) -> None:
    if closed_settings["store"] != "file":
        pytest.skip("the file is the store that a test can empty")
    async with closed(closed_settings) as client:
        version = (await client.get(POLICY)).json()["version"]
        await client.put(POLICY, json=change(keys=(ANN,)), headers=if_match(version))
        await until_told(
            lambda: client.get(POLICY, headers=bearer(READER)),
            lambda answer: answer.status_code == 401,
        )
    (tmp_path / "controller" / "policy.jsonl").unlink()
    async with closed(closed_settings) as client:
        metrics_url = str(client.base_url).replace("/v1/", "/metrics")
        await until_told(
            lambda: client.get(metrics_url),
            lambda answer: "eruca_access_rules_stale 1.0" in answer.text,
        )
        assert (await client.get(POLICY)).status_code == 404
        assert (await client.get(POLICY, headers=bearer(READER))).status_code == 401
        without = await client.put(f"{POLICY}?above=2", json=change(keys=()), headers=CREATE)
        assert (without.status_code, without.json()["code"]) == (409, "conflict")
        put = await client.put(f"{POLICY}?above=2", json=change(keys=(ANN,)), headers=CREATE)
        assert (put.status_code, put.json()["number"]) == (201, 3)
        await until_told(
            lambda: client.get(metrics_url),
            lambda answer: "eruca_access_rules_stale 0.0" in answer.text,
        )


async def test_an_open_controller_keeps_no_policy(file_client: httpx.AsyncClient) -> None:
    for answer in (
        await file_client.get(POLICY),
        await file_client.put(POLICY, json=change(), headers=CREATE),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "ERUCA_AUTH=controller" in answer.json()["fix"]


async def test_a_controller_without_a_first_policy_admits_nobody(tmp_path: Path) -> None:
    settings = {
        "store": "file",
        "file": tmp_path / "groups.json",
        "ERUCA_AUTH": "controller",
        "policy_file": tmp_path / "kept.json",
    }
    async with controller(settings, is_ready=False) as client:
        answer = await client.get(POLICY, headers=bearer(ANN))
        assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
        assert "ERUCA_AUTH_FILE" in answer.json()["fix"]


async def test_a_store_that_keeps_no_policy_says_which_ones_do(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    rules = write_rules(tmp_path / "rules.toml", roles={"administrator": [ANN]})
    settings = {**kubernetes.settings("no-policy-"), "ERUCA_AUTH_FILE": str(rules)}
    async with controller(settings) as client:
        answer = await client.get(POLICY, headers=bearer(ANN))
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "postgres, etcd or file" in answer.json()["fix"]
