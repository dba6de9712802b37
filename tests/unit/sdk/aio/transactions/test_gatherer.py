"""Requests of many transactions that share one, and what happens when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from eruca.aio.transactions.gatherer import BYTES_MAX, IN_FLIGHT_MAX, Gatherer
from eruca.contract.errors import (
    ErucaError,
    OverloadedError,
    TimeoutExpiredError,
    TooLargeError,
    TransactionNotFoundError,
    TransportError,
    ValidationError,
)
from eruca.contract.limits import SHARED_TRANSACTION_COUNT_MAX
from support.loop_clock import moved_clock
from support.waiting import until

pytestmark = pytest.mark.anyio


@dataclass
class Broker:
    """Answers each request with its own text, once the test lets it."""

    requests: list[tuple[str, ...]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    refused: dict[str, ErucaError] = field(default_factory=dict)
    of_shared: ErucaError | None = None  # the failure of requests that several share

    async def one(self, _url: str, request: str, _timeout: float) -> str:
        self.requests.append((request,))
        await self.gate.wait()
        if request in self.refused:
            raise self.refused[request]
        return request.upper()

    async def many(
        self, _url: str, requests: Sequence[str], _timeout: float
    ) -> list[str | ErucaError]:
        self.requests.append(tuple(requests))
        await self.gate.wait()
        if self.of_shared is not None:
            raise self.of_shared
        return [self.refused.get(request, request.upper()) for request in requests]


@dataclass
class Stage:
    broker: Broker
    gatherer: Gatherer[str, str]

    def ask(
        self, *requests: str, url: str = "http://a", size: int = 1, timeout: float = 60
    ) -> list[asyncio.Task[str]]:
        return [
            asyncio.ensure_future(self.gatherer.ask(url, request, size=size, timeout=timeout))
            for request in requests
        ]

    async def received(self, count: int) -> None:
        await until(lambda: len(self.broker.requests) == count)

    async def outcomes(self, *requests: str) -> list[str | BaseException]:
        """Return the outcomes of requests of which all but the first share one."""
        asked = self.ask(*requests)
        await self.received(2)
        self.broker.gate.set()
        return await asyncio.gather(*asked, return_exceptions=True)


@pytest.fixture
def stage() -> Stage:
    broker = Broker()
    return Stage(broker, Gatherer(broker.one, broker.many))


async def test_one_alone_is_sent_alone(stage: Stage) -> None:
    stage.broker.gate.set()
    for request in ("a", "b"):
        assert await stage.gatherer.ask("http://a", request, size=1, timeout=60) == request.upper()
    assert stage.broker.requests == [("a",), ("b",)]


async def test_those_that_come_meanwhile_share_the_next_request(stage: Stage) -> None:
    asked = stage.ask("first", *"abcdefgh")
    await stage.received(2)
    later = stage.ask(*"ijklmnop")
    elsewhere = stage.ask("else", url="http://b")
    await stage.received(3)
    stage.broker.gate.set()

    answers = await asyncio.gather(*asked, *later, *elsewhere)
    assert answers == ["FIRST", *"ABCDEFGHIJKLMNOP", "ELSE"]
    assert stage.broker.requests[:3] == [("first",), tuple("abcdefgh"), ("else",)]
    assert [name for names in stage.broker.requests[3:] for name in names] == list("ijklmnop")
    assert len(stage.broker.requests) == 4


async def test_requests_under_way_and_their_sizes_are_bounded(stage: Stage) -> None:
    names = [f"n{number}" for number in range(3 * SHARED_TRANSACTION_COUNT_MAX)]
    asked = stage.ask("first", *names)
    await stage.received(IN_FLIGHT_MAX)
    large = stage.ask("x", "y", "z", size=BYTES_MAX // 2)
    stage.broker.gate.set()

    assert await asyncio.gather(*asked, *large) == [
        "FIRST", *(name.upper() for name in names), *"XYZ",
    ]  # fmt: skip
    sizes = [len(shared) for shared in stage.broker.requests]
    assert max(sizes) <= SHARED_TRANSACTION_COUNT_MAX
    assert [name for names in stage.broker.requests[1:] for name in names] == [*names, *"xyz"]
    assert not any({"x", "y", "z"} <= set(shared) for shared in stage.broker.requests)


async def test_one_that_is_refused_fails_alone(stage: Stage) -> None:
    stage.broker.refused["b"] = TransactionNotFoundError("no b")
    answers = await stage.outcomes("first", *"abc")

    assert answers[2] is stage.broker.refused["b"]
    assert [answers[0], answers[1], answers[3]] == ["FIRST", "A", "C"]


@pytest.mark.parametrize(
    "error", [OverloadedError("full", retry_after_seconds=3.0), TransportError("it ended")]
)
async def test_a_shared_failure_is_each_ones_own(stage: Stage, error: ErucaError) -> None:
    stage.broker.of_shared = error
    answers = await stage.outcomes("first", *"ab")

    assert answers[0] == "FIRST"
    failures = [failure for failure in answers[1:] if isinstance(failure, type(error))]
    assert len({id(failure) for failure in (*failures, error)}) == 3
    assert {failure.retry_after_seconds for failure in failures} == {error.retry_after_seconds}
    assert len(stage.broker.requests) == 2


@pytest.mark.parametrize("error", [ValidationError("no"), TooLargeError("too large")])
async def test_if_the_content_is_refused_each_is_sent_alone(
    stage: Stage, error: ErucaError
) -> None:
    stage.broker.of_shared = error
    stage.broker.refused["b"] = error
    answers = await stage.outcomes("first", *"abc")

    assert answers == ["FIRST", "A", error, "C"]
    assert stage.broker.requests == [("first",), tuple("abc"), ("a",), ("b",), ("c",)]


async def test_each_has_its_own_deadline(stage: Stage) -> None:
    with moved_clock() as clock:
        first, early = stage.ask("first", "early", timeout=2)
        await stage.received(2)
        late, waiting = stage.ask("late", timeout=60) + stage.ask("waiting", timeout=1)
        clock.advance(3)
        with pytest.raises(TimeoutExpiredError, match="http://a"):
            await early
        with pytest.raises(TimeoutExpiredError):
            await waiting
        stage.broker.gate.set()
        assert [*await asyncio.gather(first, late)] == ["FIRST", "LATE"]
    assert ("late",) in stage.broker.requests


async def test_a_cancelled_one_is_not_sent(stage: Stage) -> None:
    asked = stage.ask("first", *"ab")
    await stage.received(2)
    gone, other = stage.ask("gone", "other")
    await asyncio.sleep(0)
    gone.cancel()
    asked[1].cancel()
    stage.broker.gate.set()
    answers = await asyncio.gather(*asked, gone, other, return_exceptions=True)

    assert [answers[0], answers[2], answers[4]] == ["FIRST", "B", "OTHER"]
    assert stage.broker.requests == [("first",), tuple("ab"), ("other",)]


async def test_a_defect_is_raised_where_the_callers_wait(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def defect(_url: str, requests: Sequence[str], _timeout: float) -> list[str]:
        stage.broker.requests.append(tuple(requests))
        raise ZeroDivisionError

    monkeypatch.setattr(stage.gatherer, "_many", defect)
    answers = await stage.outcomes(*"abc")
    assert [type(answer) for answer in answers] == [str, ZeroDivisionError, ZeroDivisionError]
