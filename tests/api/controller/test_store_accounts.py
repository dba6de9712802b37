"""Stores that authenticate their clients: accounts that are wrong, expire, or lose their rights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.controllers import CREATE, GROUP_A, controller, group, if_match
from support.etcd import EtcdServer, etcd_server
from support.kubernetes import KubernetesServer
from support.waiting import until_told

pytestmark = pytest.mark.anyio
PASSWORD = "a secret"


@pytest.fixture(scope="module")
def closed_etcd() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        server.authenticate_clients("root", PASSWORD)
        yield server


def etcd_account(server: EtcdServer, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "store": "etcd",
        "etcd_urls": server.url,
        "etcd_user": "root",
        "etcd_password": password,
    }


async def until_answered(client: httpx.AsyncClient, status: int) -> httpx.Response:
    return await until_told(
        lambda: client.get(GROUP_A), lambda answer: answer.status_code == status
    )


async def test_etcd_lets_an_account_in_and_again_after_it_has_forgotten_its_token(
    closed_etcd: EtcdServer,
) -> None:
    async with controller(etcd_account(closed_etcd)) as client:
        created = await client.put(GROUP_A, json=group(), headers=CREATE)
        assert created.status_code == 201, created.text

        closed_etcd.stop()
        closed_etcd.start()

        await until_answered(client, 200)
        version = created.json()["version"]
        changed = await client.put(GROUP_A, json=group(2), headers=if_match(version))
        assert changed.status_code == 200, changed.text


@pytest.mark.parametrize("user", ["root", ""])
async def test_etcd_refuses_a_wrong_password_or_none_and_the_answer_says_so(
    closed_etcd: EtcdServer, user: str
) -> None:
    settings = {**etcd_account(closed_etcd, "wrong"), "etcd_user": user}
    async with controller(settings, is_ready=False) as client:
        refused = await client.get(GROUP_A)

    assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")
    expected = "authentication failed" if user else "user name is empty"
    assert expected in refused.json()["detail"]
    assert "ERUCA_CONTROLLER_ETCD_USER" in refused.json()["fix"]
    assert "wrong" not in refused.text


async def test_a_token_of_kubernetes_is_read_again_before_each_request(
    kubernetes: KubernetesServer,
) -> None:
    async with controller(kubernetes.settings("rotated-")) as client:
        created = await client.put(GROUP_A, json=group(), headers=CREATE)
        kubernetes.issue_token("second")

        changed = await client.put(
            GROUP_A, json=group(2), headers=if_match(created.json()["version"])
        )

    assert changed.status_code == 200, changed.text


async def test_an_account_of_kubernetes_without_rights_is_told_which_it_needs(
    kubernetes: KubernetesServer,
) -> None:
    async with controller(kubernetes.settings("forbidden-")) as client:
        kubernetes.is_forbidden = True
        try:
            refused = await client.get(GROUP_A)
        finally:
            kubernetes.is_forbidden = False

    assert (refused.status_code, refused.json()["code"]) == (503, "arbiter-unavailable")
    assert "configmaps is forbidden" in refused.json()["detail"]
    assert "get, list, create and update ConfigMaps" in refused.json()["fix"]


async def test_a_change_of_kubernetes_whose_answer_is_lost_is_settled_by_repeating_it(
    kubernetes: KubernetesServer,
) -> None:
    async with controller(kubernetes.settings("lost-")) as client:
        kubernetes.losses = 1
        lost = await client.put(GROUP_A, json=group(), headers=CREATE)
        repeated = await client.put(GROUP_A, json=group(), headers=CREATE)

    assert lost.status_code in (201, 503), lost.text
    assert repeated.status_code in (200, 201), repeated.text
    history = [one for one in kubernetes.config_maps.values() if "lost-" in str(one["metadata"])]
    assert len(history) == 1
    assert history[0]["data"]["history"] == ""
