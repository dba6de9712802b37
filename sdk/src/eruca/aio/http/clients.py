"""The one place where HTTP clients are made, each with the credentials of its requests.

A house test finds every client that is made elsewhere. Three kinds are enough:

- :func:`http1_transport` for hot routes and held requests;
- :func:`httpx_transport` for the rest: administration, name servers, registration;
- :func:`httpx_client` where an answer is read as a stream, or the request is no plain one.
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
        credentials: Of its requests.
        connections_max: To one server.
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
        credentials: Of its requests.
        timeout: Seconds for each step of a request that has no time-out of its own.
        limits: Of its connections; None: httpx's own.
    """
    from eruca.aio.http.httpx_carrier import Carrier, client_over  # httpx takes 0.1 s to load

    options = {} if limits is None else {"limits": limits}
    return client_over(Carrier(credentials, **options), timeout=timeout)
