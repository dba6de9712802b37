"""Credentials: the identity behind a request, and the TLS context of its connection.

Every request of the SDK, the command line and the services goes through one of two classes:
:class:`eruca.aio.http.http1.Http1Transport`, or the :class:`eruca.aio.http.httpx_carrier.Carrier`
under httpx. Both use the credentials that they were made with (:mod:`eruca.aio.http.clients`).
Requests carry no credentials yet: :class:`Anonymous` is the only implementation.

To add a scheme (API key, bearer token, client certificate), write its class here and return it from
:func:`credentials_of`. No caller changes. Spark does not use this module and has the same interface
of its own (``pyspark_eruca.service``).
"""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import threading
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

# by process: a forked child must not inherit a held lock
_locks: Final[dict[int, threading.Lock]] = {}


class Credentials(Protocol):
    """The identity behind the requests to a server.

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
            url: The server's URL: scheme, host and port.

        Raises:
            ErucaError: No valid credentials are available now. The request is not sent.
        """
        ...

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the context of a new ``https://`` connection: authorities, client certificate."""
        ...


class Anonymous:
    """No credentials: requests are anonymous.

    Args:
        ssl_context: For ``https://`` URLs; None: trust the system's certificate authorities.
    """

    has_headers: Final = False

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl_context = ssl_context

    async def headers(self, url: str) -> Sequence[tuple[str, str]]:
        """Return none."""
        return ()

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the given context, or the one that trusts the system's certificate authorities."""
        return self._ssl_context or await trusted_context()


ANONYMOUS: Final = Anonymous()
"""For other servers than Eruca's, such as webhooks: they must not receive our credentials."""


def credentials_of(
    environment: Mapping[str, str], *, ssl_context: ssl.SSLContext | None = None
) -> Credentials:
    """Return the credentials of a process for Eruca's services.

    Args:
        environment: The process's environment; no variable selects a scheme yet.
        ssl_context: For ``https://`` URLs, if the program has one.
    """
    return Anonymous(ssl_context)


async def trusted_context() -> ssl.SSLContext:
    """Return the process's context, which trusts the system's certificate authorities.

    Nothing is loaded before the first ``https://`` URL. Loading the authorities takes 0.2 s of CPU
    time. On the event loop it would delay every request. So a thread loads them once per process,
    and all connections share them.
    """
    if _loaded.cache_info().currsize:
        return _loaded()
    return await asyncio.to_thread(_load)


def _load() -> ssl.SSLContext:
    # With the cache alone, clients that start together would each load them.
    with _locks.setdefault(os.getpid(), threading.Lock()):
        return _loaded()


@functools.cache
def _loaded() -> ssl.SSLContext:
    return ssl.create_default_context()
