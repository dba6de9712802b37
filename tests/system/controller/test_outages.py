"""PostgreSQL or etcd down and up again: requests say so, wait, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from eruca_controller.store.tables import SCHEMA
from eruca_postgres.embedded import EmbeddedServer
from support.controller_processes import controllers, insist
from support.controllers import CREATE, GROUP_A, group, if_match, until_held
from support.etcd import EtcdServer
from support.postgres import drop_schema, kill_server

pytestmark = pytest.mark.anyio


async def _goes_through_an_outage(
    settings: dict[str, str], down: Callable[[], None], up: Callable[[], None]
) -> None:
    async with controllers(settings) as stage:
        one, two = stage.clients
        created = await one.put(GROUP_A, json=group(), headers=CREATE)
        version = created.json()["version"]
        known = {"if-none-match": f'"{version}"'}
        held = asyncio.create_task(one.get(GROUP_A, params={"wait_seconds": 15}, headers=known))
        await until_held(one)

        await asyncio.to_thread(down)
        refused = await two.get(GROUP_A)

        assert refused.status_code == 503, refused.text
        assert refused.json()["code"] in ("arbiter-unavailable", "not-ready")
        assert refused.json()["retryable"] is True
        assert refused.json()["fix"]
        assert int(refused.headers["retry-after"]) >= 1
        for index in range(2):
            lacking = await stage.until_ready(index, 503)
            assert lacking.json()["code"] == "not-ready"
        late = await two.put(GROUP_A, json=group(2), headers=if_match(version))
        assert late.status_code == 503

        await asyncio.to_thread(up)
        for index in range(2):
            await stage.until_ready(index)

        assert (await two.get(GROUP_A)).json() == created.json()
        answer, _ = await insist(stage, group(2), if_match(version), first=1)
        assert answer.status_code == 200
        woken = await held
        assert (woken.status_code, woken.json()["epoch"]) == (200, 2)


async def test_postgres_down_and_up(shared_server: EmbeddedServer) -> None:
    shared_server.start()
    drop_schema(shared_server.url, SCHEMA)

    await _goes_through_an_outage(
        {"DATABASE_URL": shared_server.url},
        lambda: kill_server(shared_server),
        lambda: shared_server.start(),
    )


async def test_etcd_down_and_up(etcd: EtcdServer) -> None:
    await _goes_through_an_outage(
        {
            "ERUCA_CONTROLLER_STORE": "etcd",
            "ERUCA_CONTROLLER_ETCD_URLS": etcd.url,
            "ERUCA_CONTROLLER_ETCD_PREFIX": "/outage/",
        },
        etcd.stop,
        etcd.start,
    )


async def test_a_controller_that_starts_before_its_store_waits_for_it(etcd: EtcdServer) -> None:
    settings = {
        "ERUCA_CONTROLLER_STORE": "etcd",
        "ERUCA_CONTROLLER_ETCD_URLS": etcd.url,
        "ERUCA_CONTROLLER_ETCD_PREFIX": "/late/",
    }
    async with controllers(settings, 1) as stage:
        stage.kill(0)
        etcd.stop()
        try:
            await stage.start(0, is_ready=False)
            lacking = await stage.until_ready(0, 503)
            assert "ERUCA_CONTROLLER_ETCD_URLS" in lacking.json()["fix"]
        finally:
            await asyncio.to_thread(etcd.start)

        await stage.until_ready(0)
        answer = await stage.clients[0].put(GROUP_A, json=group(), headers=CREATE)
        assert answer.status_code == 201


async def test_another_member_is_asked_if_the_first_one_does_not_answer(etcd: EtcdServer) -> None:
    settings = {
        "ERUCA_CONTROLLER_STORE": "etcd",
        "ERUCA_CONTROLLER_ETCD_URLS": f"http://127.0.0.1:9;{etcd.url}",
        "ERUCA_CONTROLLER_ETCD_PREFIX": "/members/",
    }
    async with controllers(settings, 1) as stage:
        answer = await stage.clients[0].put(GROUP_A, json=group(), headers=CREATE)

    assert answer.status_code == 201
