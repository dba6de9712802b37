"""A whole Eruca on this machine: its services as processes, started and stopped.

``eruca-local`` is its terminal interface; the demo, the tests and the benchmarks use it directly::

    async with LocalCluster(brokers=2) as cluster:
        client = eruca.AsyncClient(cluster.namesrv_urls)

Crash rule: a child that dies by itself is restarted (``restarts=False``: stays dead). A child
killed by :meth:`LocalCluster.kill` stays dead until :meth:`LocalCluster.restart`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from eruca.contract.broker_groups import BrokerGroupView
from eruca.contract.names import CHECKERS_NAMESPACE, QUERY_SERVICES_NAMESPACE
from eruca.services.http import HttpTransport, credentials_of, http1_transport
from eruca_deploy.certificates import made_certificates
from eruca_deploy.data_lock import lock_data
from eruca_deploy.keys import ClusterKeys, made_keys
from eruca_deploy.plan import (
    MODULES,
    POSTGRES_DIRECTORY,
    QUERY_MODULE,
    TXN_CHECKER_MODULE,
    ClusterPlan,
    Service,
    bound_host,
    check_replicas,
    plan_cluster,
    ports_from,
    replica_name,
    without_own_database,
)
from eruca_deploy.ports import check_ports, free_ports
from eruca_deploy.readiness import (
    NoAnswerError,
    broker_group,
    lacks_brokers,
    lacks_controllers,
    lacks_readiness,
    lacks_work,
)
from eruca_deploy.supervision import Child, Report
from eruca_postgres.embedded import EmbeddedServer, socket_directory

_POLL_SECONDS: Final = 0.05  # between two requests to a service that is not ready yet
_IN_SYNC_SECONDS: Final = 10.0  # replicas with little to copy need less
_TAIL_SHOWN: Final = 20  # lines of a child's output in the error for a failed start


class StartError(Exception):
    """The cluster did not start; the text names the child and its last output."""


def _ignore(_name: str, _text: str) -> None:
    """Drop a line of output."""


class LocalCluster:
    """Services on the loopback interface, as an async context manager.

    Args:
        brokers: Number of brokers, each one process with its own store.
        replicas: Number of replicas of each broker, each such a process; 1: no replicas.
        namesrvs: Number of name servers, independent of each other.
        txn_checkers: Number of transaction checkers.
        queries: Number of query services; with the transaction checkers they share one PostgreSQL.
        controllers: Number of controllers, at least one if brokers have replicas; by default they
            share that PostgreSQL, too.
        consoles: Number of consoles.
        data_dir: Directory of the stores; None: a temporary one, removed at the end. Then the
            environment's ``DATABASE_URL`` is ignored, too.
        is_secure: Whether services speak TLS, with certificates in ``tls/`` of the directory, and
            have rules and keys in its ``auth/``.
        base_port: The first port; 0: free ones; None: the standard ports.
        settings: ``ERUCA_*`` settings for the children; they override the environment.
        restarts: Whether a child that dies by itself is restarted.
        start_seconds: Time for the whole cluster to become ready.
        stop_seconds: Time for a child to stop before it is killed.
        on_line: Called with a child's name and each line it prints.
        on_event: Called with a child's name and the supervisor's message about it.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        replicas: int = 1,
        namesrvs: int = 1,
        txn_checkers: int = 0,
        queries: int = 0,
        controllers: int = 0,
        consoles: int = 0,
        data_dir: Path | None = None,
        is_secure: bool = False,
        base_port: int | None = 0,
        settings: Mapping[str, str] | None = None,
        restarts: bool = True,
        start_seconds: float = 60.0,
        stop_seconds: float = 15.0,
        on_line: Report = _ignore,
        on_event: Report = _ignore,
    ) -> None:
        self._brokers = brokers
        self._replicas = replicas
        self._namesrvs = namesrvs
        self._txn_checkers = txn_checkers
        self._queries = queries
        self._controllers = max(controllers, 1 if replicas > 1 else 0)
        self._consoles = consoles
        self._data_dir = data_dir
        self._is_secure = is_secure
        self._base_port = base_port
        inherited = dict(os.environ)
        if data_dir is None:
            # A persistent database would keep rows of logs that are deleted here. Other clusters
            # with the same broker names would take them for their own.
            inherited.pop("DATABASE_URL", None)
        self._environment = {**inherited, **(settings or {}), "PYTHONUNBUFFERED": "1"}
        self._restarts = restarts
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._on_line = on_line
        self._on_event = on_event
        self._temporary: Path | None = None
        self._lock: int | None = None
        self._plan: ClusterPlan | None = None
        self._keys: ClusterKeys | None = None
        self._children: dict[str, Child] = {}
        self._lacking = "no service was checked yet"  # the last unmet condition

    @property
    def plan(self) -> ClusterPlan:
        """Return the services with their addresses; known from ``start`` on."""
        assert self._plan is not None, "the cluster has not been started"
        return self._plan

    @property
    def namesrv_urls(self) -> list[str]:
        """Return the name servers' URLs, for clients."""
        return [service.url for service in self.plan.namesrvs]

    @property
    def broker_urls(self) -> dict[str, str]:
        """Return the URL of each broker's process by its name, such as broker-a or broker-a-2."""
        return {service.name: service.url for service in self.plan.brokers}

    @property
    def txn_checker_urls(self) -> list[str]:
        """Return the transaction checkers' URLs."""
        return [service.url for service in self.plan.txn_checkers]

    @property
    def query_urls(self) -> list[str]:
        """Return the query services' URLs."""
        return [service.url for service in self.plan.queries]

    @property
    def controller_urls(self) -> list[str]:
        """Return the controllers' URLs."""
        return [service.url for service in self.plan.controllers]

    @property
    def console_urls(self) -> list[str]:
        """Return the consoles' URLs."""
        return [service.url for service in self.plan.consoles]

    @property
    def ca_file(self) -> Path | None:
        """Return the authority that clients must trust; None: the cluster makes none."""
        return Path(self._environment["ERUCA_TLS_CA_FILE"]) if self._is_secure else None

    @property
    def keys(self) -> ClusterKeys | None:
        """Return the rules and keys; None: everybody may do everything."""
        return self._keys

    @property
    def client_environment(self) -> dict[str, str]:
        """Return the variables with which a person's programs use the cluster."""
        variables = {"ERUCA_NAMESRV_URLS": ";".join(self.namesrv_urls)}
        if self._keys is not None:
            variables["ERUCA_TLS_CA_FILE"] = str(self.ca_file)
            variables["ERUCA_API_KEY_FILE"] = str(self._keys.administrator_file)
            variables["CURL_HOME"] = str(self._keys.directory)
        return variables

    def pid(self, name: str) -> int | None:
        """Return a child's process id, or None while it does not run."""
        return self._children[name].pid

    def tail(self, name: str) -> list[str]:
        """Return the last lines that a child printed."""
        return list(self._children[name].tail)

    def resident_bytes(self) -> int:
        """Return the resident memory of all children, as far as it is readable."""
        total = 0
        for child in self._children.values():
            if child.pid is not None:
                try:
                    total += psutil.Process(child.pid).memory_info().rss
                except psutil.Error:
                    continue  # it has just ended
        return total

    async def __aenter__(self) -> Self:
        """Start the cluster; if a part fails, stop what was started."""
        await self.start()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Stop the cluster."""
        await self.stop()

    async def start(self) -> None:
        """Start every service; return when clients can use all of them.

        Then each is ready and every broker is registered. Checkers and query services can be found,
        and follow every broker's log; of controllers, one can be found. Replicas that need long to
        catch up are not waited for.

        Raises:
            PlanError: The counts or ports are invalid.
            PortTakenError: A port is in use; nothing was started.
            DataTakenError: Another cluster uses the directory; nothing was started.
            StartError: A service ended or was not ready in time, and all were stopped again; or its
                directory cannot be created.
        """
        assert not self._children, "the cluster has been started already"
        self._plan = self._make_plan()
        if self._data_dir is not None:
            self._lock = _locked_directory(self._data_dir.absolute())
        try:
            for service in self._plan.services:
                if service.has_directory:
                    _make_directory(service.directory)
                self._children[service.name] = Child(
                    service.name,
                    service.module,
                    {**self._environment, **service.settings, **self._own_key(service)},
                    on_line=self._on_line,
                    on_event=self._on_event,
                )
            for child in self._children.values():
                child.start()
            async with asyncio.timeout(self._start_seconds):
                await self._until_ready(self._plan.services)
                await self._until_at_work(self._plan)
                await self._until_in_sync()
        except TimeoutError as error:
            report = self._not_ready_report()
            await self.stop()
            raise StartError(report) from error
        except BaseException:
            await self.stop()
            raise
        for child in self._children.values():
            child.restarts = self._restarts

    def _own_key(self, service: Service) -> dict[str, str]:
        return {} if self._keys is None else self._keys.service_settings(service.module)

    async def stop(self) -> None:
        """Stop everything, name servers last; remove temporary data."""
        if self._plan is not None:
            plan = self._plan
            masters = {*(await self.masters()).values()} if self._children else set()
            for services in (
                plan.consoles,
                plan.queries,
                plan.txn_checkers,
                # A master that stops hands over to a replica that runs. So it stops last.
                [service for service in plan.brokers if service.name not in masters],
                [service for service in plan.brokers if service.name in masters],
                plan.controllers,
                plan.namesrvs,
            ):
                children = [self._children[s.name] for s in services if s.name in self._children]
                await asyncio.gather(*(child.stop(self._stop_seconds) for child in children))
            embedded = {
                service.directory
                for service in (*plan.txn_checkers, *plan.queries, *plan.controllers)
                if service.has_directory
            }
            await asyncio.to_thread(_stop_postgres, embedded)
        self._children.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def kill_all_now(self) -> None:
        """Send SIGKILL to every child without waiting."""
        for child in self._children.values():
            child.restarts = False
            child.kill_now()

    async def kill(self, name: str) -> None:
        """Kill a child with SIGKILL; it stays dead until :meth:`restart`."""
        await self._children[name].kill()

    async def stop_one(self, name: str) -> None:
        """Stop a child as an operator would; it stays down until :meth:`restart`."""
        await self._children[name].stop(self._stop_seconds)

    async def restart(self, name: str) -> None:
        """Start a child again, after stopping it if it runs; return when it is ready.

        Raises:
            StartError: It ended or was not ready in time.
        """
        child = self._children[name]
        await child.stop(self._stop_seconds)
        child.start()
        await self.ready(name)
        child.restarts = self._restarts

    async def ready(self, name: str) -> None:
        """Wait until a child that is being restarted is ready.

        Raises:
            StartError: It ended for good or was not ready in time.
        """
        service = next(service for service in self.plan.services if service.name == name)
        try:
            async with asyncio.timeout(self._start_seconds):
                await self._until_ready([service])
        except TimeoutError as error:
            raise StartError(self._not_ready_report()) from error

    async def groups(self) -> dict[str, BrokerGroupView]:
        """Return the brokers' groups that the controller knows now, by name.

        Empty if brokers have no replicas, or the controller does not answer.
        """
        known: dict[str, BrokerGroupView] = {}
        async with _transport(self._environment) as transport:
            for controller in self.plan.controllers:
                for name in self.plan.broker_names:
                    with suppress(NoAnswerError):
                        known[name] = await broker_group(transport, controller.url, name)
        return known

    async def masters(self) -> dict[str, str]:
        """Return the names of the masters' processes, by broker name; as :meth:`groups`."""
        return {
            name: replica_name(name, group.master.replica_id)
            for name, group in (await self.groups()).items()
        }

    async def _until_in_sync(self) -> None:
        """Wait until all replicas are in sync, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_IN_SYNC_SECONDS):
                while any(
                    len(group.in_sync) < self._replicas for group in (await self.groups()).values()
                ):
                    self._check_alive()
                    await asyncio.sleep(_POLL_SECONDS)

    def _make_plan(self) -> ClusterPlan:
        counts = {
            "namesrvs": self._namesrvs,
            "brokers": self._brokers,
            "txn_checkers": self._txn_checkers,
            "queries": self._queries,
            "controllers": self._controllers,
            "consoles": self._consoles,
            "replicas": self._replicas,
        }
        ports = ports_from(self._base_port or None, **counts)
        if self._base_port == 0:
            broker_host = bound_host(self._environment, "ERUCA_BROKER_HOST")
            ports = free_ports(broker_host, len(ports))
        else:
            unchecked = iter(ports)
            processes = (
                self._namesrvs,
                self._brokers * self._replicas,
                self._txn_checkers,
                self._queries,
                self._controllers,
                self._consoles,
            )
            for module, count in zip(MODULES, processes, strict=True):
                host = bound_host(self._environment, f"{module.upper()}_HOST")
                check_ports(host, list(islice(unchecked, count)))
        if self._data_dir is not None:
            check_replicas(self._data_dir, self._replicas)
        if self._data_dir is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="eruca-"))
        data_dir = self._data_dir or self._temporary
        assert data_dir is not None
        if self._is_secure:
            certificates = made_certificates(data_dir.absolute())
            self._keys = made_keys(data_dir.absolute(), certificates.ca_file)
            self._environment |= {**certificates.settings(), **self._keys.settings()}
        self._environment = without_own_database(
            self._environment, socket_directory(data_dir / POSTGRES_DIRECTORY)
        )
        return plan_cluster(
            **counts,
            ports=ports,
            data_dir=data_dir.absolute(),
            environment=self._environment,
        )

    async def _until_ready(self, services: list[Service] | tuple[Service, ...]) -> None:
        async with _transport(self._environment) as transport:
            for service in services:
                await self._until_none(service, partial(lacks_readiness, transport, service.url))
            names = {s.broker_name for s in services if s.broker_name is not None}
            for namesrv in self.plan.namesrvs:
                if self._children[namesrv.name].pid is None:
                    continue  # killed on purpose, and a broker is restarted meanwhile
                await self._until_none(
                    namesrv, partial(lacks_brokers, transport, namesrv.url, names)
                )

    async def _until_at_work(self, plan: ClusterPlan) -> None:
        namespaces = {
            TXN_CHECKER_MODULE: CHECKERS_NAMESPACE,
            QUERY_MODULE: QUERY_SERVICES_NAMESPACE,
        }
        async with _transport(self._environment) as transport:
            for service in (*plan.txn_checkers, *plan.queries):
                lack = partial(
                    lacks_work,
                    transport,
                    service.url,
                    brokers={*plan.broker_names},
                    namespace=namespaces[service.module],
                    namesrv_urls=self.namesrv_urls,
                )
                await self._until_none(service, lack)
            for service in plan.namesrvs if plan.controllers else ():
                await self._until_none(service, partial(lacks_controllers, transport, service.url))

    async def _until_none(
        self, service: Service, lack: Callable[[], Awaitable[str | None]]
    ) -> None:
        """Poll a service until its condition is met."""
        while (lacking := await lack()) is not None:
            self._lacking = f"{service.name} {lacking}"
            self._check_alive()
            await asyncio.sleep(_POLL_SECONDS)

    def _check_alive(self) -> None:
        for child in self._children.values():
            is_final = child.is_over and not child.was_stopped
            if is_final and child.ending is not None:
                raise StartError(f"{child.name} {child.ending} while starting{_printed(child)}")

    def _not_ready_report(self) -> str:
        tails = "".join(_printed(child) for child in self._children.values())
        return f"not everything was ready within {self._start_seconds:g} s: {self._lacking}{tails}"


@asynccontextmanager
async def _transport(environment: Mapping[str, str]) -> AsyncIterator[HttpTransport]:
    # Loading httpx would take a tenth of a second of the start.
    transport = http1_transport(credentials_of(environment))
    try:
        yield transport
    finally:
        await transport.close()


def _locked_directory(directory: Path) -> int:
    _make_directory(directory)
    try:
        return lock_data(directory)
    except OSError as error:
        raise StartError(
            f"the directory {directory} cannot be locked: {error.strerror}; choose another --data"
        ) from error


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(
            f"the directory {directory} cannot be created: {error.strerror}; choose another --data"
        ) from error


def _stop_postgres(directories: set[Path]) -> None:
    """Stop embedded servers whose last user was killed and could not stop them."""
    for directory in directories:
        if (directory / "postmaster.pid").exists():
            with EmbeddedServer(directory):
                pass  # adopts the running server, and stops it as its last user


def _printed(child: Child) -> str:
    lines = list(child.tail)[-_TAIL_SHOWN:]
    if not lines:
        return f"\n{child.name} printed nothing"
    return f"\n{child.name} printed last:\n" + "\n".join(f"    {line}" for line in lines)
