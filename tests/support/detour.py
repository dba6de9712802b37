"""A client that reaches services by other ways than the routes say, such as through a proxy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import eruca
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.transport import HttpResponse, HttpTransport
from eruca.contract.records import Buffer


class Detour:
    """Sends each request on, to another URL where *ways* knows one.

    Args:
        transport: What carries the requests.
        ways: URLs to go to, by the URLs that are asked for.
    """

    def __init__(self, transport: HttpTransport, ways: Mapping[str, str]) -> None:
        self._transport = transport
        self._ways = ways

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> HttpResponse:
        """Return the answer, within *timeout* seconds."""
        url = self._ways.get(url, url)
        return await self._transport.request(
            method, url, target, headers=headers, body=body, timeout=timeout
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.close()


def client_by(ways: Mapping[str, str], namesrv_urls: list[str]) -> eruca.AsyncClient:
    """Return a client whose requests, all of them, go by *ways*."""
    return eruca.AsyncClient(
        namesrv_urls,
        hot_transport=Detour(Http1Transport(), ways),
        transport=Detour(Http1Transport(), ways),
        timeout_seconds=3,
    )
