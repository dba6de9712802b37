"""The one module that makes HTTP clients, each with the credentials of its requests.

A house test finds clients that are made anywhere else. Three kinds are enough:

- :func:`http1_transport` for hot routes and held requests;
- :func:`httpx_transport` for all other requests: administration, name servers, registration;
- :func:`httpx_client` for answers that are read as a stream, and for unusual requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eruca.aio.http.credentials import Credentials
from eruca.aio.http.http1 import CONNECTIONS_MAX, Http1Transport
from eruca.aio.http.transport import HttpTransport, HttpxTransport

if TYPE_CHECKING:
    import httpx


def http1_transport(
    credentials: Credentials, *, connections_max: int = CONNECTIONS_MAX
) -> HttpTransport:
    """Return a transport for hot routes and held requests.

    Args:
        credentials: For its requests.
        connections_max: Maximum number of connections to one server.
    """
    return Http1Transport(credentials=credentials, connections_max=connections_max)


def httpx_transport(credentials: Credentials) -> HttpTransport:
    """Return a transport for everything that is not hot."""
    return HttpxTransport(credentials=credentials)


def httpx_client(
    credentials: Credentials, *, timeout: float | None = None, limits: httpx.Limits | None = None
) -> httpx.AsyncClient:
    """Return an httpx client, which follows no redirects.

    Args:
        credentials: For its requests.
        timeout: Seconds for each step of a request that has no timeout of its own.
        limits: Limits of its connections; None: httpx's defaults.
    """
    from eruca.aio.http.httpx_carrier import Carrier, client_over  # httpx takes 0.1 s to load

    options = {} if limits is None else {"limits": limits}
    return client_over(Carrier(credentials, **options), timeout=timeout)
