"""Decide which addresses webhooks may have.

A client that may set a webhook makes this service send requests from its place in the network. By
default it calls only public addresses: neither the private network around it nor its own machine.

The rule is an allow-list. An address is public if it is unicast, globally reachable and not of a
special purpose. It is private if it is in one of the networks below. Everything else is refused:
link-local, deprecated, reserved, documentation, tunnels whose end cannot be determined. So are the
metadata services of clouds, even at a private address: they hand out credentials.

An IPv6 address that a translator or tunnel maps to an IPv4 address is judged by that one.

Source: IANA IPv4 and IPv6 Special-Purpose Address Registries; RFC 6052 (NAT64), RFC 8215 (its
local-use prefix), RFC 3056 (6to4), RFC 4380 (Teredo), RFC 5214 (ISATAP), RFC 2765
(IPv4-translated), RFC 3879 (site-local); the clouds' documentation of their metadata services.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


class Reach(StrEnum):
    """The networks that webhooks may be in; each value includes those before it."""

    PUBLIC = "public"
    PRIVATE = "private"  # 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7
    MACHINE = "machine"  # 127.0.0.0/8, ::1


def _networks(*texts: str) -> Sequence[Network]:
    return [ip_network(text) for text in texts]


# Our own lists: ``is_global`` and ``is_private`` changed between patch versions of Python.
_MACHINE: Final = _networks("127.0.0.0/8", "::1/128")
_PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",  # carrier-grade NAT; clouds and overlays use it, too
    "172.16.0.0/12",
    "192.168.0.0/16",
    "fc00::/7",
)
_UNICAST: Final = _networks("0.0.0.0/0", "2000::/3")  # 2000::/3 is all that IANA has allocated
_SPECIAL: Final = _networks(  # within those, beside the networks above
    "0.0.0.0/8",
    "169.254.0.0/16",  # link-local; most clouds' metadata
    "192.0.0.0/24",  # Oracle Cloud's metadata at 192.0.0.192
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "2001::/23",  # IETF protocol assignments, Teredo among them
    "2001:db8::/32",
    "2620:4f:8000::/48",
    "3fff::/20",
)
_METADATA: Final = _networks(  # metadata services inside the allowed networks above
    "100.100.100.200/32",  # Alibaba Cloud
    "168.63.129.16/32",  # Azure's wire server
    "fd00:42::42/128",  # Scaleway
    "fd00:a9fe:a9fe::/64",  # Linode
    "fd00:ec2::/32",  # AWS: metadata, DNS, time, container credentials
    "fd20:ce::/32",  # Google Cloud
)
_NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
# RFC 5214: an interface identifier that ends with the IPv4 address of the tunnel's end; the second
# bit of 0200 says whether that address is unique.
_ISATAP: Final = 0x0000_5EFE
_ISATAP_MASK: Final = 0xFDFF_FFFF


def is_within(text: str, reach: Reach) -> bool:
    """Return whether the address *text* may be called."""
    address = ip_address(text.partition("%")[0])
    return all(_is_within(end, reach) for end in _ends(address))


def _is_within(address: Address, reach: Reach) -> bool:
    if _is_in(address, _METADATA):
        return False
    if _is_in(address, _MACHINE):
        return reach is Reach.MACHINE
    if _is_in(address, _PRIVATE):
        return reach is not Reach.PUBLIC
    return _is_in(address, _UNICAST) and not _is_in(address, _SPECIAL)


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _ends(address: Address) -> Sequence[Address]:
    """Return every address at which a request to *address* may arrive."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    last = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _NAT64:
        return [last]
    if (int(address) >> 32) & _ISATAP_MASK == _ISATAP:
        return [address, last]
    return [address]
