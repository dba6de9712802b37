"""Networks that are cut, or swallow everything: between any two of those who take part.

All tests are on one stage, each with a producer group of its own.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from support.checker_stage import Stage
from support.checkers import messages, until_ready
from support.tcp_proxy import TcpProxy
from support.waiting import until_told

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer of a group of its own."""

    group: str
    stage: Stage

    async def begin(self) -> str:
        return await self.stage.begin(
            producer_group=self.group, message={"body": {"text": self.group}}
        )

    async def take(self, **query: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        return await self.stage.take(group=self.group, **query)

    async def answer(self, check: dict[str, Any], answer: str, **more: Any) -> httpx.Response:  # noqa: ANN401
        path = f"/v1/checks/{check['check_id']}"
        return await self.stage.checker.post(path, json={"answer": answer}, **more)

    async def message_count(self) -> int:
        return (await messages(self.stage.broker)).count(self.group)


@pytest.fixture
def producer(stage: Stage, request: pytest.FixtureRequest) -> Producer:
    name = re.sub(r"[^a-z]", "-", str(request.node.name))
    return Producer(f"{name[-60:]}", stage)


async def break_network(network: TcpProxy, how: str) -> None:
    if how == "cut":
        await network.cut()
    else:
        network.freeze()


@pytest.mark.parametrize("how", ["cut", "freeze"])
async def test_an_answer_is_kept_while_the_broker_is_away_and_told_without_asking_again(
    stage: Stage, producer: Producer, how: str
) -> None:
    transaction_id = await producer.begin()
    [check] = await producer.take()
    await break_network(stage.broker_networks["broker-a"], how)

    refused = await producer.answer(check, "commit")
    before = await stage.until_checked(transaction_id)
    away = await until_told(
        lambda: stage.checker.get("/v1/status"), lambda status: status.json()["faults"]
    )
    ready = await stage.checker.get("/readyz")
    await stage.broker_networks["broker-a"].heal()
    committed = await stage.until_state(transaction_id, "committed")

    assert refused.status_code == 503
    assert "is stored" in refused.json()["detail"]
    assert "broker-a" in away.json()["faults"]
    assert ready.status_code == 200
    assert committed["decision"]["by"] == "check"
    assert committed["checks"] == before["checks"]
    assert await producer.message_count() == 1


@pytest.mark.parametrize("how", ["cut", "freeze"])
async def test_checks_go_on_when_the_broker_is_back(
    stage: Stage, producer: Producer, how: str
) -> None:
    await stage.checker.get("/readyz")
    await break_network(stage.broker_networks["broker-a"], how)
    transaction_id = await producer.begin()
    waiting = asyncio.create_task(producer.take(wait_seconds=25))
    await until_told(
        lambda: stage.checker.get("/v1/status"), lambda status: status.json()["faults"]
    )

    await stage.broker_networks["broker-a"].heal()
    [check] = await waiting
    await producer.answer(check, "rollback")

    await stage.until_state(transaction_id, "rolled_back")


@pytest.mark.parametrize("how", ["cut", "freeze"])
async def test_without_postgres_the_checker_says_so_with_the_fix_and_goes_on_with_it(
    stage: Stage, producer: Producer, how: str
) -> None:
    first = await producer.begin()
    [check] = await producer.take()
    await break_network(stage.postgres_network, how)
    second = await producer.begin()

    said = await until_told(
        lambda: stage.checker.get("/readyz"), lambda answer: answer.status_code == 503
    )
    alive = await stage.checker.get("/healthz")
    refused = await producer.answer(check, "commit")
    await stage.postgres_network.heal()
    await until_ready(stage.checker)
    answered = await producer.answer(check, "commit")

    assert "PostgreSQL does not answer" in said.json()["detail"]
    assert "DATABASE_URL" in said.json()["fix"]
    assert (alive.status_code, refused.status_code) == (200, 503)
    assert answered.json()["state"] == "committed"
    await stage.until_state(first, "committed")
    checks = await producer.take(count_max=2)
    assert {check["transaction_id"] for check in checks} == {second}


async def test_a_check_that_was_lost_on_its_way_to_a_producer_is_sent_again(
    stage: Stage, producer: Producer
) -> None:
    network = stage.checker_networks["checker-1"]
    waiting = asyncio.create_task(producer.take())
    await until_told(
        lambda: stage.checker.get("/v1/status"), lambda s: s.json()["held_requests"] == 1
    )
    network.freeze()
    transaction_id = await producer.begin()
    await stage.until_checked(transaction_id)

    await network.cut()
    with pytest.raises(httpx.TransportError):
        await waiting
    await network.heal()
    [check] = await producer.take()
    await producer.answer(check, "commit")

    assert check["transaction_id"] == transaction_id
    await stage.until_state(transaction_id, "committed")
    assert await producer.message_count() == 1


async def test_an_answer_whose_answer_was_lost_may_be_given_again(
    stage: Stage, producer: Producer
) -> None:
    network = stage.checker_networks["checker-1"]
    transaction_id = await producer.begin()
    [check] = await producer.take()
    async with httpx.AsyncClient(base_url=stage.urls["checker-1"], trust_env=False) as direct:
        given = await direct.post(f"/v1/checks/{check['check_id']}", json={"answer": "commit"})
    network.freeze()
    with pytest.raises(httpx.TimeoutException):
        await producer.answer(check, "commit", timeout=0.3)

    await network.heal()
    again = await producer.answer(check, "commit")

    assert given.json()["repeated"] is False
    assert (again.json()["state"], again.json()["repeated"]) == ("committed", True)
    await stage.until_state(transaction_id, "committed")
    assert await producer.message_count() == 1
