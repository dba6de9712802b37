"""Who sent a request, as records name it."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from eruca.contract.records import NO_HOST, Host
from eruca_chassis.asgi import Scope


def born_host(scope: Scope) -> Host:
    """Return the peer's address; all zeros where the server does not know it."""
    client = scope.get("client")
    if client is None:
        return NO_HOST
    address = _address(client[0])
    return NO_HOST if address is None else Host(address, client[1])


@lru_cache(maxsize=4096)
def _address(text: str) -> bytes | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed  # an IPv4 client of a socket that takes both
    return address.packed
