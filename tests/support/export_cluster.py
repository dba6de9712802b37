"""Brokers and a query service that is killed and comes back, and drivers that are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import eruca
from eruca_deploy.ports import free_ports
from eruca_testing import RunningCluster
from support.forked import forking_clusters, started_by_fork
from support.patience import PATIENCE_SECONDS
from support.postgres import reachable_directory
from support.processes import ServiceProcess, clean_environment


@dataclass(slots=True)
class ExportCluster:
    """A cluster, and a query service at a URL that stays the same."""

    cluster: RunningCluster
    postgres_dir: Path
    url: str
    _query: ServiceProcess | None = field(default=None)

    @property
    def namesrvs(self) -> str:
        """The name servers' URLs, as a setting."""
        return ";".join(self.cluster.namesrv_urls)

    @property
    def query_pid(self) -> int:
        """The query service's process id."""
        assert self._query is not None
        return self._query.pid

    def client(self) -> eruca.Client:
        """Return a client, to be entered."""
        return eruca.Client(self.cluster.namesrv_urls)

    def start_query(self) -> None:
        """Start the query service, and return once it listens."""
        self._query = started_by_fork(
            "eruca_query",
            {
                "ERUCA_QUERY_PORT": self.url.rpartition(":")[2],
                "ERUCA_QUERY_NAMESRV_URLS": self.namesrvs,
                "ERUCA_QUERY_POSTGRES_DIR": str(self.postgres_dir),
            },
        )
        self._query.wait_until_listening()

    def kill_query(self) -> None:
        """Kill the query service with SIGKILL."""
        assert self._query is not None
        self._query.stop(signal.SIGKILL)
        self._query.__exit__(None, None, None)
        self._query = None

    def stop_query(self) -> None:
        """Stop it, if it runs."""
        if self._query is not None:
            self._query.stop()
            self._query.__exit__(None, None, None)
            self._query = None


@contextmanager
def export_cluster(
    *, brokers: int = 2, settings: Mapping[str, str] | None = None
) -> Iterator[ExportCluster]:
    """Yield brokers, perhaps with *settings*, and a query service, all running."""
    with (
        forking_clusters(),
        RunningCluster(brokers=brokers, settings=settings) as cluster,
        reachable_directory() as directory,
    ):
        url = f"http://127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
        running = ExportCluster(cluster, directory / "postgres", url)
        running.start_query()
        try:
            yield running
        finally:
            running.stop_query()


def kill_tree(pid: int) -> None:
    """Kill a process and all that came from it, whatever process group they have moved to.

    The process itself is left for its parent to wait for.
    """
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes[1:], timeout=PATIENCE_SECONDS)


@contextmanager
def command(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    program: tuple[str, ...] = (sys.executable, "-m", "eruca_spark"),
    has_own_group: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """Yield ``eruca-spark`` as a process of its own; its tree is killed on leaving.

    One that has its own group may be sent what a terminal sends all processes of a command.
    """
    process = subprocess.Popen(
        [*program, *arguments],
        env={**clean_environment(), **(environment or {})},
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=has_own_group,
    )
    with process:
        try:
            yield process
        finally:
            kill_tree(process.pid)
