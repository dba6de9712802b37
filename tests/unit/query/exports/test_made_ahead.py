"""Making things ahead: all of them, in order, and no further than one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from eruca_query.exports.made_ahead import made_ahead

pytestmark = pytest.mark.anyio


class Source:
    """Numbers; each is begun when it is asked for."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.begun = 0
        self.is_closed = False
        self._count = count
        self._error = error

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            while self.begun < self._count:
                self.begun += 1
                await asyncio.sleep(0)
                yield self.begun
            if self._error is not None:
                raise self._error
        finally:
            self.is_closed = True


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_everything_comes_in_its_order(count: int) -> None:
    source = Source(count)

    assert [n async for n in made_ahead(source.numbers())] == list(range(1, count + 1))
    assert source.is_closed


async def test_one_is_made_while_one_is_used() -> None:
    source = Source(5)
    async with aclosing(made_ahead(source.numbers())) as numbers:
        async for number in numbers:
            for _ in range(10):
                await asyncio.sleep(0)
            assert source.begun == min(number + 1, 5)


async def test_what_goes_wrong_comes_in_its_place() -> None:
    numbers = made_ahead(Source(2, ValueError("no third")).numbers())

    assert [await anext(numbers), await anext(numbers)] == [1, 2]
    with pytest.raises(ValueError, match="no third"):
        await anext(numbers)


async def test_leaving_gives_up_what_is_under_way() -> None:
    source = Source(5)
    async with aclosing(made_ahead(made_ahead(source.numbers()))) as numbers:
        assert await anext(numbers) == 1

    assert source.is_closed
    assert source.begun <= 3
