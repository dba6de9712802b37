"""The host names that a service accepts, as a defence against DNS rebinding.

A page's script may call the host that the page came from. If the page's owner points that name to
127.0.0.1 or to a machine in the reader's network (*DNS rebinding*), the script calls whatever
listens there, and the browser considers both the same site. The ``Host`` header reveals it. So a
request must be for one of

- an IP address in the form of RFC 3986: no DNS name looks like one;
- ``localhost`` or a name below it, for which no DNS server is asked (RFC 6761 section 6.3);
- a name under which the service is announced, or on which it listens;
- a name in its setting ``allowed_hosts``; ``*.example.com`` there is any name below that one.

Ports are ignored: a proxy, a tunnel or a container maps them, and a page cannot use them to reach
another name. Case and a dot at the end of a name are ignored, too.

Source: RFC 9110 sections 7.2, 7.4 and 15.5.20; RFC 9112 section 3.2; RFC 3986 section 3.2.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from eruca.contract.errors import RequestError, UnknownHostError
from eruca.contract.errors.shown import shown

_PORT_MAX: Final = 65_535
_KNOWN_MAX: Final = 256  # cached values of Host
_HOST: Final = re.compile(
    rb"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)(?:%[A-Za-z0-9._~%-]+)?\]"  # curl sends the zone, too
    rb"|(?P<name>(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})+))"
    rb"(?::(?P<port>[0-9]{0,5}))?"
)
_ALLOWED: Final = re.compile(r"(?:\*\.)?[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_LOCALHOST: Final = "localhost"


def hosts_of(text: str) -> tuple[str, ...]:
    """Parse host names separated by semicolons.

    Raises:
        ValueError: One is neither ``NAME`` nor ``*.NAME``.
    """
    names = tuple(part.strip().lower() for part in text.split(";") if part.strip())
    for name in names:
        if _ALLOWED.fullmatch(name) is None:
            raise ValueError(
                f"expected NAME or *.NAME, found {name!r}; write it without http:// and port, and "
                "separate several by ';'"
            )
    return names


class AllowedHosts:
    """The hosts for which requests are accepted.

    Args:
        names: Names in addition to IP addresses and ``localhost``, as from :func:`hosts_of`.
        setting: The setting's name, for error texts.
    """

    def __init__(self, names: Iterable[str] = (), setting: str = "allowed_hosts") -> None:
        names = [name.lower().removesuffix(".") for name in names]
        self._names = frozenset((_LOCALHOST, *names))
        suffixes = (name[1:] for name in names if name.startswith("*."))
        self._suffixes = (f".{_LOCALHOST}", *suffixes)
        self._setting = setting
        self._known: set[bytes] = set()

    def check(self, host: bytes | None, http_version: str) -> None:
        """Refuse a request whose ``Host`` is not allowed.

        Args:
            host: The header's value; several are joined by commas.
            http_version: Of the request: 1.0 has no Host, and no browser uses it.

        Raises:
            RequestError: The header is missing, repeated or malformed.
            UnknownHostError: The host is not this service's.
        """
        if host in self._known or (host is None and http_version == "1.0"):
            return
        if host is None:
            raise RequestError(
                "the request has no Host header",
                fix="send one Host header with the host and port of the request",
            )
        match = _HOST.fullmatch(host)
        if match is None or not _is_sound(match):
            raise RequestError(
                f"expected HOST or HOST:PORT in one Host header, found {_shown(host)}",
                fix="send one Host header with the host and port of the request",
            )
        name = (match["name"] or b"").decode().lower()
        if not match["ipv6"] and not self._is_allowed(name):
            raise UnknownHostError(
                f"{_shown(match['name'])} is not a name of this service",
                fix=f"use its IP address; or add the name to its setting {self._setting}",
            )
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known.add(host)

    def _is_allowed(self, name: str) -> bool:
        if _is_ipv4(name):
            return True
        name = name.removesuffix(".")
        return name in self._names or name.endswith(self._suffixes)


def _is_sound(match: re.Match[bytes]) -> bool:
    if match["port"] and int(match["port"]) > _PORT_MAX:
        return False
    if match["ipv6"]:
        try:
            IPv6Address(match["ipv6"].decode())
        except AddressValueError:
            return False
    return True


def _is_ipv4(name: str) -> bool:
    """Return whether *name* is an IPv4 address; other spellings of resolvers do not count."""
    try:
        IPv4Address(name)
    except AddressValueError:
        return False
    return True


def _shown(host: bytes) -> str:
    # Without a user and a password, which may be a key.
    return repr(shown(host.rpartition(b"@")[2].decode("latin-1")))
