"""Closing a client closes all that was made of it, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from support.waiting import until

pytestmark = pytest.mark.anyio


class Child:
    """Something that a client has made."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.has_left = False

    async def leave(self, *, drain: bool, failed: bool) -> None:
        del drain, failed
        self.has_left = True
        if self.error is not None:
            raise self.error


async def test_what_was_made_last_is_closed_first() -> None:
    left: list[int] = []

    class Ordered(Child):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        async def leave(self, *, drain: bool, failed: bool) -> None:
            del drain, failed
            left.append(self.number)

    async with eruca.AsyncClient("http://127.0.0.1:1") as client:
        for number in range(3):
            client.context.adopt(Ordered(number))

    assert left == [2, 1, 0]


async def test_what_cannot_be_closed_keeps_nothing_else_open() -> None:
    client = eruca.AsyncClient("http://127.0.0.1:1")
    children = [Child(ValueError("one")), Child(), Child(ValueError("two")), Child()]
    for child in children:
        client.context.adopt(child)

    with pytest.raises(ValueError, match="two") as raised:
        await client.close()

    assert all(child.has_left for child in children)
    assert raised.value.__notes__ == ["another close failed, too: ValueError('one')"]
    with pytest.raises(eruca.ClosedError):
        client.context.check_open()
    await client.close()  # again, harmless


class SlowChild(Child):
    """One that takes until it may have left, unless it is not to drain."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()
        self.may_leave = asyncio.Event()

    async def leave(self, *, drain: bool, failed: bool) -> None:
        del failed
        self.is_asked.set()
        if drain:
            await self.may_leave.wait()
        self.has_left = True


async def test_a_close_that_is_cancelled_is_gone_through_with() -> None:
    client = eruca.AsyncClient("http://127.0.0.1:1")
    first, slow = client.context.adopt(Child()), client.context.adopt(SlowChild())
    closing = asyncio.create_task(client.close())
    await slow.is_asked.wait()

    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    slow.may_leave.set()

    await until(lambda: first.has_left and slow.has_left)
    await client.close()
    with pytest.raises(eruca.ClosedError):
        client.context.check_open()


async def test_a_close_that_takes_long_is_cut_short_by_one_that_does_not_drain() -> None:
    client = eruca.AsyncClient("http://127.0.0.1:1")
    first, slow = client.context.adopt(Child()), client.context.adopt(SlowChild())
    closing = asyncio.create_task(client.close())
    await slow.is_asked.wait()

    await client.close(drain=False)
    await closing  # it has not been cancelled itself

    assert (first.has_left, slow.has_left) == (True, True)
