"""The cluster of a run: broker groups, controllers and a name server, each a process of its own.

Parties have names: ``broker-a/1`` is replica 1 of the group ``broker-a``. Each replica reaches the
other replicas of its group and each controller through links of its own. Clients reach replicas
through links of theirs. The harness itself looks at all of them directly, without links.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from chaos import start
from chaos.arbiters import ArbiterKind, arbiter_of
from chaos.controls import Controls
from chaos.proxies import Network
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import ErucaError
from eruca_deploy.ports import free_ports
from support.processes import clean_environment
from support.waiting import until_told

CLIENTS: Final = "clients"
START_SECONDS: Final = 60.0
SEGMENT_BYTES: Final = 1024 * 1024
SCRUB_SECONDS: Final = 20.0  # for one round through a log
_FORKING: Final = multiprocessing.get_context("forkserver")


class StartError(Exception):
    """A process of the cluster ended while it started; the text has its last output."""


class Shape(NamedTuple):
    """The size of a cluster, the settings of its brokers, and the size of messages."""

    brokers: tuple[str, ...] = ("broker-a", "broker-b")
    replicas: int = 3
    controllers: int = 2
    min_in_sync: int = 2
    flush_mode: str = "async"
    arbiter: ArbiterKind = "file"
    retention_seconds: float = 0.0  # after which segments are deleted; 0: never
    body_size: int = 0  # characters of a message's text at least, so that segments are filled
    settings: Mapping[str, str] = {}


@dataclass(eq=False)
class Party:
    """A process of the cluster, or the place of one that does not run."""

    name: str
    module: str
    port: int
    directory: Path
    settings: dict[str, str]
    controls: Controls
    broker: str = ""  # a replica's group
    replica: int = 0
    detours: dict[str, int] = field(default_factory=dict)
    boot_id: str = "boot-1"
    mutation: str = ""
    is_paused: bool = False
    process: Any = None  # multiprocessing's, of the forking context

    @property
    def url(self) -> str:
        """Its own URL, without a link."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """True if its process has not ended."""
        return self.process is not None and self.process.exitcode is None

    @property
    def pid(self) -> int:
        """The id of its process."""
        pid: int = self.process.pid
        return pid


class Cluster:
    """All processes of a run.

    Args:
        directory: Holds stores, logs and switches.
        network: The links are added to it.
        shape: See there.
        mutation: The rule that is broken in each replica; empty: none.
    """

    def __init__(
        self, directory: Path, network: Network, shape: Shape, *, mutation: str = ""
    ) -> None:
        self.network = network
        self.shape = shape
        self.directory = directory
        self.parties: dict[str, Party] = {}
        self._transport = Http1Transport()
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        (directory / "controls").mkdir(exist_ok=True)
        self.arbiter = arbiter_of(shape.arbiter, directory)
        count = shape.controllers + 1 + len(shape.brokers) * shape.replicas
        ports = iter(free_ports("127.0.0.1", count))
        self._plan_controllers(ports)
        namesrv = self._add("namesrv", "eruca_namesrv", next(ports), {})
        namesrv.settings |= {
            "ERUCA_NAMESRV_PORT": str(namesrv.port),
            "ERUCA_NAMESRV_KV_FILE": str(namesrv.directory / "kv.json"),
        }
        self._plan_replicas(ports, mutation)

    # --- The plan --------------------------------------------------------------------------------

    def _plan_controllers(self, ports: Iterator[int]) -> None:
        for number in range(1, self.shape.controllers + 1):
            party = self._add(f"controller-{number}", "eruca_controller", next(ports), {})
            party.settings |= {"ERUCA_CONTROLLER_PORT": str(party.port)}

    def _plan_replicas(self, ports: Iterator[int], mutation: str) -> None:
        controllers = [p for p in self.parties.values() if p.module == "eruca_controller"]
        for broker in self.shape.brokers:
            for replica in range(1, self.shape.replicas + 1):
                party = self._add(f"{broker}/{replica}", "eruca_broker", next(ports), {})
                party.broker, party.replica, party.mutation = broker, replica, mutation
                link = self.network.link(CLIENTS, party.name, ("127.0.0.1", party.port))
                party.settings |= {
                    "ERUCA_BROKER_NAME": broker,
                    "ERUCA_BROKER_PORT": str(party.port),
                    "ERUCA_BROKER_STORE_DIR": str(party.directory),
                    "ERUCA_BROKER_NAMESRV_URLS": self.parties["namesrv"].url,
                    "ERUCA_BROKER_ADVERTISED_URL": link.url,
                    "ERUCA_BROKER_FLUSH_MODE": self.shape.flush_mode,
                    "ERUCA_BROKER_SEGMENT_BYTES": str(SEGMENT_BYTES),
                    "ERUCA_BROKER_QUEUE_FILE_ENTRIES": "500",
                    "ERUCA_BROKER_INDEX_SLOTS": "256",
                    "ERUCA_BROKER_INDEX_ENTRIES": "1024",
                    "ERUCA_BROKER_HEARTBEAT_SECONDS": "2",
                    "ERUCA_BROKER_SCRUB_HOURS": str(SCRUB_SECONDS / 3600),
                    "ERUCA_BROKER_DISK_HIGH_RATIO": "1",
                    "ERUCA_BROKER_DISK_FORCED_RATIO": "1",
                    "ERUCA_BROKER_DISK_REFUSE_RATIO": "1",
                    **self.shape.settings,
                }
                if self.shape.retention_seconds:
                    party.settings |= {
                        "ERUCA_BROKER_RETENTION_HOURS": str(self.shape.retention_seconds / 3600),
                        "ERUCA_BROKER_DELETE_HOURS": ";".join(f"{hour:02}" for hour in range(24)),
                    }
                if controllers:
                    party.settings |= {
                        "ERUCA_BROKER_CONTROLLER_URLS": ";".join(c.url for c in controllers),
                        "ERUCA_BROKER_REPLICA_ID": str(replica),
                        "ERUCA_BROKER_MIN_IN_SYNC": str(self.shape.min_in_sync),
                    }
        for broker in self.shape.brokers:
            self._link_replicas(self.replicas(broker), controllers)

    def _link_replicas(self, group: list[Party], controllers: list[Party]) -> None:
        for party in group:
            for other in [*group, *controllers]:
                if other is party:
                    continue
                link = self.network.link(party.name, other.name, ("127.0.0.1", other.port))
                party.detours[str(other.port)] = link.port
                for to_it in self.network.between([CLIENTS], [other.name]):
                    party.detours[str(to_it.port)] = link.port  # the URL that it announces

    def _add(self, name: str, module: str, port: int, settings: dict[str, str]) -> Party:
        flat = name.replace("/", "-")
        directory = self.directory / "data" / flat
        directory.mkdir(parents=True)
        controls = Controls(self.directory / "controls" / flat)
        self.parties[name] = Party(name, module, port, directory, settings, controls)
        return self.parties[name]

    # --- Looking ---------------------------------------------------------------------------------

    def replicas(self, broker: str | None = None) -> list[Party]:
        """Return the replicas of a group, or of all."""
        return [
            party
            for party in self.parties.values()
            if party.broker and broker in (None, party.broker)
        ]

    def controllers(self) -> list[Party]:
        """Return the controllers."""
        return [party for party in self.parties.values() if party.module == "eruca_controller"]

    def log_of(self, party: Party) -> Path:
        """Return the file with what the process printed."""
        return self.directory / "logs" / f"{party.name.replace('/', '-')}.log"

    async def ask(
        self,
        party: Party,
        method: str,
        target: str,
        *,
        body: object = None,
        timeout: float = 2.0,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> HttpResponse | None:
        """Return a party's answer, asked without a link; None if it has none."""
        content = () if body is None else (json.dumps(body).encode(),)
        if content:
            headers = (*headers, ("content-type", "application/json"))
        with suppress(ErucaError):
            return await self._transport.request(
                method, party.url, target, headers=headers, body=content, timeout=timeout
            )
        return None

    async def status(self, party: Party) -> dict[str, Any] | None:
        """Return what a replica says about its replication; None without an answer.

        A standalone broker is the master of no epoch, and all of its log is confirmed.
        """
        if not self.shape.controllers:
            answer = await self.ask(party, "GET", "/v1/status")
            if answer is None or answer.status != 200:
                return None
            log = json.loads(answer.body)["log"]
            span = {"min_offset": log["min_offset"], "confirmed": log["max_offset"]}
            return {"epoch": 0, "role": "master", "uid": "", **span}
        answer = await self.ask(party, "GET", "/v1/replication/status")
        return json.loads(answer.body) if answer is not None and answer.status == 200 else None

    async def row(self, broker: str) -> dict[str, Any] | None:
        """Return the arbiter's row of a group; None if no controller answers."""
        for controller in self.controllers():
            if controller.is_running and not controller.is_paused:
                target = f"/v1/broker-groups/{quote(broker)}"
                answer = await self.ask(controller, "GET", target)
                if answer is not None and answer.status == 200:
                    row: dict[str, Any] = json.loads(answer.body)
                    return row
        return None

    async def master(self, broker: str) -> Party | None:
        """Return the replica that the arbiter names master."""
        row = await self.row(broker)
        return None if row is None else self.parties[f"{broker}/{row['master']['replica_id']}"]

    # --- Running ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything, and wait until each group has a master."""
        if self.shape.controllers:
            await asyncio.to_thread(self.arbiter.start)
        for party in self.controllers():
            party.settings |= self.arbiter.settings
        for party in self.parties.values():
            self.run(party)
        async with asyncio.timeout(2 * START_SECONDS):
            for party in self.parties.values():
                if not await self.until_listening(party):
                    raise StartError(
                        f"{party.name} ended: {self.log_of(party).read_text()[-2000:]}"
                    )
            for broker in self.shape.brokers:
                await until_told(partial(self._has_master, broker))

    async def _has_master(self, broker: str) -> bool:
        statuses = [await self.status(party) for party in self.replicas(broker)]
        return any(status is not None and status["role"] == "master" for status in statuses)

    def run(self, party: Party) -> None:
        """Start a party's process, unless it runs: another nemesis may have started it."""
        if party.is_running:
            return
        environment = clean_environment()
        environment.pop("DATABASE_URL", None)
        environment |= {
            **party.settings,
            "CHAOS_CONTROLS": str(self.directory / "controls" / party.name.replace("/", "-")),
            "CHAOS_DETOURS": json.dumps(party.detours),
            "CHAOS_BOOT_ID": party.boot_id,
            "CHAOS_MUTATION": party.mutation,
        }
        begin_forking()
        party.is_paused = False
        party.process = _FORKING.Process(
            target=start.run,
            args=(party.module, environment, str(self.log_of(party))),
            daemon=True,  # a run that is broken off must not wait for it
        )
        party.process.start()

    async def until_listening(self, party: Party, within_seconds: float = START_SECONDS) -> bool:
        """Wait until a party answers at all; return False if its process ends instead."""
        async with asyncio.timeout(within_seconds):
            while party.is_running:
                answer = await self.ask(party, "GET", "/healthz")
                if answer is not None and answer.status == 200:
                    return True
                await asyncio.sleep(0.1)  # another process has no event to wait for
        return False

    def send_signal(self, party: Party, number: signal.Signals) -> None:
        """Send a signal; a process that has ended does not mind."""
        if party.is_running:
            with suppress(ProcessLookupError):
                os.kill(party.pid, number)

    async def stop(self, party: Party, by: signal.Signals, within_seconds: float = 30.0) -> int:
        """End a party's process, and return its exit code; SIGKILL follows if it does not end."""
        if party.process is None:
            return 0
        if party.is_paused:
            self.resume(party)
        self.send_signal(party, by)
        ended = await asyncio.to_thread(_join, party.process, within_seconds)
        if not ended:
            self.send_signal(party, signal.SIGKILL)
            await asyncio.to_thread(_join, party.process, START_SECONDS)
        code: int = party.process.exitcode
        return code

    def pause(self, party: Party) -> None:
        """Stop a party's process as if its machine were suspended."""
        party.is_paused = True
        self.send_signal(party, signal.SIGSTOP)

    def resume(self, party: Party) -> None:
        """Let it go on."""
        party.is_paused = False
        self.send_signal(party, signal.SIGCONT)

    async def wipe(self, party: Party) -> None:
        """Kill a party, unless it has ended, and replace its disk by an empty one."""
        await self.stop(party, signal.SIGKILL)
        shutil.rmtree(party.directory)
        party.directory.mkdir()
        party.controls.written_offset = party.controls.durable_offset = 0

    async def close(self) -> None:
        """End everything at once."""
        for party in self.parties.values():
            if party.process is not None:
                self.send_signal(party, signal.SIGKILL)
        for party in self.parties.values():
            if party.process is not None:
                await asyncio.to_thread(_join, party.process, START_SECONDS)
        await asyncio.to_thread(self.arbiter.close)
        await self._transport.close()


def _join(process: Any, seconds: float) -> bool:  # noqa: ANN401 - of the forking context
    process.join(seconds)
    return process.exitcode is not None


def begin_forking() -> None:
    """Start the process that forks, where that has not been done; it finds the tests' modules."""
    forkserver.set_forkserver_preload(["support.preloaded", "chaos.start"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
