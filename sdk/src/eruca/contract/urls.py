"""Validate the URLs at which services announce themselves: a server, without a path."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from eruca.contract.records import PORT_MAX

# A resolvable name; a name in another alphabet is written as xn--….
URL_PATTERN: Final = (
    r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?)"
    r"(?::([0-9]{1,5}))?$"
)
_URL: Final = re.compile(URL_PATTERN)
_NAME_SIZE_MAX: Final = 254  # characters of a name in the DNS, with a dot at its end


def checked_url(url: str) -> str:
    """Return *url* if a client could connect to it.

    Raises:
        ValueError: The URL is invalid; the text describes a valid one and does not repeat it.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(
            "expected http(s)://HOST or http(s)://HOST:PORT; HOST is a name, an IPv4 address, or "
            "an IPv6 address in brackets"
        )
    host, port = match.groups()
    if port is not None and not 1 <= int(port) <= PORT_MAX:
        raise ValueError(f"expected a port from 1 to {PORT_MAX}, found {port}")
    try:
        if host.startswith("["):
            IPv6Address(host[1:-1])
        elif host.replace(".", "").isdigit():  # resolvers read such a name as an address
            IPv4Address(host)
    except AddressValueError:
        raise ValueError(f"expected an IP address or a name, found {host}") from None
    if len(host) > _NAME_SIZE_MAX:
        raise ValueError(f"a name has at most {_NAME_SIZE_MAX} characters")
    return url
