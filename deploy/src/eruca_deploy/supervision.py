"""One supervised child process: its output line by line, its end, and its restart.

Concurrency rule: everything happens on the event loop's thread. One task per child starts it,
relays its output until it ends, and, while ``restarts`` is set, restarts it after a pause.

The child gets its own session, so that a terminal's Ctrl-C reaches only the supervisor, which then
stops the children in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from eruca_deploy.backoff import deaths_in_a_row, exit_text, restart_delay_seconds

_LAUNCHER: Final = Path(__file__).with_name("child.py")
_READ_SIZE: Final = 65_536
_LINE_SIZE_MAX: Final = 16_384  # bytes; a longer line is split
_TAIL_LINES: Final = 200  # kept for the error of a failed start

Report = Callable[[str, str], None]
"""Called with a child's name and one line of text, without its line end."""


class Process(Protocol):
    """The used part of ``asyncio.subprocess.Process``."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """The process's output."""
        ...

    def send_signal(self, signal: int, /) -> None:
        """Send a signal; do nothing, or raise ``ProcessLookupError``, if the process has ended."""
        ...

    async def wait(self) -> int:
        """Wait for the end; return the exit code, or the negative number of a fatal signal."""
        ...


async def start_process(module: str, environment: Mapping[str, str]) -> Process:
    """Run *module* as a process in its own session; ``stdout`` delivers its output."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # otherwise the launcher's directory would be on the module path
        str(_LAUNCHER),
        str(os.getpid()),
        module,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


class Child:
    """A module run as a process and, while ``restarts`` is set, restarted when it dies."""

    def __init__(
        self,
        name: str,
        module: str,
        environment: Mapping[str, str],
        *,
        on_line: Report,
        on_event: Report,
    ) -> None:
        self.name = name
        self.restarts = False
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)  # the last lines of output
        self.exit_code: int | None = None  # of the last process that ended
        self.ending: str | None = None  # description of how the last process ended
        self._module = module
        self._environment = dict(environment)
        self._on_line = on_line
        self._on_event = on_event
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Return the process id, or None while no process runs."""
        return self._process.pid if self._process is not None else None

    @property
    def was_stopped(self) -> bool:
        """Return whether it was told to stop: then its end is not a failure."""
        return self._stopping.is_set()

    @property
    def is_over(self) -> bool:
        """Return whether it has ended and will not be restarted."""
        return self._task is None or self._task.done()

    def start(self) -> None:
        """Start the process without waiting for the outcome."""
        assert self.is_over
        self._stopping.clear()
        self.exit_code = self.ending = None
        self._task = asyncio.create_task(self._supervise(), name=f"child {self.name}")

    async def ended(self) -> int | None:
        """Wait until it has ended for good; return its last exit code."""
        if self._task is not None:
            await asyncio.wait([self._task])
        return self.exit_code

    async def stop(self, seconds: float) -> None:
        """Stop it for good: SIGTERM, then SIGKILL after *seconds*."""
        if self._task is None:
            return
        self.restarts = False
        self._stopping.set()
        self._signal(signal.SIGTERM)
        done, _ = await asyncio.wait([self._task], timeout=seconds)
        if not done:
            self._on_event(self.name, f"did not stop within {seconds:g} s; killing it")
            self._signal(signal.SIGKILL)
        await self._task

    async def kill(self) -> None:
        """Kill it at once, like a crash, without a restart."""
        self.restarts = False
        self._stopping.set()
        self._signal(signal.SIGKILL)
        if self._task is not None:
            await self._task

    def kill_now(self) -> None:
        """Send SIGKILL without waiting."""
        self._signal(signal.SIGKILL)

    async def _supervise(self) -> None:
        clock = asyncio.get_running_loop().time
        deaths = 0
        while True:
            started_at = clock()
            self.ending = await self._run()
            if self._stopping.is_set() or not self.restarts:
                return
            deaths = deaths_in_a_row(deaths, clock() - started_at)
            delay = restart_delay_seconds(deaths)
            self._on_event(self.name, f"{self.ending}; restarting it in {delay:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
                return
            self._on_event(self.name, "restarting")

    async def _run(self) -> str:
        """Start a process, wait for its end, and describe it."""
        try:
            process = await start_process(self._module, self._environment)
        except OSError as error:  # no process slot or descriptor is free: may be temporary
            self.exit_code = None
            return f"cannot be started ({error})"
        self._process = process
        if self._stopping.is_set():  # it was told to stop while it was starting
            self._signal(signal.SIGTERM)
        try:
            assert process.stdout is not None
            await self._relay(process.stdout)
            self.exit_code = await process.wait()
        finally:
            self._process = None
        return exit_text(self.exit_code)

    async def _relay(self, output: asyncio.StreamReader) -> None:
        rest = b""
        while data := await output.read(_READ_SIZE):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._print(line)
            while len(rest) > _LINE_SIZE_MAX:
                self._print(rest[:_LINE_SIZE_MAX])
                rest = rest[_LINE_SIZE_MAX:]
        if rest:
            self._print(rest)

    def _print(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        self.tail.append(text)
        self._on_line(self.name, text)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
