"""A supervised child: its lines, its death and return, its end in order."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from eruca_deploy.supervision import Child

pytestmark = pytest.mark.anyio

OBEDIENT = """
import signal, sys, time
def stop(*_):
    print("stopping"); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("up")
while True: time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up")
while True: time.sleep(60)
"""


class Watched:
    """A child and everything it said."""

    def __init__(self, directory: Path, source: str) -> None:
        (directory / "tiny_service.py").write_text(source)
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.events: asyncio.Queue[str] = asyncio.Queue()
        environment = {**os.environ, "PYTHONPATH": str(directory), "PYTHONUNBUFFERED": "1"}
        self.child = Child(
            "tiny",
            "tiny_service",
            environment,
            on_line=lambda _, text: self.lines.put_nowait(text),
            on_event=lambda _, text: self.events.put_nowait(text),
        )

    async def line(self) -> str:
        return await asyncio.wait_for(self.lines.get(), 20)

    async def event(self) -> str:
        return await asyncio.wait_for(self.events.get(), 20)


async def test_a_child_stops_when_asked_and_its_last_words_are_heard(tmp_path: Path) -> None:
    tiny = Watched(tmp_path, OBEDIENT)
    tiny.child.start()
    assert await tiny.line() == "up"

    await tiny.child.stop(seconds=20)

    assert await tiny.line() == "stopping"
    assert (tiny.child.exit_code, tiny.child.pid, tiny.child.is_over) == (0, None, True)


async def test_a_child_that_does_not_stop_is_killed_and_that_is_said(tmp_path: Path) -> None:
    tiny = Watched(tmp_path, STUBBORN)
    tiny.child.start()
    await tiny.line()

    await tiny.child.stop(seconds=0.1)

    assert "killing it" in await tiny.event()
    assert tiny.child.exit_code == -signal.SIGKILL


async def test_a_child_that_dies_is_started_again_and_that_is_said(tmp_path: Path) -> None:
    tiny = Watched(tmp_path, OBEDIENT)
    tiny.child.start()
    tiny.child.restarts = True
    await tiny.line()
    first = tiny.child.pid
    assert first is not None

    os.kill(first, signal.SIGKILL)

    assert await tiny.event() == "was killed by SIGKILL; restarting it in 0.5 s"
    assert await tiny.event() == "restarting"
    assert await tiny.line() == "up"
    assert tiny.child.pid not in (None, first)
    await tiny.child.stop(seconds=20)


async def test_a_child_without_restarts_stays_dead(tmp_path: Path) -> None:
    tiny = Watched(tmp_path, "raise SystemExit(7)")
    tiny.child.start()

    assert await tiny.child.ended() == 7

    assert (tiny.child.is_over, tiny.child.was_stopped) == (True, False)
    assert tiny.events.empty()


async def test_a_killed_child_stays_dead_until_it_is_started(tmp_path: Path) -> None:
    tiny = Watched(tmp_path, OBEDIENT)
    tiny.child.start()
    tiny.child.restarts = True
    await tiny.line()

    await tiny.child.kill()

    assert tiny.child.is_over
    tiny.child.start()
    assert await tiny.line() == "up"
    await tiny.child.stop(seconds=20)


async def test_stopping_during_the_pause_before_a_restart_ends_the_pause(tmp_path: Path) -> None:
    tiny = Watched(tmp_path, "raise SystemExit(1)")
    tiny.child.start()
    tiny.child.restarts = True
    assert "restarting it" in await tiny.event()

    await tiny.child.stop(seconds=20)

    assert tiny.child.is_over


async def test_a_child_that_cannot_be_started_again_is_tried_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = Watched(tmp_path, OBEDIENT)
    tiny.child.start()
    tiny.child.restarts = True
    await tiny.line()
    assert tiny.child.pid is not None

    with monkeypatch.context() as while_it_is_installed_anew:
        while_it_is_installed_anew.setattr(sys, "executable", str(tmp_path / "python"))
        os.kill(tiny.child.pid, signal.SIGKILL)
        assert "was killed" in await tiny.event()
        assert await tiny.event() == "restarting"
        assert re.match(r"cannot be started \(.*python.*\); restarting it", await tiny.event())

    assert await tiny.line() == "up"
    await tiny.child.stop(seconds=20)


async def test_a_child_that_cannot_be_started_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = Watched(tmp_path, OBEDIENT)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    tiny.child.start()

    assert await tiny.child.ended() is None
    await tiny.child.stop(seconds=20)

    assert tiny.child.is_over
    assert tiny.child.ending is not None


async def test_long_lines_are_cut_and_bytes_that_are_no_text_are_survived(tmp_path: Path) -> None:
    source = "import sys; sys.stdout.buffer.write(b'x' * 40_000 + b'\\n\\xff\\r\\nlast')"
    tiny = Watched(tmp_path, source)
    tiny.child.start()
    long = [await tiny.line()]
    while sum(map(len, long)) < 40_000:
        long.append(await tiny.line())

    assert max(map(len, long)) <= 65_536
    assert [await tiny.line(), await tiny.line()] == ["\ufffd", "last"]
    assert await tiny.child.ended() == 0
    assert list(tiny.child.tail)[-1] == "last"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
async def test_a_child_does_not_outlive_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "tiny_service.py").write_text(OBEDIENT)
    supervisor = """
import asyncio, os
from eruca_deploy.supervision import Child
async def main():
    up = asyncio.Event()
    child = Child("tiny", "tiny_service", os.environ,
                  on_line=lambda *_: up.set(), on_event=lambda *_: None)
    child.start()
    await up.wait()
    print(child.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        supervisor,
        stdout=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "PYTHONUNBUFFERED": "1",
        },
    )
    assert process.stdout is not None
    child = psutil.Process(int(await asyncio.wait_for(process.stdout.readline(), 20)))

    process.kill()
    await process.wait()

    await asyncio.to_thread(psutil.wait_procs, [child], timeout=20)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
