"""Spark's own cluster on the loopback: a master and a worker, as pyspark's scripts start them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import pyarrow
import pyspark

from eruca_spark.java import find_java_home
from support.export_cluster import kill_tree
from support.processes import clean_environment
from support.spark_classes import QUICK_JAVA

SPARK_HOME: Final = Path(pyspark.__file__).parent
SPARK_SUBMIT: Final = SPARK_HOME / "bin" / "spark-submit"
_SPARK_CLASS: Final = SPARK_HOME / "bin" / "spark-class"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_FREE_PORTS: Final = ("--port", "0", "--webui-port", "0")
_START_SECONDS: Final = 120.0
_EXECUTOR_PYTHON: Final = """#!/bin/sh
PYTHONPATH="$PYTHONPATH:{packages}" exec "{python}" -S "$@"
"""


@dataclass(frozen=True, slots=True)
class StandaloneSpark:
    """A cluster that runs."""

    master: str  # its URL
    worker_dir: Path  # a folder for each application, and in it one for each executor
    worker_pid: int  # the first one's


@contextmanager
def standalone_spark(
    directory: Path, *, hosts: Sequence[str] = ("127.0.0.1",), cores: int = 2
) -> Iterator[StandaloneSpark]:
    """Yield a master, and a worker for each host; all that they have started ends with them."""
    worker_dir = directory / "worker"
    size = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(worker_dir))
    registered = r"Successfully registered with master"
    with ExitStack() as stack:
        started = _daemon(_MASTER, ready=r"Starting Spark master at (\S+)")
        _, master = stack.enter_context(started)
        pids = [
            stack.enter_context(_daemon(_WORKER, *size, master, ready=registered, host=host))[0]
            for host in hosts
        ]
        yield StandaloneSpark(master, worker_dir, pids[0])


def cluster_environment() -> dict[str, str]:
    """Return an environment for Spark's scripts: the Java that the project selects, loopback."""
    environment = clean_environment()
    return {
        **environment,
        "JAVA_HOME": str(find_java_home(environment)),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # which takes a fixed port
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",
    }


def python_without_the_source(directory: Path) -> Path:
    """Make a Python that has pyarrow and lacks the data source, as a cluster's machines do.

    The data source is installed here by a ``.pth`` file, and those are not read under ``-S``.
    """
    path = directory / "executor-python"
    packages = Path(pyarrow.__file__).parents[1]
    path.write_text(_EXECUTOR_PYTHON.format(packages=packages, python=sys.executable))
    path.chmod(0o755)
    return path


@contextmanager
def _daemon(
    name: str, *arguments: str, ready: str, host: str = "127.0.0.1"
) -> Iterator[tuple[int, str]]:
    """Yield a daemon's process id, and the last of what *ready* finds in what it says."""
    with subprocess.Popen(
        [_SPARK_CLASS, name, "--host", host, *_FREE_PORTS, *arguments],
        env=cluster_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        found: Future[str] = Future()
        thread = threading.Thread(target=_follow, args=(process.stdout, ready, found), daemon=True)
        thread.start()
        try:
            yield process.pid, found.result(_START_SECONDS)
        finally:
            kill_tree(process.pid)
            thread.join()


def _follow(lines: IO[str], ready: str, found: Future[str]) -> None:
    said = []
    for line in lines:
        said.append(line)
        match = re.search(ready, line)
        if match and not found.done():
            found.set_result(match[match.lastindex or 0])
    if not found.done():
        found.set_exception(AssertionError("".join(said)))
