"""A service as a process of its own, on a port of the loopback that was free a moment ago."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Protocol, Self

from support.printed_secrets import check_rest_says_none, check_says_none

START_SECONDS = 60  # a start takes one; a busy machine may need more


class Process(Protocol):
    """The part of ``subprocess.Popen`` that is used here."""

    @property
    def pid(self) -> int: ...
    @property
    def stderr(self) -> IO[str] | None: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class ServiceProcess:
    """A service that runs, its log line by line; killed, if it must be, on leaving."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.url = ""
        self.log: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_until_listening(self) -> None:
        """Read the log up to the line that says where the service listens."""
        for event in self._events():
            if event["event"] == "listening":
                self.url = event["url"]
                return
        raise AssertionError(f"it ended before it listened: {self.log}")

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self._process.send_signal(by)
        for _ in self._events():
            pass
        return self._process.wait(START_SECONDS)

    def errors(self) -> list[dict[str, Any]]:
        """Return the errors it has logged by now; does not wait for more."""
        assert self._process.stderr is not None
        pipe = self._process.stderr.fileno()
        os.set_blocking(pipe, False)
        try:
            for _ in self._events():
                pass
        finally:
            os.set_blocking(pipe, True)
        return [event for event in self.log if event.get("level") == "error"]

    def _events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stderr is not None
        errors: IO[str] = self._process.stderr
        for begun in errors:
            line = begun if begun.endswith("\n") else begun + _rest_of_line(errors)
            check_says_none(line, "the log")
            event = json.loads(line) if line.startswith("{") else {"event": line}
            self.log.append(event)
            yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(START_SECONDS)
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            check_rest_says_none(errors, "the log")


def _rest_of_line(errors: IO[str]) -> str:
    """Wait for the rest of a line that is just being written."""
    was_blocking = os.get_blocking(errors.fileno())
    os.set_blocking(errors.fileno(), True)
    rest = errors.readline()
    os.set_blocking(errors.fileno(), was_blocking)
    return rest


def started(
    module: str, settings: Mapping[str, str], *, open_files_max: int | None = None
) -> ServiceProcess:
    """Start ``python -m <module>`` with settings of its own, and a limit of open files."""
    command = [sys.executable, "-m", module]
    if open_files_max is not None:
        command = ["sh", "-c", f'ulimit -n {open_files_max} && exec "$@"', "sh", *command]
    return ServiceProcess(
        subprocess.Popen(
            command,
            env={**clean_environment(), **settings},
            stderr=subprocess.PIPE,
            text=True,
        )
    )


@contextmanager
def running(
    module: str, settings: Mapping[str, str], *, open_files_max: int | None = None
) -> Iterator[ServiceProcess]:
    """Yield a process that listens."""
    with started(module, settings, open_files_max=open_files_max) as process:
        process.wait_until_listening()
        yield process


def run_to_the_end(module: str, settings: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Run a process that is expected to end by itself; return its exit code and stderr."""
    ended = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**clean_environment(), **settings},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    return ended.returncode, ended.stderr


def clean_environment() -> dict[str, str]:
    """Return this process's environment without any setting of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ERUCA_")}
