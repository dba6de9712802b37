"""An Eruca cluster whose broker has replicas: a name server, a controller, and one process each.

The replicas share a name and differ in their addresses. A replica that was killed or stopped starts
again on its store, at its address.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Self

import httpx

from interop.eruca_client import ErucaClient
from interop.eruca_cluster import broker_settings, is_ready, start_service
from interop.processes import Child, ChildError, free_ports, host_and_port, wait_until
from interop.rocketmq import BROKER

_STATUS_SECONDS: Final = 2.0  # a suspended replica does not answer
_COMMAND_SECONDS_MAX: Final = 60


class ErucaGroup:
    """A broker group on *stores*, by replica id, with *ports*; its logs go to *home*."""

    def __init__(
        self, stores: Mapping[int, Path], home: Path, *, host: str, ports: Mapping[int, int]
    ) -> None:
        self._stores = stores
        self._home = home
        self._host = host
        self._ports = ports
        self._children = ExitStack()
        self._replicas: dict[int, Child] = {}

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            name_server_port, controller_port = free_ports(self._host), free_ports(self._host)
            self.name_server = f"http://{host_and_port(self._host, name_server_port)}"
            self.controller = f"http://{host_and_port(self._host, controller_port)}"
            common = {"HOST": self._host}
            settings = {**common, "PORT": name_server_port, "KV_FILE": self._home / "kv.json"}
            settings["EXPECTED_BROKERS"] = BROKER
            starting.enter_context(start_service(self._home, "namesrv", self.name_server, settings))
            settings = {**common, "PORT": controller_port, "STORE": "file"}
            settings |= {"FILE": self._home / "groups.json", "NAMESRV_URLS": self.name_server}
            starting.enter_context(
                start_service(self._home, "controller", self.controller, settings)
            )
            starting.callback(self._kill_all)
            for count, replica_id in enumerate(self._stores, start=1):
                self.start(replica_id)
                self.wait_in_sync(count)
            self._children = starting.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._children.close()

    @contextmanager
    def client(self) -> Iterator[ErucaClient]:
        """Yield a client; its requests in JSON go to the current master."""
        master = self.url(self.master())
        with ErucaClient(self.name_server, master, nullcontext) as client:
            yield client

    def url(self, replica_id: int) -> str:
        """Return a replica's URL."""
        return f"http://{host_and_port(self._host, self._ports[replica_id])}"

    def log_of(self, replica_id: int) -> str:
        """Return a replica's log, of all its processes."""
        return self._replicas[replica_id].log.read_text(errors="replace")

    def start(self, replica_id: int) -> None:
        """Start a replica on its store; return once it answers."""
        settings = {
            **broker_settings(self._stores[replica_id], self._host, self._ports[replica_id]),
            "NAMESRV_URLS": self.name_server,
            "CONTROLLER_URLS": self.controller,
            "REPLICA_ID": replica_id,
        }
        url = self.url(replica_id)
        self._replicas[replica_id] = start_service(
            *(self._home, "broker", url, settings), log=f"broker-{replica_id}", ready=_answers
        )

    def kill(self, replica_id: int) -> None:
        """Kill a replica (SIGKILL)."""
        self._replicas[replica_id].kill()

    def stop(self, replica_id: int) -> int:
        """Stop a replica (SIGTERM); return its exit code."""
        return self._replicas[replica_id].stop()

    def pause(self, replica_id: int) -> None:
        """Suspend a replica (SIGSTOP)."""
        self._replicas[replica_id].pause()

    def resume(self, replica_id: int) -> None:
        """Let a suspended replica continue."""
        self._replicas[replica_id].resume()

    def switch(self, to: int) -> None:
        """Hand the mastership over by ``eruca broker switch``."""
        command = ["broker", "switch", BROKER, "--to", str(to)]
        servers = ["--controller", self.controller, "--namesrv", self.name_server]
        done = subprocess.run(
            [sys.executable, "-m", "eruca", *command, *servers],
            check=False,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS_MAX,
        )
        if done.returncode:
            raise ChildError(f"eruca broker switch failed: {done.stderr}")

    def status(self, replica_id: int) -> dict[str, Any] | None:
        """Return a replica's part in the group; None if it does not answer."""
        try:
            answer = httpx.get(
                f"{self.url(replica_id)}/v1/replication/status", timeout=_STATUS_SECONDS
            )
        except httpx.TransportError:
            return None
        status: dict[str, Any] | None = answer.json() if answer.is_success else None
        return status

    def end_of(self, replica_id: int) -> int:
        """Return the log offset after a replica's last record; -1 if it does not answer."""
        status = self.status(replica_id)
        return -1 if status is None else int(status["end"])

    def find_master(self) -> int | None:
        """Return the id of the master; None if no replica is one now."""
        for replica_id in self._replicas:
            status = self.status(replica_id)
            if status is not None and status["role"] == "master":
                return replica_id
        return None

    def master(self, *, other_than: int | None = None) -> int:
        """Wait for a master, and return its id."""
        found: list[int] = []

        def is_found() -> bool:
            master = self.find_master()
            found[:] = [] if master in (None, other_than) else [master]
            return bool(found)

        wait_until(is_found, "a master")
        return found[0]

    def wait_in_sync(self, count: int) -> None:
        """Wait until *count* replicas are in sync, the master included."""
        wait_until(lambda: self._in_sync_count() == count, f"{count} replicas in sync")

    def wait_for_equal_ends(self) -> None:
        """Wait until all replicas have everything."""
        wait_until(
            lambda: len({self.end_of(replica_id) for replica_id in self._replicas}) == 1,
            "the same end in all logs",
        )

    def _in_sync_count(self) -> int:
        master = self.find_master()
        status = None if master is None else self.status(master)
        return 0 if status is None else len(status["in_sync"])

    def _kill_all(self) -> None:
        for child in self._replicas.values():
            child.kill()


def _answers(url: str) -> bool:
    """Return whether a broker is ready, or a replica that waits for a master."""
    if is_ready(url):
        return True
    try:
        return httpx.get(f"{url}/v1/replication/status", timeout=_STATUS_SECONDS).is_success
    except httpx.TransportError:
        return False
