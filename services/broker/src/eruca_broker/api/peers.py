"""The sender of a request, in the form of records."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from eruca.contract.records import NO_HOST, Host


@lru_cache(maxsize=4096)
def born_address(client: tuple[str, int] | None) -> bytes:
    """Return :func:`born_host` as records contain it."""
    return born_host(client).encode()


def born_host(client: tuple[str, int] | None) -> Host:
    """Return a peer's address; all zeros if the server does not know it."""
    return NO_HOST if client is None else _host(client)


@lru_cache(maxsize=4096)
def _host(client: tuple[str, int]) -> Host:
    text, port = client
    try:
        address = ip_address(text)
    except ValueError:
        return NO_HOST
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # an IPv4 client of a socket that accepts both families
    return Host(address.packed, port)
