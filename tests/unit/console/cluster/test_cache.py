"""Answers that one caller has got a moment ago."""

from __future__ import annotations

import asyncio

import pytest

from eruca.contract.errors import UnavailableError
from eruca_console.cluster.cache import (
    ANSWER_COUNT_MAX,
    COSTLY_LIFE_SECONDS_MAX,
    COSTLY_REST,
    LIFE_SECONDS,
    AnswerCache,
)
from eruca_console.core.busy_time import BusyTime

pytestmark = pytest.mark.anyio


class Asked:
    """Counts questions."""

    def __init__(self) -> None:
        self.count = 0
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.count += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return self.count


async def test_equal_questions_at_the_same_time_are_asked_once() -> None:
    cache, asked = AnswerCache(), Asked()
    asking = [asyncio.create_task(cache.get("q", asked)) for _ in range(3)]
    asked.may_answer.set()

    assert [one.value for one in await asyncio.gather(*asking)] == [1, 1, 1]


async def test_the_time_of_questions_that_are_asked_is_counted() -> None:
    now = 0.0
    busy = BusyTime(lambda: now)
    cache = AnswerCache(lambda: now, busy=busy)

    async def ask() -> None:
        nonlocal now
        now += 0.25

    for key in ("q", "q", "r"):
        await cache.get(key, ask)

    assert busy.seconds == 0.5


async def test_an_answer_is_given_again_until_it_is_old() -> None:
    now = 0.0
    cache, asked = AnswerCache(lambda: now), Asked()
    asked.may_answer.set()
    await cache.get("q", asked)
    now = LIFE_SECONDS / 2
    assert (await cache.get("q", asked)).value == 1

    now = LIFE_SECONDS
    assert (await cache.get("q", asked)).value == 2
    cache.clear()
    assert (await cache.get("q", asked)).value == 3


async def test_a_costly_answer_is_recent_in_proportion_to_the_time_that_it_took() -> None:
    now = 0.0
    cache, asked = AnswerCache(lambda: now), Asked()
    asking = asyncio.create_task(cache.get("q", asked, is_costly=True))
    await asyncio.sleep(0)
    now = 0.2  # seconds that it took
    asked.may_answer.set()
    await asking

    for now, value in ((COSTLY_REST * 0.2 - 0.1, 1), (COSTLY_REST * 0.2, 2)):  # noqa: B007
        assert (await cache.get("q", asked, is_costly=True)).value == value


async def test_no_answer_is_recent_for_ever() -> None:
    now = 0.0
    cache, asked = AnswerCache(lambda: now), Asked()
    asking = asyncio.create_task(cache.get("q", asked, is_costly=True))
    await asyncio.sleep(0)
    now = 9.0
    asked.may_answer.set()
    await asking

    now = COSTLY_LIFE_SECONDS_MAX
    assert (await cache.get("q", asked, is_costly=True)).value == 2


async def test_a_failure_is_not_remembered() -> None:
    cache, asked = AnswerCache(), Asked()
    asked.may_answer.set()
    asked.error = UnavailableError("away")
    with pytest.raises(UnavailableError):
        await cache.get("q", asked)

    asked.error = None
    assert (await cache.get("q", asked)).value == 2


async def test_a_caller_that_leaves_does_not_end_the_question_of_another() -> None:
    cache, asked = AnswerCache(), Asked()
    leaving = asyncio.create_task(cache.get("q", asked))
    staying = asyncio.create_task(cache.get("q", asked))
    await asyncio.sleep(0)
    leaving.cancel()
    asked.may_answer.set()

    assert (await staying).value == 1


async def test_the_cache_is_bounded() -> None:
    cache, asked = AnswerCache(), Asked()
    asked.may_answer.set()
    for number in range(ANSWER_COUNT_MAX + 1):
        await cache.get(number, asked)
    count = asked.count

    await cache.get(ANSWER_COUNT_MAX, asked)
    assert asked.count == count
    await cache.get(0, asked)  # the oldest: forgotten
    assert asked.count == count + 1
