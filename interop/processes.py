"""Child processes: started with a log file, awaited until ready, stopped or killed by their id.

Each is the first of a process group of its own, and is killed with all of that group.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

LOOPBACK: Final = "127.0.0.1"
LOOPBACK_V6: Final = "::1"
_PORTS: Final = (20_000, 32_000)  # below the range that Linux uses for outgoing connections
_POLL_SECONDS: Final = 0.1
_LOG_TAIL_SIZE: Final = 1500  # characters of a dead child's log in the error


class ChildError(Exception):
    """A child process did not start, or ended unexpectedly."""


class Child:
    """One child process. Leaving its context kills it and its process group in any case."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=log.parent,
                start_new_session=True,
            )
        self._is_killed = False

    @property
    def process_id(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.kill()

    def started(self, ready: Callable[[], bool], *, seconds_max: float = 60) -> Self:
        """Wait until *ready* returns true and return the child; kill it if it does not start.

        Without that, nobody would end a child that was never returned, and it would keep its port.

        Raises:
            ChildError: The process ended, or timed out.
        """
        try:
            self.wait_until(ready, seconds_max=seconds_max)
        except BaseException:
            self.kill()
            raise
        return self

    def wait_until(self, ready: Callable[[], bool], *, seconds_max: float = 60) -> None:
        """Wait until *ready* returns true.

        Raises:
            ChildError: The process ended, or timed out.
        """
        deadline = time.monotonic() + seconds_max
        while not ready():
            if self._process.poll() is not None:
                raise ChildError(f"{self.name} ended with {self._process.returncode}: {self.tail}")
            if time.monotonic() > deadline:
                raise ChildError(f"{self.name} is not ready after {seconds_max} s: {self.tail}")
            time.sleep(_POLL_SECONDS)

    def wait(self, *, seconds_max: float = 60) -> int:
        """Wait until the process ends by itself; return its exit code."""
        return self._process.wait(seconds_max)

    def stop(self, *, seconds_max: float = 90) -> int:
        """Stop the process with SIGTERM; return its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(seconds_max)
        except subprocess.TimeoutExpired as error:
            raise ChildError(f"{self.name} has not stopped after {seconds_max} s") from error

    def kill(self) -> None:
        """Kill the process and its group (SIGKILL), also the rest of a group whose first ended."""
        if not self._is_killed:
            self._is_killed = True  # later, the group's id may belong to somebody else
            with suppress(ProcessLookupError):  # all of them have ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended process continue (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    @property
    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL_SIZE:]


def wait_until(ready: Callable[[], bool], what: str, *, seconds_max: float = 90) -> None:
    """Wait until *ready* returns true, whichever processes live.

    Raises:
        ChildError: It timed out; *what* names what was expected.
    """
    deadline = time.monotonic() + seconds_max
    while not ready():
        if time.monotonic() > deadline:
            raise ChildError(f"expected {what} within {seconds_max} s")
        time.sleep(_POLL_SECONDS)


def free_ports(host: str, *offsets: int) -> int:
    """Return a port that is free on *host*, as are its neighbours at these *offsets*.

    It is outside the system's range for outgoing connections: one of these could take it, or a
    neighbour, before it is used.
    """
    choice = random.SystemRandom()
    for _ in range(1_000):
        port = choice.randrange(*_PORTS)
        if all(
            _is_free(address, port + offset)
            for offset in (0, *offsets)
            for address in {host, LOOPBACK}  # RocketMQ opens one neighbour on every address
        ):
            return port
    raise ChildError(f"no free ports found between {_PORTS[0]} and {_PORTS[1]}")


def has_address(host: str) -> bool:
    """Return whether this machine has a loopback address."""
    try:
        return _is_free(host, 0)
    except OSError:
        return False


def host_and_port(host: str, port: int) -> str:
    """Return an address in the form of URLs and of RocketMQ."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_free(host: str, port: int) -> bool:
    with socket.socket(_family(host)) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
