"""A server of Spark Connect, as pyspark's own script starts it, and what its clients need."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fasteners import InterProcessLock  # type: ignore[import-untyped]  # it has no types

from eruca_deploy.ports import free_ports
from support.export_cluster import kill_tree
from support.spark import SMALL_SPARK
from support.standalone_spark import SPARK_HOME, cluster_environment
from support.waiting import wait_until

_SCRIPT: Final = SPARK_HOME / "sbin" / "start-connect-server.sh"
_START_SECONDS: Final = 180.0


def client_packages() -> Path:
    """Return the folder of the packages that clients need beside pyspark, among them pandas.

    They are in an environment of their own, so that no other test has them.
    """
    environment = Path(sys.prefix) / "connect"
    with InterProcessLock(environment.with_suffix(".lock")):
        subprocess.run(
            [Path(sys.prefix) / "bin" / "uv", "sync", "--only-group", "connect", "--frozen"],
            env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(environment)},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        )
    [packages] = environment.glob("lib/python*/site-packages")
    return packages


@contextmanager
def connect_server(directory: Path, python: str) -> Iterator[str]:
    """Yield the URL of a server of two cores; all that it has started ends with it.

    Args:
        directory: Where it starts, and for its output.
        python: The Python of its planners and workers.
    """
    [port] = free_ports("127.0.0.1", 1)
    settings = {
        **SMALL_SPARK,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    arguments = [f"--conf={name}={value}" for name, value in settings.items()]
    environment = {
        **cluster_environment(),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_DAEMON_MEMORY": SMALL_SPARK["spark.driver.memory"],
        "SPARK_LOG_DIR": str(directory),
        "SPARK_PID_DIR": str(directory),
    }
    said = directory / "connect-server.txt"
    with (
        said.open("w") as output,
        subprocess.Popen(
            [_SCRIPT, "--wait", "--master", "local[2,4]", *arguments],
            env=environment,
            cwd=directory,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):

        def listens() -> bool:
            assert process.poll() is None, said.read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        try:
            wait_until(listens, within_seconds=_START_SECONDS)
            yield f"sc://127.0.0.1:{port}"
        finally:
            kill_tree(process.pid)
