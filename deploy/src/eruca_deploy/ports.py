"""Ports: find free ones, and name the process that uses another."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterator
from typing import Final

import psutil

# Below the range from which kernels take ports for outgoing connections (from 32768 on Linux): a
# service that is killed and restarted must find its port free.
_FREE_FROM: Final = 20_000
_FREE_TO: Final = 32_000
_ATTEMPTS: Final = 1_000


class PortTakenError(Exception):
    """A port is in use; the text names it and, if known, the process."""


def check_ports(host: str, ports: list[int]) -> None:
    """Raise unless services can listen on *ports*.

    Raises:
        PortTakenError: The first port that is in use or not allowed.
    """
    for port in ports:
        try:
            with _bound(host, port):
                pass
        except PermissionError as error:
            raise PortTakenError(f"port {port} on {host} needs more privileges") from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise PortTakenError(f"port {port} on {host}: {error.strerror}") from error
            raise PortTakenError(f"port {port} on {host} is taken{_by_whom(port)}") from error


def free_ports(host: str, count: int) -> list[int]:
    """Return *count* different ports on which nobody listens at this moment."""
    choice = random.SystemRandom()  # a seeded one would give parallel test runs the same ports
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                return ports
            port = choice.randrange(_FREE_FROM, _FREE_TO)
            with contextlib.suppress(OSError):
                held.enter_context(_bound(host, port))
                ports.append(port)
    raise PortTakenError(f"no {count} free ports between {_FREE_FROM} and {_FREE_TO} on {host}")


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[None]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        # As servers do: connections in TIME_WAIT do not matter.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1)
        yield


def _by_whom(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN or connection.pid is None:
                continue
            if connection.laddr and connection.laddr.port == port:
                return f" by {process_text(connection.pid)}"
    except psutil.Error:
        return ""  # it belongs to another user, or has just ended
    return ""


def process_text(pid: int) -> str:
    """Return a process's id and, if it is readable, its command line."""
    try:
        process = psutil.Process(pid)
        return f"process {pid} ({' '.join(process.cmdline())[:80] or process.name()})"
    except psutil.Error:
        return f"process {pid}"
