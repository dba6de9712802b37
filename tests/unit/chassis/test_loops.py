"""Background loops: a failing step ends nothing, and stop leaves nothing running."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
from structlog.testing import capture_logs

from eruca_chassis import loops
from eruca_chassis.loops import BackgroundLoop

pytestmark = pytest.mark.anyio
LONG = 3_600.0  # seconds; no test waits that long


class Steps:
    """A step that counts, may fail, and may be waited for."""

    def __init__(self, *, failures: int = 0, errnos: tuple[int, ...] = ()) -> None:
        self.count = 0
        self._failures = failures
        self._errnos = errnos  # of its first calls; 0: none
        self._stepped = asyncio.Event()

    async def __call__(self) -> None:
        self.count += 1
        self._stepped.set()
        if self.count <= self._failures:
            raise RuntimeError(f"step {self.count}")
        if self.count <= len(self._errnos) and (number := self._errnos[self.count - 1]):
            raise OSError(number, os.strerror(number))

    async def reach(self, count: int) -> None:
        while self.count < count:
            self._stepped.clear()
            await self._stepped.wait()


async def test_the_first_step_runs_at_once_and_a_wake_brings_the_next() -> None:
    steps = Steps()
    loop = BackgroundLoop("x", steps, period_seconds=LONG)
    loop.start()
    await steps.reach(1)

    loop.wake()
    await steps.reach(2)

    await loop.stop()
    assert steps.count == 2


async def test_the_period_brings_the_next_step_by_itself() -> None:
    steps = Steps()
    loop = BackgroundLoop("x", steps, period_seconds=0.001)
    loop.start()

    await steps.reach(3)

    await loop.stop()


async def test_a_step_that_never_waits_leaves_others_their_turn() -> None:
    steps = Steps()
    loop = BackgroundLoop("x", steps, period_seconds=0)
    loop.start()

    await asyncio.sleep(0)
    await loop.stop()

    assert steps.count >= 1


async def test_a_failing_step_is_logged_counted_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops, "BACK_OFF_SECONDS", 0.001)
    steps = Steps(failures=3)
    loop = BackgroundLoop("x", steps, period_seconds=LONG)
    with capture_logs() as logs:
        loop.start()
        await steps.reach(4)
        await loop.stop()

    assert loop.failure_count == 3
    failed = [entry for entry in logs if entry["event"] == "loop step failed"]
    assert [(e["loop"], e["failures"]) for e in failed] == [("x", 1), ("x", 2), ("x", 3)]
    assert [e["pause"] for e in failed] == [0.001, 0.002, 0.004]


async def test_an_error_of_the_system_is_logged_in_one_line_once_for_as_long_as_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops, "BACK_OFF_SECONDS", 0.001)
    full, failing = errno.ENOSPC, errno.EIO
    steps = Steps(errnos=(full, full, full, failing, failing, 0, full))
    loop = BackgroundLoop("x", steps, period_seconds=0.001)
    with capture_logs() as logs:
        loop.start()
        await steps.reach(9)
        await loop.stop()

    assert loop.failure_count == 6
    assert [(entry["event"], entry.get("reason")) for entry in logs] == [
        ("loop step failed", str(OSError(full, os.strerror(full)))),
        ("loop step failed", str(OSError(failing, os.strerror(failing)))),
        ("loop step succeeds again", None),
        ("loop step failed", str(OSError(full, os.strerror(full)))),
        ("loop step succeeds again", None),
    ]
    assert not any(entry.get("exc_info") for entry in logs)


async def test_stop_wakes_a_pausing_loop_and_waits_for_a_running_step() -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()
    ended = False

    async def step() -> None:
        nonlocal ended
        entered.set()
        await may_end.wait()
        ended = True

    loop = BackgroundLoop("x", step, period_seconds=LONG)
    loop.start()
    await entered.wait()
    stopping = asyncio.create_task(loop.stop())
    may_end.set()
    await stopping

    assert ended


async def test_a_step_that_does_not_end_is_cancelled_and_said_so() -> None:
    entered = asyncio.Event()
    tasks_before = asyncio.all_tasks()

    async def step() -> None:
        entered.set()
        await asyncio.Event().wait()

    loop = BackgroundLoop("stuck", step, period_seconds=LONG)
    loop.start()
    await entered.wait()
    with capture_logs() as logs:
        await loop.stop(within_seconds=0.001)

    assert [entry["loop"] for entry in logs] == ["stuck"]
    assert asyncio.all_tasks() == tasks_before


async def test_a_loop_that_was_never_started_can_be_stopped() -> None:
    await BackgroundLoop("x", Steps(), period_seconds=LONG).stop()


async def test_a_step_whose_own_work_was_cancelled_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops, "BACK_OFF_SECONDS", 0.001)
    stepped = asyncio.Event()

    async def step() -> None:
        if loop.failure_count:
            stepped.set()
            return
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.cancel()
        await lost

    loop = BackgroundLoop("x", step, period_seconds=LONG)
    with capture_logs():
        loop.start()
        async with asyncio.timeout(60):
            await stepped.wait()

    assert loop.failure_count == 1
    await loop.stop()


async def test_a_step_says_how_long_the_pause_is() -> None:
    counted = 0
    reached = asyncio.Event()

    async def step() -> float:
        nonlocal counted
        counted += 1
        if counted == 3:
            reached.set()
        return 0.001

    loop = BackgroundLoop("x", step, period_seconds=LONG)
    loop.start()
    await reached.wait()
    await loop.stop()


async def test_a_step_that_says_nothing_pauses_for_the_period() -> None:
    answers = iter([0.0, None, LONG])
    done = asyncio.Event()

    async def step() -> float | None:
        answer = next(answers)
        if answer == LONG:
            done.set()
        return answer

    loop = BackgroundLoop("x", step, period_seconds=0.001)
    loop.start()

    await done.wait()

    await loop.stop()


async def test_many_wakes_within_a_rest_bring_one_step_after_it() -> None:
    steps, others = Steps(), Steps()
    loop = BackgroundLoop("x", steps, period_seconds=LONG, rest_seconds=0.05)
    other = BackgroundLoop("other", others, period_seconds=0.0001)
    loop.start()
    await steps.reach(1)
    other.start()

    while steps.count < 2:
        loop.wake()
        await asyncio.sleep(0)

    assert others.count >= 2, "the second step did not wait for the rest"
    for running in (loop, other):
        await running.stop()


async def test_a_wake_during_a_step_ends_the_pause_after_it() -> None:
    counted = 0
    reached = asyncio.Event()

    async def step() -> float:
        nonlocal counted
        counted += 1
        if counted == 1:
            loop.wake()
        else:
            reached.set()
        return LONG

    loop = BackgroundLoop("x", step, period_seconds=LONG)
    loop.start()
    await reached.wait()
    await loop.stop()


async def test_a_stop_ends_a_rest_at_once() -> None:
    steps = Steps()
    loop = BackgroundLoop("x", steps, period_seconds=LONG, rest_seconds=LONG)
    loop.start()
    await steps.reach(1)
    loop.wake()

    await loop.stop(within_seconds=LONG)

    assert steps.count == 1
