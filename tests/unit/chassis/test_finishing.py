"""Waiting for work that goes on: a cancelled caller leaves no earlier than it has ended."""

from __future__ import annotations

import asyncio
import threading

import pytest

from eruca_chassis.finishing import finished, finished_in_thread
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def test_the_result_and_the_error_are_handed_on() -> None:
    loop = asyncio.get_running_loop()
    good, bad = loop.create_future(), loop.create_future()
    good.set_result("done")
    bad.set_exception(OSError("no"))

    assert await finished(good) == "done"
    with pytest.raises(OSError, match="no"):
        await finished(bad)


@pytest.mark.parametrize("error", [None, OSError("no")], ids=["succeeds", "fails"])
async def test_a_cancelled_waiter_leaves_once_the_work_has_ended(error: OSError | None) -> None:
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiter = asyncio.create_task(finished(work))
    await asyncio.wait([waiter], timeout=0)

    waiter.cancel()
    _, waiting = await asyncio.wait([waiter], timeout=0.01)
    assert (waiting, work.cancelled()) == ({waiter}, False)

    if error is None:
        work.set_result(None)
    else:
        work.set_exception(error)
    with pytest.raises(asyncio.CancelledError):
        await waiter


async def test_a_cancelled_caller_waits_for_its_thread() -> None:
    begun, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(PATIENCE_SECONDS)

    waiter = asyncio.create_task(finished_in_thread(work))
    await begun.wait()

    waiter.cancel()
    _, waiting = await asyncio.wait([waiter], timeout=0.01)
    may_end.set()

    assert waiting
    with pytest.raises(asyncio.CancelledError):
        await waiter
