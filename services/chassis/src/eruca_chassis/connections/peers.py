"""The address of a client behind a proxy, as the proxy on a Unix socket says it.

A proxy on the same machine may be believed, because only it may open the socket (its mode and its
directory decide that). Nothing of this module is ever used for a TCP connection: there, every
client could claim any address.

- *PROXY protocol, version 2*: a binary head before the first request. One connection of the proxy
  carries one client's requests.
- *Forwarded* (RFC 7239): a header of each request. The proxy must set it and drop what the client
  sent. If there are several addresses the last one counts, which the nearest proxy added.

Source: HAProxy's proxy-protocol.txt, section 2.2; RFC 7239 sections 4 and 6.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final, Literal, TypeAlias

Peer: TypeAlias = tuple[str, int]
PeerSource: TypeAlias = Literal["none", "proxy_protocol", "forwarded"]

HEAD_SIZE: Final = 16  # bytes of a PROXY head before its addresses
ADDRESSES_SIZE_MAX: Final = 4_096  # bytes; an address needs 36, extensions follow
_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_HEAD: Final = struct.Struct("!12sBBH")  # signature; version, command; family; size of the rest
_VERSION: Final = 0x2
_LOCAL: Final = 0x0  # command: of the proxy itself, such as a health check
_PROXIED: Final = 0x1
_FAMILIES: Final = {0x11: ("!4s4sHH", 12), 0x21: ("!16s16sHH", 36)}  # TCP over IPv4, IPv6
_FOR: Final = re.compile(r'for=(?:"([^"]*)"|([^;,\s"]+))', re.IGNORECASE)
_NODE: Final = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:]+))(?::(?P<port>[0-9]{1,5}))?")


def rest_size(head: bytes) -> int:
    """Return how many bytes of a PROXY head follow its first ``HEAD_SIZE``.

    Raises:
        ValueError: It is no head of version 2.
    """
    signature, version_command, _, size = _HEAD.unpack(head)
    if signature != _SIGNATURE or version_command >> 4 != _VERSION:
        raise ValueError("expected a PROXY protocol head, version 2")
    if size > ADDRESSES_SIZE_MAX:
        raise ValueError(f"a PROXY protocol head exceeds {ADDRESSES_SIZE_MAX} bytes")
    return int(size)


def peer_of(head: bytes, rest: bytes) -> Peer | None:
    """Return the client that a PROXY head names; None: the proxy itself, or another family.

    Raises:
        ValueError: The head is invalid.
    """
    _, version_command, family, size = _HEAD.unpack(head)
    command = version_command & 0x0F
    if command not in (_LOCAL, _PROXIED):
        raise ValueError("a PROXY protocol head has an unknown command")
    if command == _LOCAL or family not in _FAMILIES:
        return None
    form, needed = _FAMILIES[family]
    if size < needed:
        raise ValueError("a PROXY protocol head is too short for its addresses")
    source, _, port, _ = struct.unpack(form, rest[:needed])
    return str(ip_address(source)), port


def forwarded_peer(values: Iterable[bytes]) -> Peer | None:
    """Return the client that the last ``for`` of *Forwarded* headers names; None: no address."""
    found = _FOR.findall(",".join(value.decode("latin-1") for value in values))
    if not found:
        return None
    text = found[-1][0] or found[-1][1]
    node = _NODE.fullmatch(text)
    host, port = (text, "0") if node is None else (node["v6"] or node["v4"], node["port"] or "0")
    try:
        return str(ip_address(host)), int(port)
    except ValueError:  # "unknown", or a name that the proxy made up
        return None
