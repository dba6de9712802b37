"""Broker groups as processes: a controller over a file, and the replicas of one broker name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx

from eruca.contract.errors import NotMasterError
from support.forked import started_by_fork
from support.processes import ServiceProcess
from support.waiting import wait_until

GROUP: Final = "broker-a"
STATUS_SECONDS: Final = 2.0  # for a status; a replica that is stopped gives none


class GroupOfProcesses:
    """A controller and the replicas of one broker name; all that runs is killed at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._client = httpx.Client(trust_env=False)
        self.controller: ServiceProcess | None = None
        self.controller_url = ""
        self.replicas: dict[int, ServiceProcess] = {}
        self._ports: dict[int, str] = {}

    def start_controller(self) -> None:
        """Start the controller, at the port that it had before."""
        port = self.controller_url.rpartition(":")[2] or "0"
        self.controller = started_by_fork(
            "eruca_controller",
            {
                "ERUCA_CONTROLLER_PORT": port,
                "ERUCA_CONTROLLER_STORE": "file",
                "ERUCA_CONTROLLER_FILE": str(self._directory / "groups" / "groups.json"),
            },
        )
        self.controller.wait_until_listening()
        self.controller_url = self.controller.url

    def start(self, replica_id: int, **settings: str) -> ServiceProcess:
        """Start a replica over its store, at the port that it had before."""
        process = started_by_fork("eruca_broker", self.settings_of(replica_id, **settings))
        self.replicas[replica_id] = process
        process.wait_until_listening()
        self.adopt(replica_id, process)
        return process

    def adopt(self, replica_id: int, process: ServiceProcess) -> None:
        """Take over a replica's process, which listens."""
        self.replicas[replica_id] = process
        self._ports[replica_id] = process.url.rpartition(":")[2]

    def settings_of(self, replica_id: int, **settings: str) -> dict[str, str]:
        """Return the environment of a replica's process."""
        return {
            "ERUCA_BROKER_NAME": GROUP,
            "ERUCA_BROKER_PORT": self._ports.get(replica_id, "0"),
            "ERUCA_BROKER_NAMESRV_URLS": "",
            "ERUCA_BROKER_CONTROLLER_URLS": self.controller_url,
            "ERUCA_BROKER_REPLICA_ID": str(replica_id),
            "ERUCA_BROKER_STORE_DIR": str(self.store_of(replica_id)),
            "ERUCA_BROKER_SEGMENT_BYTES": str(4 * 1024**2),
            **{f"ERUCA_BROKER_{name.upper()}": value for name, value in settings.items()},
        }

    def store_of(self, replica_id: int) -> Path:
        """Return the directory of a replica's store."""
        return self._directory / f"replica-{replica_id}"

    def stop(self, replica_id: int) -> None:
        """Stop a replica in an orderly way."""
        with self.replicas.pop(replica_id) as process:
            assert process.stop() == 0

    def restart_without_its_beginning(self, replica_id: int, **settings: str) -> None:
        """Restart a replica without the first segment of its log, and await that it is in sync.

        So is a replica whose disk was replaced after retention had deleted that at its master, if
        another one that still has it becomes the master.
        """
        self.stop(replica_id)
        store = self.store_of(replica_id)
        first, *others = sorted((store / "commitlog").iterdir())
        assert others, "the log has several segments"
        first.unlink()
        for projection in ("consumequeue", "index"):
            shutil.rmtree(store / projection)
        self.start(replica_id, **settings)
        self.await_master(copies=2)

    def kill(self, replica_id: int) -> None:
        """Kill a replica, as by ``kill -9``."""
        with self.replicas.pop(replica_id):
            pass

    def leave_without_a_master(self, master: int) -> None:
        """Stop *master* when nobody can appoint another one: the controller is away.

        Return once the others name it no more.
        """
        assert self.controller is not None
        with self.controller:
            pass
        self.controller = None
        self.stop(master)
        for other in self.replicas:
            wait_until(partial(self._has_no_master, other))

    def _has_no_master(self, replica_id: int) -> bool:
        return self.request("GET", replica_id, "/v1/groups").is_server_error

    def url(self, replica_id: int) -> str:
        """Return a replica's URL."""
        return self.replicas[replica_id].url

    def row(self) -> dict[str, Any]:
        """Return the arbiter's row."""
        answer = self._client.get(f"{self.controller_url}/v1/broker-groups/{GROUP}")
        answer.raise_for_status()
        row: dict[str, Any] = answer.json()
        return row

    def terms(self) -> list[tuple[str, datetime]]:
        """Return the reason of each term and the time at which the arbiter granted it, in order."""
        url = f"{self.controller_url}/v1/broker-groups/{GROUP}/history"
        answer = self._client.get(url).raise_for_status()
        terms: dict[int, tuple[str, datetime]] = {}
        for change in reversed(answer.json()["changes"]):
            granted = change["reason"], datetime.fromisoformat(change["changed_at"])
            terms.setdefault(change["epoch"], granted)
        return list(terms.values())

    def status(self, replica_id: int) -> dict[str, Any] | None:
        """Return a replica's part in the group; None if it does not answer."""
        try:
            answer = self._client.get(
                f"{self.url(replica_id)}/v1/replication/status", timeout=STATUS_SECONDS
            )
        except httpx.TransportError:
            return None
        status: dict[str, Any] | None = answer.json() if answer.status_code == 200 else None
        return status

    def master(self) -> int | None:
        """Return the id of the replica that is the master; None if there is none."""
        for replica_id in self.replicas:
            status = self.status(replica_id)
            if status is not None and status["role"] == "master":
                return replica_id
        return None

    def await_master(self, *, other_than: int | None = None, copies: int = 1) -> int:
        """Return the id of the master once there is one, with *copies* replicas in sync."""

        def master() -> int | None:
            found = self.master()
            if found is None or found == other_than:
                return None
            status = self.status(found)
            return found if status is not None and len(status["in_sync"]) >= copies else None

        return wait_until(master)

    def send(self, body: str, *, at: int | None = None, **query: Any) -> httpx.Response:  # noqa: ANN401
        """Send a message to a replica, by default to the master; follow no redirect."""
        replica_id = self.await_master() if at is None else at
        return self._client.post(
            f"{self.url(replica_id)}/v1/topics/orders/messages",
            params=query,
            json={"body": {"text": body}},
        )

    def bodies(self, replica_id: int) -> list[str]:
        """Return the bodies that a replica shows in all queues of the topic.

        A standby that does not show what is current yet has none: it sends readers to the master.
        """
        url = f"{self.url(replica_id)}/v1/topics/orders"
        answer = self._client.get(f"{url}/queues")
        if answer.status_code == NotMasterError.status:
            return []
        answer.raise_for_status()
        found = []
        for queue in answer.json()["queues"]:
            offset = queue["min_offset"]
            while offset < queue["max_offset"]:
                page = self._client.get(
                    f"{url}/queues/{queue['queue_id']}/messages", params={"offset": offset}
                )
                page.raise_for_status()
                found += [message["body"]["text"] for message in page.json()["messages"]]
                offset = page.json()["next_offset"]
        return sorted(found)

    def request(self, method: str, replica_id: int, path: str, **given: Any) -> httpx.Response:  # noqa: ANN401
        """Send any request to a replica."""
        return self._client.request(method, self.url(replica_id) + path, **given)

    def close(self) -> None:
        """Kill all processes."""
        processes = [*self.replicas.values(), *filter(None, [self.controller])]
        for process in processes:
            with process:
                pass
        self._client.close()


@contextmanager
def group_of(directory: Path, *replica_ids: int, **settings: str) -> Iterator[GroupOfProcesses]:
    """Yield a group whose replicas have started, in this order, and are all in sync."""
    group = GroupOfProcesses(directory)
    try:
        group.start_controller()
        for count, replica_id in enumerate(replica_ids, start=1):
            group.start(replica_id, **settings)
            group.await_master(copies=count)
        yield group
    finally:
        group.close()
