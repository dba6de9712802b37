"""Held requests: released by whatever comes first, and never more of them than the cap."""

from __future__ import annotations

import asyncio

import pytest

from eruca.contract.errors import OverloadedError
from eruca_chassis.admission.held import WAKE_COUNT_MAX, HeldPlace, HeldPlaces, Release, Waking
from eruca_chassis.asgi import Message

pytestmark = pytest.mark.anyio
LONG = 60.0  # seconds; no test waits that long


async def until_waiting() -> None:
    """Let every task run until it waits for something."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_news_releases_at_once() -> None:
    with HeldPlaces(maximum=1).place() as place:
        waiting = asyncio.create_task(place.wait(LONG))
        await until_waiting()

        place.wake()

        assert await waiting is Release.NEWS


async def test_news_that_came_before_the_wait_is_not_lost() -> None:
    with HeldPlaces(maximum=1).place() as place:
        place.wake()
        place.wake()

        assert await place.wait(LONG) is Release.NEWS
        assert await place.wait(0.001) is Release.EXPIRED


@pytest.mark.parametrize("seconds", [0, -1, 0.001])
async def test_time_releases(seconds: float) -> None:
    with HeldPlaces(maximum=1).place() as place:
        assert await place.wait(seconds) is Release.EXPIRED


async def test_a_client_that_leaves_releases_its_request() -> None:
    leaves = asyncio.Event()
    messages: list[Message] = [{"type": "http.request", "body": b""}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        if len(messages) == 1:
            await leaves.wait()
        return messages.pop(0)

    with HeldPlaces(maximum=1).place() as place:
        waiting = asyncio.create_task(place.wait(LONG, receive))
        await until_waiting()
        assert not waiting.done()

        leaves.set()

        assert await waiting is Release.CLIENT_GONE
        place.wake()
        assert await place.wait(LONG, receive) is Release.CLIENT_GONE


async def test_of_many_who_wait_some_are_woken_at_a_time_in_their_order_and_each_once() -> None:
    held, waking = HeldPlaces(maximum=1_000), Waking()
    places = [held.place() for _ in range(20 * WAKE_COUNT_MAX)]
    answered: list[object] = []

    async def answer(place: HeldPlace) -> None:
        assert await place.wait(LONG) is Release.NEWS
        answered.append(place)

    waiting = [asyncio.create_task(answer(place)) for place in places]
    await until_waiting()

    waking.wake(places)
    waking.wake(places[::-1])
    other = asyncio.create_task(asyncio.sleep(0))
    other.add_done_callback(answered.append)
    await asyncio.gather(*waiting)

    assert [place for place in answered if place is not other] == places
    assert answered.index(other) < len(places)
    assert await places[-1].wait(0.001) is Release.EXPIRED


async def test_stopping_releases_all_and_holds_no_more() -> None:
    held = HeldPlaces(maximum=2)
    with held.place() as one, held.place() as other:
        waiting = [asyncio.create_task(place.wait(LONG)) for place in (one, other)]
        await until_waiting()

        held.release_all()
        one.wake()

        assert await asyncio.gather(*waiting) == [Release.STOPPING, Release.STOPPING]
    with held.place() as late:
        assert await late.wait(LONG) is Release.STOPPING


async def test_places_are_capped_by_name_and_come_back() -> None:
    held = HeldPlaces(maximum=1, limit_name="held_pages_max")
    with held.place():
        assert len(held) == 1
        with pytest.raises(OverloadedError, match="held_pages_max, 1") as refused:
            held.place()
    assert refused.value.retry_after_seconds == 1
    assert len(held) == 0
    with held.place():
        pass


async def test_a_cancelled_wait_gives_its_place_back_and_leaves_no_task() -> None:
    held = HeldPlaces(maximum=1)
    tasks_before = asyncio.all_tasks()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def request() -> None:
        with held.place() as place:
            await place.wait(LONG, receive)

    task = asyncio.create_task(request())
    await until_waiting()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until_waiting()

    assert len(held) == 0
    assert asyncio.all_tasks() == tasks_before
