"""httpx transports: one for ``http://``, and one for ``https://`` that is made at its first use.

httpx's constructor makes a TLS context for every client, whatever its URLs. A client with
``transport=Carrier(…)`` loads nothing of TLS until a URL needs it, and then in a thread.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import httpx

from eruca.aio.http.credentials import ANONYMOUS, Credentials, pause_of
from eruca.contract.errors import UnauthenticatedError


class Carrier(httpx.AsyncBaseTransport):
    """Carries requests of both schemes; belongs to the event loop that uses it.

    Args:
        credentials: For the TLS context; if it changes, later requests use new connections.
        options: Additional arguments of ``httpx.AsyncHTTPTransport``.
    """

    def __init__(self, credentials: Credentials = ANONYMOUS, **options: Any) -> None:  # noqa: ANN401
        self._credentials = credentials
        self._options = {"trust_env": False, **options}
        # This context trusts nobody: if it were ever used for TLS, the handshake would fail.
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._plain = httpx.AsyncHTTPTransport(verify=nobody, **self._options)
        self._context: ssl.SSLContext | None = None
        self._encrypted: httpx.AsyncHTTPTransport | None = None
        # The transport of the former context. Its last answers are still read, so it is closed when
        # the context changes once more, or at the end.
        self._former: httpx.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* over the transport for its scheme."""
        if request.url.scheme != "https":
            return await self._plain.handle_async_request(request)
        context = await self._credentials.ssl_context()
        if self._encrypted is None or context is not self._context:
            outdated, self._former = self._former, self._encrypted
            self._context = context
            self._encrypted = httpx.AsyncHTTPTransport(verify=context, **self._options)
            if outdated is not None:
                await outdated.aclose()
        return await self._encrypted.handle_async_request(request)

    async def aclose(self) -> None:
        """Close every connection."""
        for transport in (self._plain, self._former, self._encrypted):
            if transport is not None:
                await transport.aclose()


class AuthorizedCarrier(Carrier):
    """A carrier that adds the headers of its credentials to each request.

    After an answer 401 it renews them and sends the request once more, as
    :class:`eruca.aio.http.authorized.AuthorizedTransport` does. A body that is a stream can be read
    only once, so such a request is not repeated.
    """

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* with the headers of the credentials."""
        if not self._credentials.has_headers:
            return await super().handle_async_request(request)
        url = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
        headers = await self._credentials.headers(url)
        request.headers.update(headers)
        answer = await super().handle_async_request(request)
        if answer.status_code != UnauthenticatedError.status or not isinstance(
            request.stream, httpx.ByteStream
        ):
            return answer
        if not await self._credentials.renew(headers):
            seconds = pause_of(answer.headers.get("retry-after"))
            if seconds is None:
                return answer
            await asyncio.sleep(seconds)
        await answer.aclose()
        request.headers.update(await self._credentials.headers(url))
        return await super().handle_async_request(request)


def client_over(carrier: Carrier, *, timeout: float | None = None) -> httpx.AsyncClient:
    """Return an httpx client over *carrier*; it follows no redirects and ignores ``HTTP_PROXY``.

    The SDK's own HTTP/1.1 client ignores it as well. Otherwise their requests would take different
    routes.

    Args:
        carrier: Carries its requests; closed with it.
        timeout: Seconds for each step of a request that has no timeout of its own.
    """
    return httpx.AsyncClient(transport=carrier, timeout=timeout, trust_env=False)
