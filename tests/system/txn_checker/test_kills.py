"""Instances and brokers killed at any moment, while transactions come and producers answer.

Whatever is killed when: each transaction ends as its producers say, the message of a commit is seen
once and that of a rollback never, and nobody is asked the same check twice.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Any

import httpx
import pytest

from eruca_postgres.embedded import EmbeddedServer
from eruca_txn_checker.projection.tables import SCHEMA
from support.checker_stage import Stage, checker_stage
from support.checkers import GROUP, TOPIC, message_ids, take
from support.postgres import drop_schema
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

TRANSACTIONS = 80
KILLS = 5
STATES = {"commit": "committed", "rollback": "rolled_back"}


@dataclass
class Book:
    """The producers' knowledge."""

    random: Random
    truth: dict[str, str] = field(default_factory=dict)  # by transaction
    asked: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture
async def stage(
    tmp_path_factory: pytest.TempPathFactory, shared_server: EmbeddedServer
) -> AsyncIterator[Stage]:
    shared_server.start()
    drop_schema(shared_server.url, SCHEMA)
    directory = tmp_path_factory.mktemp("stage")
    async with checker_stage(directory, shared_server, checkers=2) as stage:
        yield stage


async def test_every_transaction_ends_as_its_producers_say(stage: Stage) -> None:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201  # pytest shows it when the test fails
    book = Book(Random(seed))
    producing = asyncio.create_task(_produce(stage, book))
    answering = [asyncio.create_task(_answer(checker, book)) for checker in stage.checkers.values()]

    for name in [book.random.choice([*stage.checkers, "broker-a"]) for _ in range(KILLS)]:
        progress = len(book.asked) + book.random.randrange(1, 8)
        await until(lambda wanted=progress: len(book.asked) >= wanted or producing.done())  # type: ignore[misc]  # of this turn
        await stage.kill(name)
        await stage.start(name)
    await producing
    states = {id_: STATES[outcome] for id_, outcome in book.truth.items()}
    await until_told(lambda: _states(stage, states), lambda found: found == states)
    for task in answering:
        task.cancel()
    await asyncio.gather(*answering, return_exceptions=True)

    committed = [id_ for id_, outcome in book.truth.items() if outcome == "commit"]
    assert sorted(await message_ids(stage.broker)) == sorted(committed)
    check_ids = [check["check_id"] for check in book.asked]
    assert len(check_ids) == len(set(check_ids))


async def _produce(stage: Stage, book: Book) -> None:
    """Begin transactions under ids of our own, so that repeating is harmless; decide a few."""
    while len(book.truth) < TRANSACTIONS:
        transaction_id = f"T{len(book.truth)}"
        outcome = book.random.choice(["commit", "rollback"])
        body = {
            "topic": TOPIC,
            "producer_group": GROUP,
            "message": {"body": {"text": "x"}, "message_id": transaction_id},
        }
        await _insist(stage.broker, "/v1/transactions", body)
        book.truth[transaction_id] = outcome
        if book.random.random() < 0.2:
            path = f"/v1/transactions/{transaction_id}:{outcome}"
            await _insist(stage.broker, path, {"producer_group": GROUP})


async def _insist(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    """Send until it has certainly arrived, or been decided meanwhile."""
    while True:
        try:
            answer = await client.post(path, json=body, timeout=5)
        except httpx.TransportError:
            await asyncio.sleep(0.05)  # the broker is being killed
            continue
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            assert answer.status_code in (200, 201, 409), answer.text
            return
        await asyncio.sleep(0.05)  # it is starting


async def _answer(checker: httpx.AsyncClient, book: Book) -> None:
    """Be a producer that mostly knows, and sometimes says nothing."""
    while True:
        try:
            checks = await take(checker, count_max=4, wait_seconds=1)
        except (httpx.TransportError, AssertionError):
            await asyncio.sleep(0.05)  # it was killed, or is starting
            continue
        book.asked += checks
        for check in checks:
            known = book.truth.get(check["transaction_id"], "unknown")
            if book.random.random() < 0.8:
                path = f"/v1/checks/{check['check_id']}"
                try:
                    answer = await checker.post(path, json={"answer": known}, timeout=5)
                except httpx.TransportError:
                    continue  # the next check will do
                assert answer.status_code in (200, 503), answer.text


async def _states(stage: Stage, wanted: dict[str, str]) -> dict[str, str]:
    found = {}
    for transaction_id in wanted:
        answer = await stage.broker.get(f"/v1/transactions/{transaction_id}")
        found[transaction_id] = answer.json()["state"]
    return found
