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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.load import tls_context
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
    port = free_port()
    with running([sys.executable, "-m", "bench.raw_server", str(port)], MALLOC) as process_id:
        wait_for(f"http://127.0.0.1:{port}/sink")
        yield Server(process_id, port)


@contextmanager
def name_server(**settings: str) -> Iterator[Server]:
    """Run a name server; *settings* are ``ERUCA_NAMESRV_*`` without the prefix."""
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        port = free_port()
        environment = {
            "ERUCA_NAMESRV_PORT": str(port),
            "ERUCA_NAMESRV_KV_FILE": str(Path(temporary) / "kv.json"),
            "ERUCA_NAMESRV_EXPECTED_BROKERS": "broker-a",
            **{f"ERUCA_NAMESRV_{name.upper()}": value for name, value in settings.items()},
        }
        with running([sys.executable, "-m", "eruca_namesrv"], environment) as process_id:
            wait_for(f"http://127.0.0.1:{port}/readyz")
            yield Server(process_id, port)


@contextmanager
def broker(
    directory: Path | None = None,
    *,
    core: int = SERVER_CORE,
    environment: Mapping[str, str] | None = None,
    ca_file: Path | None = None,
    ready_url: str | None = None,
    **settings: str,
) -> Iterator[Server]:
    """Run a broker on its own store; *settings* are ``ERUCA_BROKER_*`` without the prefix.

    Args:
        directory: Its store; None: one of its own.
        core: On which it runs.
        environment: Further variables.
        ca_file: The authority of its TLS; None: it speaks plain HTTP.
        ready_url: Says whether it is ready; None: its port.
        settings: Its settings.
    """
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        port = free_port()
        variables = {
            **(environment or {}),
            "ERUCA_BROKER_PORT": str(port),
            "ERUCA_BROKER_STORE_DIR": str(directory or Path(temporary) / "store"),
            "ERUCA_BROKER_NAMESRV_URLS": "",
            **{f"ERUCA_BROKER_{name.upper()}": value for name, value in settings.items()},
        }
        command = [sys.executable, "-m", "eruca_broker"]
        scheme = "http" if ca_file is None else "https"
        with running(command, variables, core) as process_id:
            wait_for(ready_url or f"{scheme}://127.0.0.1:{port}/readyz", ca_file)
            yield Server(process_id, port)


@contextmanager
def group_master(directory: Path, *, copies: int) -> Iterator[Server]:
    """Run the master of a broker group with so many copies, on the server's core."""
    port = free_port()
    command = [sys.executable, "-m", "bench.group_process", "master", str(port), str(directory)]
    with running([*command, str(copies)], MALLOC) as process_id:
        wait_for(f"http://127.0.0.1:{port}/readyz")
        yield Server(process_id, port)


@contextmanager
def group_follower(master: Server, directory: Path, *, core: int = LOAD_CORE) -> Iterator[None]:
    """Run a replica that follows *master*, by default on the load's core."""
    command = [sys.executable, "-m", "bench.group_process", "follower", master.url, str(directory)]
    with running(command, MALLOC, core):
        yield


class Replicas:
    """Two replicas of one broker, with a controller over a file and a name server, on any core.

    Args:
        directory: For their files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = {replica_id: free_port() for replica_id in (1, 2)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._others: list[subprocess.Popen[bytes]] = []
        self.name_server = f"http://127.0.0.1:{free_port()}"
        self._controller = f"http://127.0.0.1:{free_port()}"

    def open(self) -> None:
        """Start all of them."""
        self._others += [
            _service(
                "eruca_controller",
                ERUCA_CONTROLLER_PORT=self._controller.rpartition(":")[2],
                ERUCA_CONTROLLER_STORE="file",
                ERUCA_CONTROLLER_FILE=str(self._directory / "groups.json"),
            ),
            _service(
                "eruca_namesrv",
                ERUCA_NAMESRV_PORT=self.name_server.rpartition(":")[2],
                ERUCA_NAMESRV_SETTLE_SECONDS="0",
                ERUCA_NAMESRV_KV_FILE=str(self._directory / "kv.json"),
            ),
        ]
        for url in (self._controller, self.name_server):
            wait_for(f"{url}/readyz")
        for replica_id in self._ports:
            self.start(replica_id)

    def close(self) -> None:
        """Kill all of them."""
        for process in (*self._processes.values(), *self._others):
            process.kill()
            process.wait()

    def start(self, replica_id: int) -> None:
        """Start a replica that does not run; return once it answers."""
        self._processes[replica_id] = _service(
            "eruca_broker",
            ERUCA_BROKER_NAME="broker-a",
            ERUCA_BROKER_PORT=str(self._ports[replica_id]),
            ERUCA_BROKER_NAMESRV_URLS=self.name_server,
            ERUCA_BROKER_CONTROLLER_URLS=self._controller,
            ERUCA_BROKER_REPLICA_ID=str(replica_id),
            ERUCA_BROKER_STORE_DIR=str(self._directory / f"replica-{replica_id}"),
        )
        wait_for(f"{self.url(replica_id)}/healthz")

    def kill(self, replica_id: int) -> None:
        """Kill a replica, as by ``kill -9``."""
        process = self._processes.pop(replica_id)
        process.kill()
        process.wait()

    def stop(self, replica_id: int) -> None:
        """Stop a replica in an orderly way."""
        process = self._processes.pop(replica_id)
        process.terminate()
        process.wait(_STOP_SECONDS)

    def process_id(self, replica_id: int) -> int:
        """Return the process of a replica that runs."""
        return self._processes[replica_id].pid

    def url(self, replica_id: int) -> str:
        """Return a replica's URL."""
        return f"http://127.0.0.1:{self._ports[replica_id]}"


@contextmanager
def replicas() -> Iterator[Replicas]:
    """Run two replicas of one broker."""
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        group = Replicas(Path(temporary))
        try:
            group.open()
            yield group
        finally:
            group.close()


def _service(module: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module],
        env={**os.environ, **environment},
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def running(
    command: list[str], environment: Mapping[str, str], core: int = SERVER_CORE
) -> Iterator[int]:
    """Run a process on a core; yield its id."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
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


def wait_for(url: str, ca_file: Path | None = None) -> None:
    """Wait until *url* answers with success."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1, context=tls_context(ca_file)):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # the process has no other way to report that it is ready


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
