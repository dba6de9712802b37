"""Requests with credentials: one place adds their headers and reacts to a refusal.

A server that answers 401 has done nothing. The credentials are renewed then (a file is read again,
a token fetched), and the request is sent once more if they differ from the refused ones. Otherwise,
and after a second 401, the answer goes to the caller. So neither a rotated key nor a token that was
revoked before its end is visible to a program, and a key that is wrong costs one request.

A program may go on after a refusal, and ask again at once. So the requests to a server that has
refused the same credentials several times wait, for a time that doubles up to
:data:`REST_SECONDS_MAX`. The first refusal reaches its caller without a pause.

A service that does not know the key of a token's issuer yet answers 401 with a short Retry-After:
it fetches the issuer's keys meanwhile. Such a request is sent once more after that pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from eruca.aio.http.credentials import Credentials, Headers, pause_of
from eruca.aio.http.transport import HttpResponse, HttpTransport, leads_to, pipe_of
from eruca.contract.errors import TimeoutExpiredError, UnauthenticatedError
from eruca.contract.records import Buffer
from eruca.core.pauses import doubled

REST_SECONDS: Final = 0.1  # after the second refusal of the same credentials; doubles
REST_SECONDS_MAX: Final = 5.0
UNAUTHENTICATED: Final = UnauthenticatedError.status


class _Refused(NamedTuple):
    """The last refusal of a server."""

    headers: Headers  # that were refused
    times: int  # in succession
    retry_at: float  # by the event loop's clock


class AuthorizedTransport:
    """The transport interface over another transport; each request has its credentials' headers.

    Args:
        transport: Sends the requests.
        credentials: For the requests; those without headers do not need this class.
    """

    def __init__(self, transport: HttpTransport, credentials: Credentials) -> None:
        self.transport = transport
        self._credentials = credentials
        self._refused: dict[str, _Refused] = {}  # by URL; empty while all is well

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
        deadline = asyncio.get_running_loop().time() + timeout
        added = await self._headers(url, deadline)
        if url in self._refused:
            added = await self._rested(url, added, deadline)
        answer = await self.transport.request(
            method, url, target, headers=(*headers, *added), body=body, timeout=timeout
        )
        if answer.status != UNAUTHENTICATED:
            if self._refused:
                self._refused.pop(url, None)
            return answer
        if not await self._renewed(added, deadline) and not await self._paused(answer, deadline):
            self._note_refusal(url, added)
            return answer
        added = await self._headers(url, deadline)
        return await self.transport.request(
            method,
            url,
            target,
            headers=(*headers, *added),
            body=body,
            timeout=max(deadline - asyncio.get_running_loop().time(), 0.0),
        )

    def pipe(self) -> HttpTransport | None:
        """Return a transport over one connection, with the same credentials."""
        pipe = pipe_of(self.transport)
        return None if pipe is None else AuthorizedTransport(pipe, self._credentials)

    def leads_to(self, url: str) -> bool:
        """Tell whether the one connection, of a :meth:`pipe`, leads to *url*."""
        return leads_to(self.transport, url)

    def _note_refusal(self, url: str, refused: Headers) -> None:
        before = self._refused.get(url)
        count = before.times + 1 if before is not None and before.headers == refused else 1
        rest = doubled(REST_SECONDS, count - 2, REST_SECONDS_MAX) if count > 1 else 0.0
        now = asyncio.get_running_loop().time()
        self._refused[url] = _Refused(refused, count, now + rest)

    async def _rested(self, url: str, added: Headers, deadline: float) -> Headers:
        """Wait until a server may be asked again; return the headers to ask it with."""
        refused = self._refused[url]
        now = asyncio.get_running_loop().time()
        rest = min(refused.retry_at - now, (deadline - now) / 2)
        if refused.headers != added or rest <= 0:
            return added
        await asyncio.sleep(rest)
        return await self._headers(url, deadline)

    async def close(self) -> None:
        """Close every connection; requests under way fail."""
        await self.transport.close()

    async def _headers(self, url: str, deadline: float) -> Headers:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._credentials.headers(url)
        except TimeoutError:
            raise TimeoutExpiredError(f"{url}: no credentials before the deadline") from None

    async def _renewed(self, refused: Headers, deadline: float) -> bool:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._credentials.renew(refused)
        except TimeoutError:
            return False

    @staticmethod
    async def _paused(refusal: HttpResponse, deadline: float) -> bool:
        """Wait as long as a service needs to know the token's key; return whether it was waited."""
        seconds = pause_of(refusal.headers.get("retry-after"))
        if seconds is None or asyncio.get_running_loop().time() + seconds >= deadline:
            return False
        await asyncio.sleep(seconds)
        return True


def authorized(transport: HttpTransport, credentials: Credentials) -> HttpTransport:
    """Return *transport* with the headers of *credentials*; itself if they have none."""
    return AuthorizedTransport(transport, credentials) if credentials.has_headers else transport
