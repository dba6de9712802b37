"""One supervised child process: its output line by line, its death, its return.

Concurrency rule: everything happens on the event loop's thread. One task per child starts it,
relays what it prints until it ends, and, while ``restarts`` is set, starts it again after a pause.

The child gets a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone, which
then stops the children in its order.
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
_LINE_SIZE_MAX: Final = 16_384  # bytes; a longer line is cut into several
_TAIL_LINES: Final = 200  # kept for the message that says why it did not start

Report = Callable[[str, str], None]
"""Called with a child's name and one line of text, without its line end."""


class Process(Protocol):
    """What is needed of ``asyncio.subprocess.Process``."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """What it prints."""
        ...

    def send_signal(self, signal: int, /) -> None:
        """Send it a signal; nothing, or ``ProcessLookupError``, if it has ended."""
        ...

    async def wait(self) -> int:
        """Return its exit code once it has ended; of a signal that killed it, the negative."""
        ...


async def start_process(module: str, environment: Mapping[str, str]) -> Process:
    """Run *module* as a process in a session of its own; what it prints comes from ``stdout``."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # or the launcher's directory would be searched for modules
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
    """A module run as a process and, once ``restarts`` is set, kept running."""

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
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)  # the last lines it printed
        self.exit_code: int | None = None  # of the last process that ended
        self.ending: str | None = None  # what became of the last one, in words
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
        """Tell whether it was asked to end: then its end is no failure."""
        return self._stopping.is_set()

    @property
    def is_over(self) -> bool:
        """Tell whether it ended and will not come back by itself."""
        return self._task is None or self._task.done()

    def start(self) -> None:
        """Start the process; what becomes of it is seen later."""
        assert self.is_over
        self._stopping.clear()
        self.exit_code = self.ending = None
        self._task = asyncio.create_task(self._supervise(), name=f"child {self.name}")

    async def ended(self) -> int | None:
        """Wait until it is over for good; return the code of its last process."""
        if self._task is not None:
            await asyncio.wait([self._task])
        return self.exit_code

    async def stop(self, seconds: float) -> None:
        """End it for good: SIGTERM, then SIGKILL for what is left after *seconds*."""
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
        """End it at once, as a crash would, and leave it dead."""
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
            self._on_event(self.name, f"{self.ending}; starting it again in {delay:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
                return
            self._on_event(self.name, "starting again")

    async def _run(self) -> str:
        """Start a process, wait for its end, and tell what became of it."""
        try:
            process = await start_process(self._module, self._environment)
        except OSError as error:  # the system has no process, or no file, for it: that may pass
            self.exit_code = None
            return f"cannot be started ({error})"
        self._process = process
        if self._stopping.is_set():  # it was asked to stop while it was being started
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
