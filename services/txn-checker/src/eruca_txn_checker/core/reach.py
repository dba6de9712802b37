"""Which addresses a webhook may be at.

Whoever may set a webhook makes this service send requests, from where it stands. So by default it
calls public addresses alone: not the private network around it, and never its own machine or what
answers only to the machine itself, such as a cloud's metadata at 169.254.169.254.
"""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
_NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address


class Reach(StrEnum):
    """How far webhooks may be called; each includes those before it."""

    PUBLIC = "public"
    PRIVATE = "private"  # 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7 …
    MACHINE = "machine"  # 127.0.0.0/8, ::1


def is_within(text: str, reach: Reach) -> bool:
    """Tell whether the address *text* may be called."""
    address = _real(ip_address(text.partition("%")[0]))
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return False
    if address.is_loopback:
        return reach is Reach.MACHINE
    return address.is_global or (reach is not Reach.PUBLIC and not address.is_reserved)


def _real(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address leads to, where it is made to."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address
