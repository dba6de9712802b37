"""Two instances share the brokers, and one goes on alone when the other is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from time import monotonic
from typing import Any

import httpx
import pytest

from eruca_postgres.embedded import EmbeddedServer
from eruca_txn_checker.projection.tables import SCHEMA
from support.checker_stage import Stage, checker_stage
from support.checkers import begin, take
from support.postgres import drop_schema
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stage(
    tmp_path_factory: pytest.TempPathFactory, shared_server: EmbeddedServer
) -> AsyncIterator[Stage]:
    shared_server.start()
    drop_schema(shared_server.url, SCHEMA)
    directory = tmp_path_factory.mktemp("stage")
    async with checker_stage(directory, shared_server, brokers=2, checkers=2) as stage:
        yield stage


async def brokers_of(stage: Stage) -> list[list[str]]:
    statuses = [await checker.get("/v1/status") for checker in stage.checkers.values()]
    return [status.json()["brokers"] for status in statuses]


async def test_each_has_its_share_and_one_takes_over_when_the_other_is_killed(
    stage: Stage,
) -> None:
    shares = await until_told(
        lambda: brokers_of(stage), lambda shares: all(len(its) == 1 for its in shares)
    )
    assert sorted(name for its in shares for name in its) == ["broker-a", "broker-b"]
    ids = {await begin(broker) for broker in stage.brokers.values()}

    await stage.kill("checker-2")
    killed_at = monotonic()
    checks: list[dict[str, Any]] = []
    while {check["transaction_id"] for check in checks} < ids:
        checks += await take(stage.checker, count_max=2)

    assert monotonic() - killed_at < 15
    status = await stage.checker.get("/v1/status")
    assert status.json()["brokers"] == ["broker-a", "broker-b"]
    await stage.start("checker-2")
    await until_told(lambda: brokers_of(stage), lambda shares: all(len(its) == 1 for its in shares))


async def test_no_check_is_sent_twice_nor_a_transaction_asked_about_twice_at_a_time(
    stage: Stage,
) -> None:
    """Producers at both instances, who never answer, while the instances change places."""
    brokers = stage.brokers.values()
    ids = {await begin(broker, producer_group="silent") for broker in brokers for _ in range(5)}
    asked: list[dict[str, Any]] = []
    is_over = asyncio.Event()

    async def wait_at(checker: httpx.AsyncClient, name: str) -> None:
        while not is_over.is_set():
            try:
                asked.extend(await take(checker, name, group="silent", count_max=3, wait_seconds=1))
            except (httpx.TransportError, AssertionError):
                await asyncio.sleep(0.05)  # it was killed, or is starting

    producers = [
        asyncio.create_task(wait_at(checker, f"{name}-{number}"))
        for name, checker in stage.checkers.items()
        for number in range(2)
    ]
    for name in ("checker-1", "checker-2"):
        await until(lambda: len(asked) >= len(ids))
        await stage.kill(name)
        await stage.start(name)
        wanted = len(asked) + 5
        await until(partial(_has, asked, wanted))
    is_over.set()
    await asyncio.gather(*producers)

    assert {check["transaction_id"] for check in asked} == ids
    check_ids = [check["check_id"] for check in asked]
    assert len(check_ids) == len(set(check_ids))
    for transaction_id in ids:
        its = sorted(
            (check for check in asked if check["transaction_id"] == transaction_id),
            key=lambda check: check["number"],
        )
        for check, following in pairwise(its):
            assert check["number"] < following["number"]
            assert check["answer_until"] <= following["asked_at"]


def _has(asked: list[dict[str, Any]], count: int) -> bool:
    return len(asked) >= count
