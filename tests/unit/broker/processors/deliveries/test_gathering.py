"""Requests of one group that come while its turn is taken are done together in the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from eruca.contract.errors import ErucaError, StaleHandleError, StoreFailedError
from eruca_broker.processors.deliveries.gathering import ROUND_MAX, Gathering

pytestmark = pytest.mark.anyio


class Stage:
    """Turns that a test holds up, and what was done in them."""

    def __init__(self) -> None:
        self.locks: dict[str, asyncio.Lock] = {}
        self.rounds: list[tuple[str, list[int]]] = []
        self.begun = asyncio.Event()
        self.error: ErucaError | None = None
        self.gathering: Gathering[int, int] = Gathering(self.turn, self.do)

    @asynccontextmanager
    async def turn(self, group: str) -> AsyncIterator[None]:
        async with self.locks.setdefault(group, asyncio.Lock()):
            yield

    async def do(self, group: str, numbers: Sequence[int]) -> list[int | ErucaError]:
        self.rounds.append((group, list(numbers)))
        self.begun.set()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return [StaleHandleError(str(n)) if n < 0 else n * 10 for n in numbers]

    def ask(self, *numbers: int, group: str = "g") -> list[asyncio.Task[int]]:
        return [asyncio.create_task(self.gathering.done(group, number)) for number in numbers]


async def test_what_comes_while_the_turn_is_taken_is_done_together_in_the_next() -> None:
    stage = Stage()
    async with stage.turn("g"):
        asked = stage.ask(1, 2, 3)
        await asyncio.sleep(0)
        other = await stage.gathering.done("h", 4)
        assert stage.rounds == [("h", [4])]

    assert await asyncio.gather(*asked) == [10, 20, 30]
    assert other == 40
    assert stage.rounds == [("h", [4]), ("g", [1, 2, 3])]


async def test_what_comes_once_a_round_has_begun_is_done_in_the_next() -> None:
    stage = Stage()
    first = stage.ask(1)
    await stage.begun.wait()
    second = stage.ask(2, 3)

    assert await asyncio.gather(*first, *second) == [10, 20, 30]
    assert stage.rounds == [("g", [1]), ("g", [2, 3])]


async def test_an_outcome_that_is_an_error_concerns_one_request_only() -> None:
    stage = Stage()

    outcomes = await asyncio.gather(*stage.ask(1, -2, 3), return_exceptions=True)

    assert [outcomes[0], outcomes[2]] == [10, 30]
    assert isinstance(outcomes[1], StaleHandleError)
    assert len(stage.rounds) == 1


async def test_what_keeps_a_round_from_being_done_is_told_to_each() -> None:
    stage = Stage()
    stage.error = StoreFailedError("the disk is gone")

    outcomes = await asyncio.gather(*stage.ask(1, 2), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [StoreFailedError, StoreFailedError]


async def test_a_round_has_so_many_requests_at_most_and_the_rest_wait_for_it() -> None:
    stage = Stage()
    async with stage.turn("g"):
        asked = stage.ask(*range(ROUND_MAX + 2))
        await asyncio.sleep(0)

    assert await asyncio.gather(*asked) == [n * 10 for n in range(ROUND_MAX + 2)]
    assert [len(numbers) for _, numbers in stage.rounds] == [ROUND_MAX, 2]


async def test_who_is_cancelled_leaves_the_others_alone() -> None:
    stage = Stage()
    async with stage.turn("g"):
        asked = stage.ask(1, 2)
        await asyncio.sleep(0)
        asked[0].cancel()

    outcomes = await asyncio.gather(*asked, return_exceptions=True)

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1] == 20
