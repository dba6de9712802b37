"""A client of one system as a process, and what it and its servers spend on a workload."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import psutil

from bench.servers import MALLOC

ROOT: Final = Path(__file__).parents[2]
_ANSWER_SECONDS_MAX: Final = 120.0
_LOG_TAIL_SIZE: Final = 1_500  # characters of a failed client's log in the error


class ClientError(Exception):
    """A client failed, or did not answer."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The messages of a workload, and the time they took."""

    messages: int = 0
    seconds: float = 0.0
    server_seconds: float = 0.0  # of CPU time, of all its servers
    client_seconds: float = 0.0

    def __add__(self, other: Measured) -> Measured:
        return Measured(
            self.messages + other.messages,
            self.seconds + other.seconds,
            self.server_seconds + other.server_seconds,
            self.client_seconds + other.client_seconds,
        )

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cost(self) -> float:
        """CPU seconds a million messages, of servers and client together."""
        return (self.server_seconds + self.client_seconds) / self.messages * 1e6


class ClientProcess:
    """A client that runs workloads when asked.

    Args:
        name: For messages.
        command: Starts it.
        servers: The processes that serve it; their children count as well.
        log: Gets what it writes to standard error.
    """

    def __init__(
        self, name: str, command: Sequence[str], servers: Iterable[int], log: Path
    ) -> None:
        self.name = name
        self._servers = tuple(servers)
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **MALLOC},
                cwd=ROOT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._kill()
        self._process.communicate()

    def opened(self) -> Self:
        """Return the client when it is connected."""
        self._read()
        return self

    def measure(self, row: str, seconds: float, **options: object) -> Measured:
        """Run a workload.

        Args:
            row: Its name.
            seconds: Its duration; one that reads a backlog may end earlier.
            options: What the workload needs besides.

        Raises:
            ClientError: The client failed, or did not answer.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the client has ended, as reading its answer says
            self._process.stdin.write(json.dumps({"row": row, "seconds": seconds, **options}))
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        self._read()
        servers, client = self._spent(), cpu_seconds(self._process.pid)
        answer = self._read()
        return Measured(
            answer["messages"],
            answer["seconds"],
            self._spent() - servers,
            cpu_seconds(self._process.pid) - client,
        )

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        timer = threading.Timer(_ANSWER_SECONDS_MAX, self._kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            tail = self._log.read_text(errors="replace")[-_LOG_TAIL_SIZE:]
            raise ClientError(f"the client of {self.name} ended: {tail}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClientError(f"the client of {self.name} failed: {answer['error']}")
        return answer

    def _spent(self) -> float:
        return sum(map(cpu_seconds, self._servers))

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)


def cpu_seconds(process_id: int) -> float:
    """Return the user and system time so far of a process and of its living descendants."""
    total = 0.0
    process = psutil.Process(process_id)
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a child that has just ended
            times = each.cpu_times()
            total += times.user + times.system
    return total
