"""A local cluster for tests: every service is a process that tests can use, kill and restart.

``eruca_deploy`` runs it, as for ``eruca-local``, on an event loop in its own thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self, TypedDict

from eruca_deploy.cluster import LocalCluster
from eruca_deploy.plan import ClusterPlan
from eruca_testing.loop_thread import LoopThread

SMALL_STORE: Final = {"ERUCA_BROKER_SEGMENT_BYTES": str(16 * 1024 * 1024)}
"""Settings with which a broker reserves megabytes of disk instead of a gigabyte."""


class ClusterOptions(TypedDict, total=False):
    """The options of a :class:`RunningCluster`."""

    brokers: int
    replicas: int
    namesrvs: int
    txn_checkers: int
    queries: int
    controllers: int
    consoles: int
    is_secure: bool
    settings: Mapping[str, str]
    restarts: bool


class RunningCluster:
    """A cluster on free ports, with temporary data, for a ``with`` block.

    ``plan`` lists its services: ``namesrv-1``, ``broker-a``, ``broker-b`` …

    Args:
        brokers: Number of brokers.
        replicas: Number of replicas of each broker; above 1, a controller runs as well.
        namesrvs: Number of name servers.
        txn_checkers: Number of transaction checkers.
        queries: Number of query services; with the transaction checkers they share a PostgreSQL.
        controllers: Number of controllers, which share that PostgreSQL, too.
        consoles: Number of consoles.
        is_secure: Whether services speak TLS and admit callers by keys; ``client_environment`` has
            what clients need then.
        settings: ``ERUCA_*`` settings; they override the environment and SMALL_STORE.
        restarts: Whether a service that dies by itself is restarted.
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
        is_secure: bool = False,
        settings: Mapping[str, str] | None = None,
        restarts: bool = True,
    ) -> None:
        self._cluster = LocalCluster(
            brokers=brokers,
            replicas=replicas,
            namesrvs=namesrvs,
            txn_checkers=txn_checkers,
            queries=queries,
            controllers=controllers,
            consoles=consoles,
            is_secure=is_secure,
            settings={**SMALL_STORE, **(settings or {})},
            restarts=restarts,
        )
        self._thread = LoopThread("eruca cluster")
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start the cluster; return when clients can use all of it.

        Raises:
            StartError: A service did not start; the text has its last output.
        """
        with ExitStack() as stack:
            stack.enter_context(self._thread)
            stack.enter_context(self._thread.within(self._cluster))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the cluster, and remove its data."""
        self._stack.close()

    @property
    def plan(self) -> ClusterPlan:
        """Return the services with their addresses."""
        return self._cluster.plan

    @property
    def client_environment(self) -> dict[str, str]:
        """Return the variables with which programs use the cluster."""
        return self._cluster.client_environment

    @property
    def namesrv_urls(self) -> list[str]:
        """Return the name servers' URLs, for clients."""
        return self._cluster.namesrv_urls

    @property
    def broker_urls(self) -> dict[str, str]:
        """Return each broker's URL by its name."""
        return self._cluster.broker_urls

    @property
    def controller_urls(self) -> list[str]:
        """Return the controllers' URLs; none if brokers have no replicas."""
        return self._cluster.controller_urls

    @property
    def txn_checker_urls(self) -> list[str]:
        """Return the transaction checkers' URLs."""
        return self._cluster.txn_checker_urls

    @property
    def query_urls(self) -> list[str]:
        """Return the query services' URLs."""
        return self._cluster.query_urls

    @property
    def console_urls(self) -> list[str]:
        """Return the consoles' URLs."""
        return self._cluster.console_urls

    def pid(self, name: str) -> int | None:
        """Return a service's process id, or None while it does not run."""
        return self._cluster.pid(name)

    def tail(self, name: str) -> list[str]:
        """Return the last lines that a service printed."""
        return self._cluster.tail(name)

    def kill(self, name: str) -> None:
        """Kill a service with SIGKILL; it stays dead until :meth:`restart`."""
        self._thread.call(self._cluster.kill(name))

    def stop_one(self, name: str) -> None:
        """Stop a service as an operator would; it stays down until :meth:`restart`."""
        self._thread.call(self._cluster.stop_one(name))

    def restart(self, name: str) -> None:
        """Start a service again, after stopping it if it runs; return when it is ready.

        Raises:
            StartError: It ended or was not ready in time.
        """
        self._thread.call(self._cluster.restart(name))
