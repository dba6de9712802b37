"""Ports: find free ones, and name the process that uses another."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import sys
from collections import deque
from collections.abc import Iterator
from typing import Final

import psutil

# Below the range from which kernels take ports for outgoing connections (from 32768 on Linux): a
# service that is killed and restarted must find its port free.
_FREE_FROM: Final = 20_000
_FREE_TO: Final = 32_000
_ATTEMPTS: Final = 1_000
# Far more than one cluster has. Older ones are let go: their services have long been listening.
_HELD_MAX: Final = 256
_held: deque[int] = deque()  # descriptors: they end with the process


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
    """Return *count* different ports on which nobody listens, and that nobody else has been given.

    On Linux they stay this process's until it ends, or has asked for 256 more: a service may take
    seconds until it listens. Elsewhere another process may take one meanwhile.
    """
    choice = random.SystemRandom()  # a seeded one would give parallel test runs the same ports
    claimed: list[socket.socket] = []
    for _ in range(_ATTEMPTS):
        if len(claimed) == count:
            break
        with contextlib.suppress(OSError):
            claimed.append(_claim(host, choice.randrange(_FREE_FROM, _FREE_TO)))
    ports: list[int] = [claim.getsockname()[1] for claim in claimed]
    if len(ports) == count and sys.platform == "linux":
        _held.extend(claim.detach() for claim in claimed)
        while len(_held) > max(_HELD_MAX, count):
            os.close(_held.popleft())
    else:
        for claim in claimed:
            claim.close()
    if len(ports) < count:
        raise PortTakenError(f"no {count} free ports between {_FREE_FROM} and {_FREE_TO} on {host}")
    return ports


def _claim(host: str, port: int) -> socket.socket:
    """Bind a port that no other socket is bound to; a service can listen on it all the same.

    The kernel lets several sockets be bound to one port if all say so and none listens, yet. This
    one says so only afterwards, so that it finds the claims of others.
    """
    claim = socket.socket(_family(host), socket.SOCK_STREAM)
    try:
        claim.bind((host, port))
        claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        claim.close()
        raise
    return claim


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[None]:
    with socket.socket(_family(host), socket.SOCK_STREAM) as listener:
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
