"""Other sites' pages: which of them a browser may let call this service.

A browser lets any page send requests to any address, this machine's own included. It says so by
``Origin``, the site the page came from, and ``Sec-Fetch-Site``, how far away that is:

- pages of the *allowed* sites, such as the docs explorer's, may call everything and read what is
  answered, head and body; what the browser asks beforehand (a preflight) is granted;
- pages of other sites may read nothing, and from a foreign one nothing is taken that could change
  something. Otherwise any page could write through a service that listens on its reader's machine,
  or in its reader's network;
- what comes without ``Origin`` is none of this module's business: no browser sent it, or the page
  is the service's own.

``Sec-Fetch-Site`` is sent over HTTPS and to the browser's own machine alone. Without it a page is
foreign if its host is not the one that the request is for. Ports do not count, nor do they in what
browsers call a site.

So whatever changes something must not be a GET: a picture's address on a foreign page is fetched by
GET, and over plain HTTP to another machine nothing in that request says where it comes from.

Source: Fetch Standard, "CORS protocol"; W3C Fetch Metadata Request Headers; RFC 9110 section 9.2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from eruca.contract.errors import CrossSiteError
from eruca_chassis.asgi import Header, Message, Scope, Send, header, request_id_header

PREFLIGHT_SECONDS: Final = 600  # for which a browser may remember what it was granted
HARMLESS_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_NO_CONTENT: Final = 204
_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?/?")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def origins_of(text: str) -> frozenset[str]:
    """Return the origins in *text*, which are separated by semicolons.

    Raises:
        ValueError: One is not ``http(s)://HOST[:PORT]``.
    """
    return frozenset(origin_of(part.strip()) for part in text.split(";") if part.strip())


def origin_of(url: str) -> str:
    """Return *url*, which must be an origin and nothing more, as browsers write it.

    Raises:
        ValueError: It is not ``http(s)://HOST[:PORT]``.
    """
    match = _ORIGIN.fullmatch(url.lower())
    if match is None:
        raise ValueError(f"{url!r} is not http(s)://HOST:PORT; separate several by ';'")
    scheme, host, port = match.groups()
    is_shown = port is not None and int(port) != _DEFAULT_PORTS[scheme]
    return f"{scheme}://{host}:{int(port)}" if is_shown else f"{scheme}://{host}"


class CrossOrigin:
    """What a service answers to pages that it did not serve.

    Args:
        allowed: The sites whose pages may call it, as :func:`origins_of` returns them.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(origin.encode() for origin in allowed)

    def allows(self, scope: Scope) -> bool:
        """Tell whether the request comes from a page of an allowed site."""
        return header(scope, b"origin") in self._allowed

    def check(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what a foreign site's page must not do.

        Args:
            method: GET, POST ….
            headers: Names in lower case.

        Raises:
            CrossSiteError: The request could change something, and its site is not allowed.
        """
        if method in HARMLESS_METHODS or headers.get(b"origin") in self._allowed:
            return
        if _is_foreign(headers):
            raise CrossSiteError("a page of another site may not call this service")


def is_preflight(scope: Scope) -> bool:
    """Tell whether a browser only asks what it may send."""
    asked = header(scope, b"access-control-request-method")
    return scope["method"] == "OPTIONS" and asked is not None


def sender_with_grant(scope: Scope, send: Send) -> Send:
    """Return *send*, made to tell the browser that the page may read the answer."""
    grant = _grant(scope)

    async def send_granted(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *grant]}
        await send(message)

    return send_granted


async def send_preflight(send: Send, methods: Sequence[str], request_id: str) -> int:
    """Grant *methods* with any headers, and return the status."""
    headers = [
        request_id_header(request_id),
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-allow-headers", b"*"),
        (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
    ]
    await send({"type": "http.response.start", "status": _NO_CONTENT, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
    return _NO_CONTENT


def _is_foreign(headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether the request comes from a page of another site."""
    origin, distance = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    if distance is not None:
        return distance == b"cross-site"
    if origin is None:
        return False
    page, service = _host_of(origin), _host_of(b"http://" + headers.get(b"host", b""))
    return page is None or page != service


def _host_of(url: bytes) -> str | None:
    """Return the host in *url*; None where that is no origin, such as the ``null`` of a sandbox."""
    match = _ORIGIN.fullmatch(url.decode("latin-1").lower())
    return None if match is None else match[2]


def _grant(scope: Scope) -> list[Header]:
    origin = header(scope, b"origin")
    assert origin is not None
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"*"),
        (b"vary", b"Origin"),
    ]
