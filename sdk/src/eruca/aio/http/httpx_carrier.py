"""httpx transports: one for ``http://``, and one for ``https://`` that is made at its first use.

httpx's constructor makes a TLS context for every client, whatever its URLs. A client with
``transport=Carrier(…)`` loads nothing of TLS until a URL needs it, and then in a thread.
"""

from __future__ import annotations

import ssl
from typing import Any

import httpx

from eruca.aio.http.credentials import ANONYMOUS, Credentials


class Carrier(httpx.AsyncBaseTransport):
    """Carries requests of both schemes; belongs to the event loop that uses it.

    Args:
        credentials: For the requests. The TLS context is read once, at its first use.
        options: Additional arguments of ``httpx.AsyncHTTPTransport``.
    """

    def __init__(self, credentials: Credentials = ANONYMOUS, **options: Any) -> None:  # noqa: ANN401
        self._credentials = credentials
        self._options = {"trust_env": False, **options}
        # This context trusts nobody: if it were ever used for TLS, the handshake would fail.
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._plain = httpx.AsyncHTTPTransport(verify=nobody, **self._options)
        self._encrypted: httpx.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* over the transport for its scheme."""
        if self._credentials.has_headers:
            url = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
            request.headers.update(await self._credentials.headers(url))
        if request.url.scheme != "https":
            return await self._plain.handle_async_request(request)
        if self._encrypted is None:
            context = await self._credentials.ssl_context()
            # A concurrent request may have made it meanwhile.
            if self._encrypted is None:
                self._encrypted = httpx.AsyncHTTPTransport(verify=context, **self._options)
        return await self._encrypted.handle_async_request(request)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._plain.aclose()
        if self._encrypted is not None:
            await self._encrypted.aclose()


def client_over(carrier: Carrier, *, timeout: float | None = None) -> httpx.AsyncClient:
    """Return an httpx client over *carrier*; it follows no redirects and ignores ``HTTP_PROXY``.

    The SDK's own HTTP/1.1 client ignores it as well. Otherwise their requests would take different
    routes.

    Args:
        carrier: Carries its requests; closed with it.
        timeout: Seconds for each step of a request that has no timeout of its own.
    """
    return httpx.AsyncClient(transport=carrier, timeout=timeout, trust_env=False)
