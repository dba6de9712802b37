"""The processes under test: the raw server, name servers and brokers with temporary stores."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.machine import LOAD_CORE, SERVER_CORE

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
# As the chassis sets it: otherwise each large buffer's pages are released and faulted in again.
MALLOC: Final = {"MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "268435456"}


class Server(NamedTuple):
    """A running process that listens on the loopback interface."""

    process_id: int
    port: int

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def raw_server() -> Iterator[Server]:
    """Run the raw limit of HTTP."""
    port = _free_port()
    with _running([sys.executable, "-m", "bench.raw_server", str(port)], MALLOC) as process_id:
        _wait_for(f"http://127.0.0.1:{port}/sink")
        yield Server(process_id, port)


@contextmanager
def name_server() -> Iterator[Server]:
    """Run a name server."""
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        port = _free_port()
        environment = {
            "ERUCA_NAMESRV_PORT": str(port),
            "ERUCA_NAMESRV_KV_FILE": str(Path(temporary) / "kv.json"),
            "ERUCA_NAMESRV_EXPECTED_BROKERS": "broker-a",
        }
        with _running([sys.executable, "-m", "eruca_namesrv"], environment) as process_id:
            _wait_for(f"http://127.0.0.1:{port}/readyz")
            yield Server(process_id, port)


@contextmanager
def broker(
    directory: Path | None = None, *, core: int = SERVER_CORE, **settings: str
) -> Iterator[Server]:
    """Run a broker on its own store; *settings* are ``ERUCA_BROKER_*`` without the prefix."""
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        port = _free_port()
        environment = {
            "ERUCA_BROKER_PORT": str(port),
            "ERUCA_BROKER_STORE_DIR": str(directory or Path(temporary) / "store"),
            "ERUCA_BROKER_NAMESRV_URLS": "",
            **{f"ERUCA_BROKER_{name.upper()}": value for name, value in settings.items()},
        }
        command = [sys.executable, "-m", "eruca_broker"]
        with _running(command, environment, core) as process_id:
            _wait_for(f"http://127.0.0.1:{port}/readyz")
            yield Server(process_id, port)


@contextmanager
def group_master(directory: Path, *, copies: int) -> Iterator[Server]:
    """Run the master of a broker group with so many copies, on the server's core."""
    port = _free_port()
    command = [sys.executable, "-m", "bench.group_process", "master", str(port), str(directory)]
    with _running([*command, str(copies)], MALLOC) as process_id:
        _wait_for(f"http://127.0.0.1:{port}/readyz")
        yield Server(process_id, port)


@contextmanager
def group_follower(master: Server, directory: Path, *, core: int = LOAD_CORE) -> Iterator[None]:
    """Run a replica that follows *master*, by default on the load's core."""
    command = [sys.executable, "-m", "bench.group_process", "follower", master.url, str(directory)]
    with _running(command, MALLOC, core):
        yield


@contextmanager
def _running(
    command: list[str], environment: dict[str, str], core: int = SERVER_CORE
) -> Iterator[int]:
    process = subprocess.Popen(
        command,
        env=os.environ | environment,
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        os.sched_setaffinity(process.pid, {core})
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # the process has no other way to report that it is ready


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
