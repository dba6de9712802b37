"""Controllers killed in the middle of swaps: no change is lost, made twice, or made in two ways.

Several replicas want to be master, each by compare-and-set from the version that it has read. Each
insists on an answer, whatever is killed. Then the history must agree with their answers.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import httpx
import psycopg
import pytest

from eruca_controller.store.tables import SCHEMA
from eruca_postgres.embedded import EmbeddedServer
from support.controller_processes import ControllerStage, controllers, insist
from support.controllers import CREATE, GROUP_A, STORES, group, if_match, until_held
from support.kubernetes import KubernetesServer
from support.postgres import drop_schema
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

KILLS = 3
TERMS_BETWEEN_KILLS = 4
_numbers = count()


@pytest.fixture(params=STORES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "postgres":
        server = request.getfixturevalue("shared_server")
        server.start()
        drop_schema(server.url, SCHEMA)
        return {"DATABASE_URL": server.url}
    if request.param == "etcd":
        return {
            "ERUCA_CONTROLLER_STORE": "etcd",
            "ERUCA_CONTROLLER_ETCD_URLS": request.getfixturevalue("etcd").url,
            "ERUCA_CONTROLLER_ETCD_PREFIX": f"/kills-{next(_numbers)}/",
        }
    if request.param == "kubernetes":
        account: KubernetesServer = request.getfixturevalue("kubernetes")
        given = account.settings(f"kills-{next(_numbers)}-")
        return {f"ERUCA_CONTROLLER_{name.upper()}": str(value) for name, value in given.items()}
    return {
        "ERUCA_CONTROLLER_STORE": "file",
        "ERUCA_CONTROLLER_FILE": str(tmp_path / "groups.json"),
    }


async def test_the_history_tells_what_was_answered_whatever_is_killed(
    settings: dict[str, str],
) -> None:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201  # pytest shows it when the test fails
    random = Random(seed)
    won: list[str] = []  # reasons of changes that were answered with 200
    doubtful: set[str] = set()  # 412 after a request that may have been done
    is_over = asyncio.Event()
    async with controllers(settings) as stage:
        await insist(stage, group(1, 1, in_sync=(1, 2, 3)), CREATE)
        replicas = [
            asyncio.create_task(_replica(stage, number, won, doubtful, is_over))
            for number in (1, 2, 3)
        ]
        for _ in range(KILLS):
            wanted = len(won) + TERMS_BETWEEN_KILLS
            await until(lambda wanted=wanted: len(won) >= wanted)  # type: ignore[misc]  # this turn's
            victim = random.randrange(2)
            await asyncio.sleep(random.random() * 0.02)  # any moment of a swap
            stage.kill(victim)
            await stage.start(victim)
        is_over.set()
        await asyncio.gather(*replicas)
        changes = [
            (await client.get(f"{GROUP_A}/history", params={"limit": 1000})).json()["changes"]
            for client in stage.clients
        ]

    assert changes[0] == changes[1], "both controllers know the same"
    [history, _] = changes
    numbers = [int(change["version"].partition("-")[0]) for change in history]
    assert numbers == list(range(len(history), 0, -1)), "complete, and in order"
    epochs = [change["epoch"] for change in history]
    assert epochs == list(range(len(history), 0, -1)), "each term took the next epoch"
    made = Counter(change["reason"] for change in history[:-1])
    assert max(made.values()) == 1, "nothing was done twice"
    assert set(won) <= made.keys(), "nothing that was answered is lost"
    assert made.keys() <= {*won, *doubtful}, "nothing that was refused was done"


async def _replica(
    stage: ControllerStage,
    number: int,
    won: list[str],
    doubtful: set[str],
    is_over: asyncio.Event,
) -> None:
    """Take one term after the other."""
    for attempt in count():
        if is_over.is_set():
            return
        current = await _read(stage, number)
        reason = f"replica {number}, attempt {attempt}"
        row = group(current["epoch"] + 1, number, in_sync=(1, 2, 3), reason=reason)
        answer, is_doubtful = await insist(
            stage, row, if_match(current["version"]), first=number + attempt
        )
        if answer.status_code == httpx.codes.OK:
            won.append(reason)
            continue
        assert answer.status_code == httpx.codes.PRECONDITION_FAILED, answer.text
        if is_doubtful:
            doubtful.add(reason)


async def _read(stage: ControllerStage, number: int) -> dict[str, Any]:
    while True:
        for index in range(len(stage.clients)):
            client = stage.clients[(number + index) % len(stage.clients)]
            try:
                answer = await client.get(GROUP_A)
            except httpx.TransportError:
                continue  # it was killed
            if answer.status_code == httpx.codes.OK:
                row: dict[str, Any] = answer.json()
                return row
        await asyncio.sleep(0.02)  # one was killed, and the other one is starting


async def test_a_swap_that_a_kill_interrupts_is_made_by_the_other_controller(
    shared_server: EmbeddedServer,
) -> None:
    """The row is locked, so the controller is in the middle of its UPDATE when it is killed."""
    shared_server.start()
    drop_schema(shared_server.url, SCHEMA)
    async with controllers({"DATABASE_URL": shared_server.url}) as stage:
        created = await stage.clients[0].put(GROUP_A, json=group(), headers=CREATE)
        headers = if_match(created.json()["version"])
        async with await psycopg.AsyncConnection.connect(shared_server.url) as lock:
            await lock.execute(f"SELECT * FROM {SCHEMA}.broker_groups FOR UPDATE")
            putting = asyncio.create_task(
                stage.clients[0].put(GROUP_A, json=group(2), headers=headers)
            )
            await until_told(lambda: _blocked_updates(shared_server.url))
            stage.kill(0)
            with pytest.raises(httpx.TransportError):
                await putting
            await lock.rollback()

        answer, _ = await insist(stage, group(2), headers, first=1)

        assert (answer.status_code, answer.json()["epoch"]) == (200, 2)
        history = (await stage.clients[1].get(f"{GROUP_A}/history")).json()["changes"]
        assert [change["epoch"] for change in history] == [2, 1]
        await stage.start(0)


async def _blocked_updates(url: str) -> int:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        found = await connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE broker_groups%'"
        )
        row = await found.fetchone()
        assert row is not None
        return int(row[0])


async def test_a_change_wakes_a_request_held_by_another_process(settings: dict[str, str]) -> None:
    async with controllers(settings) as stage:
        writer, reader = stage.clients
        created = await writer.put(GROUP_A, json=group(), headers=CREATE)
        version = created.json()["version"]
        held = asyncio.create_task(
            reader.get(
                GROUP_A, params={"wait_seconds": 15}, headers={"if-none-match": f'"{version}"'}
            )
        )
        await until_held(reader)

        await writer.put(GROUP_A, json=group(2), headers=if_match(version))

        answer = await held
        assert (answer.status_code, answer.json()["epoch"]) == (200, 2)
