"""The loop of a thread: what was broken off is undone before the thread ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from eruca_testing.loop_thread import LoopThread
from support.interrupts import interruptible
from support.patience import PATIENCE_SECONDS

NEVER_LEFT = """
from contextlib import asynccontextmanager
from eruca_testing.loop_thread import LoopThread

@asynccontextmanager
async def block():
    yield 17

thread = LoopThread("tests")
thread.__enter__()
entered = thread.within(block())
print(entered.__enter__())
"""


def test_what_an_interrupt_breaks_off_is_undone_to_the_end() -> None:
    steps: list[str] = []
    thread = LoopThread("tests")

    async def work() -> None:
        interrupt.send()
        try:
            await asyncio.Event().wait()
        finally:
            await thread._end.wait()
            for _ in range(100):  # turns of the loop
                await asyncio.sleep(0)
            steps.append("undone")

    with interruptible() as interrupt, pytest.raises(KeyboardInterrupt), thread:
        thread.call(work())

    assert steps == ["undone"]


def test_what_still_runs_at_the_end_is_cancelled() -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("undone")

    with LoopThread("tests") as thread:

        async def begin() -> asyncio.Task[None]:
            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            return task

        thread.call(begin())

    assert steps == ["undone"]


def test_a_block_that_is_never_left_keeps_no_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", NEVER_LEFT],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "17\n")
