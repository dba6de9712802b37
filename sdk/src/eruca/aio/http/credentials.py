"""The credentials seam: who makes a request, and which TLS context its connection uses.

Every request of the SDK, the command line and the services goes through one of two places:
:class:`eruca.aio.http.http1.Http1Transport`, or the :class:`eruca.aio.http.httpx_carrier.Carrier`
under httpx. Both ask the credentials that they were made with (:mod:`eruca.aio.http.clients`).
Requests carry no credentials yet: :class:`Anonymous` is the only implementation.

To add a scheme (API key, bearer token, client certificate), write its class here and let
:func:`credentials_of` choose it. No caller changes. Spark needs nothing of ours and has its own
seam of the same form (``pyspark_eruca.service``).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from eruca.aio.http.tls import trusted_context


class Credentials(Protocol):
    """Says who makes a request to a server.

    Attributes:
        has_headers: Whether :meth:`headers` can return any; constant. Transports read it once, so
            requests without credentials cost nothing.
    """

    @property
    def has_headers(self) -> bool:
        """True if requests carry headers of these credentials."""
        ...

    async def headers(self, url: str) -> Sequence[tuple[str, str]]:
        """Return the headers to add to one request.

        Args:
            url: The server's: scheme, host and port.

        Raises:
            ErucaError: There are none that are valid now. The request is not sent.
        """
        ...

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the context of a new ``https://`` connection: authorities, client certificate."""
        ...


class Anonymous:
    """No credentials: requests say nothing about who makes them.

    Args:
        ssl_context: For ``https://`` URLs; None: the system's authorities are trusted.
    """

    has_headers: Final = False

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl_context = ssl_context

    async def headers(self, url: str) -> Sequence[tuple[str, str]]:
        """Return none."""
        return ()

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the given context, or the one that trusts the system's authorities."""
        return self._ssl_context or await trusted_context()


ANONYMOUS: Final = Anonymous()
"""For servers that are not Eruca's, such as webhooks: they must not learn our credentials."""


def credentials_of(
    environment: Mapping[str, str], *, ssl_context: ssl.SSLContext | None = None
) -> Credentials:
    """Return the credentials that a process uses towards Eruca's services.

    Args:
        environment: The process's; no variable of it names a scheme yet.
        ssl_context: For ``https://`` URLs, where the program brings one.
    """
    return Anonymous(ssl_context)
