"""Other sites' pages: decide which of them may call this service from a browser.

A browser lets any page send requests to any address, even to its own machine. It sends ``Origin``,
the site of the page, and ``Sec-Fetch-Site``, how that site relates to the service:

- pages of *allowed* sites, such as the docs explorer's, may call everything and read all answers,
  head and body; the browser's preflight is granted;
- pages of other sites may read nothing, and a foreign page's request that could change something is
  refused. Otherwise any page could write through a service on its reader's machine or network;
- a request without ``Origin`` is not checked here: it is not from a browser, or its page is the
  service's own.

``Sec-Fetch-Site`` is sent only over HTTPS and to the browser's own machine. Without it a page is
foreign if its host differs from the request's Host. Ports are ignored, as in a browser's notion of
a site.

So no GET may change anything: an image on a foreign page is fetched by GET, and over plain HTTP to
another machine that request does not name its origin.

Source: Fetch Standard, "CORS protocol"; W3C Fetch Metadata Request Headers; RFC 9110 section 9.2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from eruca.contract.errors import CrossSiteError
from eruca_chassis.asgi import Header, Message, Scope, Send, header, request_id_header

PREFLIGHT_SECONDS: Final = 600  # for which a browser may cache a grant
HARMLESS_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_NO_CONTENT: Final = 204
_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?/?")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def origins_of(text: str) -> frozenset[str]:
    """Parse origins separated by semicolons.

    Raises:
        ValueError: One is not ``http(s)://HOST[:PORT]``.
    """
    return frozenset(origin_of(part.strip()) for part in text.split(";") if part.strip())


def origin_of(url: str) -> str:
    """Normalize *url*, which must be a bare origin, to the form that browsers send.

    Raises:
        ValueError: It is not ``http(s)://HOST[:PORT]``.
    """
    match = _ORIGIN.fullmatch(url.lower())
    if match is None:
        raise ValueError(f"expected http(s)://HOST:PORT, found {url!r}; separate several by ';'")
    scheme, host, port = match.groups()
    is_shown = port is not None and int(port) != _DEFAULT_PORTS[scheme]
    return f"{scheme}://{host}:{int(port)}" if is_shown else f"{scheme}://{host}"


class CrossOrigin:
    """The rules for pages that this service did not serve.

    Args:
        allowed: The sites whose pages may call it, as returned by :func:`origins_of`.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(origin.encode() for origin in allowed)

    def allows(self, scope: Scope) -> bool:
        """Return whether the request comes from a page of an allowed site."""
        return header(scope, b"origin") in self._allowed

    def check(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a foreign page's request that could change something.

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
    """Return whether the request is a preflight: a browser asks what it may send."""
    asked = header(scope, b"access-control-request-method")
    return scope["method"] == "OPTIONS" and asked is not None


def sender_with_grant(scope: Scope, send: Send) -> Send:
    """Wrap *send* to tell the browser that the page may read the answer."""
    grant = _grant(scope)

    async def send_granted(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *grant]}
        await send(message)

    return send_granted


async def send_preflight(send: Send, methods: Sequence[str], request_id: str) -> int:
    """Grant *methods* with any headers; return the status."""
    headers = [
        request_id_header(request_id),
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-allow-headers", b"*, authorization"),  # no * covers authorization
        (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
    ]
    await send({"type": "http.response.start", "status": _NO_CONTENT, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
    return _NO_CONTENT


def _is_foreign(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the request comes from a page of another site."""
    origin, distance = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    if distance is not None:
        return distance == b"cross-site"
    if origin is None:
        return False
    page, service = _host_of(origin), _host_of(b"http://" + headers.get(b"host", b""))
    return page is None or page != service


def _host_of(url: bytes) -> str | None:
    """Return the host in *url*; None if it is not an origin, such as the ``null`` of a sandbox."""
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
