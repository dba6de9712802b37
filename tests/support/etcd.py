"""An etcd of one member for tests, as a process that can be killed and started again."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eruca_deploy.ports import free_ports
from support.patience import PATIENCE_SECONDS


class EtcdServer:
    """One member; ``stop`` kills it, and ``start`` starts it again with the same data."""

    def __init__(self, program: str, directory: Path) -> None:
        client_port, peer_port = free_ports("127.0.0.1", 2)
        self.url = f"http://127.0.0.1:{client_port}"
        self.address = ("127.0.0.1", client_port)
        peer_url = f"http://127.0.0.1:{peer_port}"
        self._command = [
            program,
            *("--name", "one", "--data-dir", str(directory / "data")),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
            *("--initial-cluster", f"one={peer_url}"),
        ]
        self._log = directory / "etcd.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; return once it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is_healthy():
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < deadline, self._log.read_text()[-2000:]
            time.sleep(0.02)  # another process's start has no event to wait for

    def authenticate_clients(self, user: str, password: str) -> None:
        """Let nobody in but *user*, who may do everything under the name of root."""
        assert user == "root", "etcd has a root first"
        self._ask("/v3/auth/user/add", {"name": user, "password": password})
        self._ask("/v3/auth/role/add", {"name": "root"})
        self._ask("/v3/auth/user/grant", {"user": user, "role": "root"})
        self._ask("/v3/auth/enable", {})

    def _ask(self, target: str, request: dict[str, str]) -> None:
        body = json.dumps(request).encode()
        with urllib.request.urlopen(f"{self.url}{target}", body, timeout=PATIENCE_SECONDS):
            pass

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def etcd_server() -> Iterator[EtcdServer]:
    """Run an etcd whose data goes with it; skip the test if the program is not installed."""
    program = shutil.which("etcd")
    if program is None:
        pytest.skip(
            "ETCD IS NOT INSTALLED, so its store is not tested: apt-get install etcd-server"
        )
    with tempfile.TemporaryDirectory(prefix="eruca-etcd-") as directory:
        server = EtcdServer(program, Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()
