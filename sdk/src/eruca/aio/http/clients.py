"""The one module that makes HTTP clients, each with the credentials of its requests.

A house test finds clients that are made anywhere else. Two kinds are enough:

- :func:`http1_transport` for requests whose answers are read as a whole;
- :func:`httpx_client` for answers that are read as a stream, and for unusual requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eruca.aio.http.authorized import authorized
from eruca.aio.http.credentials import Credentials
from eruca.aio.http.http1 import CONNECTIONS_MAX, Http1Transport
from eruca.aio.http.transport import HttpTransport

if TYPE_CHECKING:
    import httpx


def http1_transport(
    credentials: Credentials, *, connections_max: int = CONNECTIONS_MAX
) -> HttpTransport:
    """Return a transport: the SDK's own HTTP/1.1 client.

    Args:
        credentials: For its requests.
        connections_max: Maximum number of connections to one server.
    """
    transport = Http1Transport(credentials=credentials, connections_max=connections_max)
    return authorized(transport, credentials)


def httpx_client(
    credentials: Credentials, *, timeout: float | None = None, limits: httpx.Limits | None = None
) -> httpx.AsyncClient:
    """Return an httpx client, which follows no redirects.

    Args:
        credentials: For its requests.
        timeout: Seconds for each step of a request that has no timeout of its own.
        limits: Limits of its connections; None: httpx's defaults.
    """
    # Here, because httpx takes 0.1 s to load.
    from eruca.aio.http.httpx_carrier import AuthorizedCarrier, client_over

    options = {} if limits is None else {"limits": limits}
    return client_over(AuthorizedCarrier(credentials, **options), timeout=timeout)
