"""The send buffer: the first caller is served first, and room is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from eruca.aio.sending.send_buffer import SendBuffer
from eruca.contract.errors import ClosedError
from support.waiting import until

pytestmark = pytest.mark.anyio

Taking = Callable[[str, int], "asyncio.Task[None]"]


@pytest.fixture
def buffer() -> SendBuffer:
    return SendBuffer(100)


@pytest.fixture
def served() -> list[str]:
    return []


@pytest.fixture
def taking(buffer: SendBuffer, served: list[str]) -> Taking:
    async def take(name: str, size: int) -> None:
        if not buffer.take_now(size):
            await buffer.take(size)
        served.append(name)

    return lambda name, size: asyncio.create_task(take(name, size))


async def test_nobody_overtakes_those_who_wait(
    buffer: SendBuffer, taking: Taking, served: list[str]
) -> None:
    await buffer.take(60)
    tasks = [taking("large", 50), taking("small", 40)]
    await asyncio.sleep(0)
    assert served == []

    buffer.give_back(60)
    tasks.append(taking("newcomer", 1))
    await asyncio.gather(*tasks)

    assert served == ["large", "small", "newcomer"]


async def test_a_newcomer_waits_for_those_who_were_let_in_in_the_same_turn(
    buffer: SendBuffer, taking: Taking, served: list[str]
) -> None:
    await buffer.take(100)
    waiting = taking("waiting", 50)
    await asyncio.sleep(0)

    buffer.give_back(100)

    assert not buffer.take_now(10)
    await waiting
    assert buffer.take_now(10)


async def test_room_that_comes_back_as_its_waiter_gives_up_is_not_lost(
    buffer: SendBuffer, taking: Taking, served: list[str]
) -> None:
    for gives_up_first in (True, False):
        await buffer.take(100)
        impatient, patient = taking("impatient", 50), taking("patient", 100)
        await asyncio.sleep(0)

        if gives_up_first:
            impatient.cancel()
        buffer.give_back(100)
        impatient.cancel()
        await asyncio.wait([impatient, patient])

        assert impatient.cancelled()
        buffer.give_back(100)
        assert buffer.size == 0
    assert served == ["patient", "patient"]


async def test_when_a_large_one_gives_up_a_smaller_one_need_not_wait_for_room_to_come_back(
    buffer: SendBuffer, taking: Taking, served: list[str]
) -> None:
    await buffer.take(60)
    large, small = taking("large", 50), taking("small", 40)
    await asyncio.sleep(0)

    large.cancel()

    await until(lambda: served == ["small"])
    assert small.done()


async def test_what_is_larger_than_all_the_room_is_let_in_alone(
    buffer: SendBuffer, taking: Taking, served: list[str]
) -> None:
    await buffer.take(1)
    tasks = [taking("huge", 1_000), taking("small", 1)]
    await asyncio.sleep(0)

    buffer.give_back(1)
    await until(lambda: served == ["huge"])
    buffer.give_back(1_000)
    await asyncio.gather(*tasks)

    assert buffer.size == 1


async def test_one_that_was_let_in_as_the_producer_closed_leaves_no_room_taken(
    buffer: SendBuffer, taking: Taking
) -> None:
    await buffer.take(100)
    waiting = taking("waiting", 50)
    await asyncio.sleep(0)

    buffer.give_back(100)
    buffer.close()

    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        await buffer.take(1)
    assert buffer.size == 0
