"""Containers as processes on this machine, without their file systems: their commands and settings.

Host names become addresses of the loopback, ports free ones, and directories those of a test.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from eruca_chassis.healthcheck import main as healthcheck
from eruca_deploy.ports import free_ports
from support.containerfile import Stage
from support.processes import ServiceProcess, clean_environment
from support.waiting import wait_until

HOST: Final = "127.0.0.1"


class Wanted(NamedTuple):
    """A container to run."""

    stage: Stage  # its image
    environment: Mapping[str, str]  # beside the image's
    directories: Mapping[str, Path]  # here, by their paths in the container
    address: str  # HOST:PORT by which others reach it; a pattern


class Running(NamedTuple):
    """A container that runs as a process."""

    url: str
    process: ServiceProcess
    environment: Mapping[str, str]
    stage: Stage

    def is_healthy(self) -> bool:
        """Return whether the image's own check says so."""
        return healthcheck(self.stage.healthcheck[3:], self.environment) == 0


@contextmanager
def running(wanted: Mapping[str, Wanted]) -> Iterator[dict[str, Running]]:
    """Start all containers together; yield them by name once each is healthy."""
    ports = dict(zip(wanted, free_ports(HOST, len(wanted)), strict=True))
    with ExitStack() as stack:
        started: dict[str, Running] = {}
        for name, container in wanted.items():
            environment = _here(wanted, ports, container) | _listening(container, ports[name])
            home = container.directories["/var/lib/eruca"]
            home.mkdir(parents=True, exist_ok=True)
            process = subprocess.Popen(
                [Path(sys.executable).with_name(container.stage.entrypoint[0])],
                env={**clean_environment(), **environment},
                cwd=home,
                stderr=subprocess.PIPE,
                text=True,
            )
            service = stack.enter_context(ServiceProcess(process))
            started[name] = Running(
                f"http://{HOST}:{ports[name]}", service, environment, container.stage
            )
        for name, one in started.items():
            one.process.wait_until_listening()
            started[name] = one._replace(url=one.process.url)
        for one in started.values():
            wait_until(one.is_healthy)
        yield started
        for one in started.values():
            assert one.process.stop() == 0


def _listening(container: Wanted, port: int) -> dict[str, str]:
    prefix = container.stage.healthcheck[3]
    return {f"{prefix}_HOST": HOST, f"{prefix}_PORT": str(port)}


def _here(
    wanted: Mapping[str, Wanted], ports: Mapping[str, int], container: Wanted
) -> dict[str, str]:
    """Return a container's variables with this machine's addresses and directories."""
    here = {}
    for name, value in {**container.stage.environment, **container.environment}.items():
        if name.startswith("ERUCA_") or name == "DATABASE_URL":
            for other, port in ports.items():
                value = re.sub(wanted[other].address, f"{HOST}:{port}", value)  # noqa: PLW2901
            for inside, directory in container.directories.items():
                value = value.replace(inside, str(directory))  # noqa: PLW2901
            here[name] = value
    return here
