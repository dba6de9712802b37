"""The addresses on which a service listens and which it announces, decided together.

An announced address is one on which the service listens, of the same family. ``::`` means every
address of this machine, of both families. A host name with several addresses means all of them.
Each has its own socket, so that an IPv4 client is an IPv4 client on every machine, whatever its
kernel does with IPv6 sockets.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Final, TypeAlias

import structlog

Address: TypeAlias = tuple[str, int]  # IP address and port

_EVERY_V4: Final = "0.0.0.0"
_EVERY_V6: Final = "::"
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_ATTEMPTS: Final = 16  # to find a port that is free on every address

_log = structlog.get_logger()


def listen(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return sockets that listen on *port* (0: any free one) of every address of *host*.

    If a name has addresses that this machine lacks, these are skipped: ``localhost`` may have an
    IPv6 address even on machines without IPv6.

    Raises:
        OSError: The port is in use, no address is this machine's, or the name is unknown.
        UnicodeError: The name is invalid for a resolver.
    """
    addresses = _addresses_of(host, port)
    for left in range(_ATTEMPTS, 0, -1):
        try:
            return _listen_on(addresses, port, backlog)
        except OSError as error:
            # With port 0, the port found on the first address may be in use on another.
            if port or error.errno != errno.EADDRINUSE or left == 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def listen_again(addresses: Sequence[Address], backlog: int) -> list[socket.socket]:
    """Return sockets that listen on the same addresses again; raise OSError if one is in use."""
    with ExitStack() as opened:
        listeners = [_listener(address, backlog, opened) for address in addresses]
        opened.pop_all()
    return listeners


def addresses_of(listeners: Sequence[socket.socket]) -> list[Address]:
    """Return the addresses of *listeners*; a Unix socket has none."""
    return [
        listener.getsockname()[:2] for listener in listeners if listener.family != socket.AF_UNIX
    ]


def reached_at(addresses: Sequence[Address]) -> Address:
    """Choose, from the addresses listened on, the one to announce; IPv4 is preferred.

    For an unspecified address that is the address of this machine's name, if it has one of a family
    listened on; else the loopback address.
    """
    assert addresses, "a service listens somewhere"
    host, port = min(addresses, key=lambda address: ":" in address[0])
    if not ip_address(host.partition("%")[0]).is_unspecified:
        return host, port
    families = {":" in listened for listened, _ in addresses}
    own = [ip for ip in _own_addresses() if (":" in ip) in families]
    return (own[0] if own else "::1" if ":" in host else "127.0.0.1"), port


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches *host*, so that no name has to be resolved."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def url_of(address: Address, scheme: str) -> str:
    """Return the URL of a service at *address*, an IPv6 address in brackets."""
    host, port = address
    return f"{scheme}://{shown_host(host)}:{port}"


def shown_host(host: str) -> str:
    """Return *host* as written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def bare_host(text: str) -> str:
    """Return the host that a setting names; the inverse of :func:`shown_host`.

    An IPv6 address may stand in brackets, as it does in a URL: no resolver takes it so.
    """
    bare = text.removeprefix("[").removesuffix("]")
    return bare if text == shown_host(bare) else text


def _addresses_of(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    hosts = [str(place[0]) for _, _, _, _, place in found]
    if _EVERY_V6 in hosts:
        hosts.append(_EVERY_V4)
    return [(host, port) for host in dict.fromkeys(hosts)]


def _listen_on(addresses: Sequence[Address], port: int, backlog: int) -> list[socket.socket]:
    listeners: list[socket.socket] = []
    missing: dict[str, OSError] = {}
    with ExitStack() as opened:
        for host, _ in addresses:
            try:
                listener = _listener((host, port), backlog, opened)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing[host] = error
            else:
                listeners.append(listener)
                port = listener.getsockname()[1]
        if not listeners:
            raise next(iter(missing.values()))
        opened.pop_all()
    for host, refusal in missing.items():
        _log.warning("address of the name skipped", address=host, why=refusal.strerror)
    return listeners


def _listener(address: Address, backlog: int, opened: ExitStack) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # create_server makes IPv6 sockets IPv6-only, whatever the kernel's default.
    listener = socket.create_server((host, port), family=family, backlog=backlog)
    return opened.enter_context(listener)


def _own_addresses() -> list[str]:
    """Return the addresses of this machine's name, IPv4 first."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    # IPv4 first: other tools handle it more easily.
    places = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    hosts = [str(place[0]).partition("%")[0] for _, _, _, _, place in places]
    return [host for host in hosts if not ip_address(host).is_unspecified]
