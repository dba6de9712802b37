"""The name servers: the client uses one while it answers, then the next.

All name servers know the same brokers, each from the brokers' own registrations. So a client works
while one of them is up, and losing the others costs only the time of one failed request. A server
that has just started and may lack routes (:class:`NameServerSettlingError`) counts as one that does
not answer. If no other server knows, all are asked again until the request times out.

A server without any live broker (:class:`NoLiveBrokerError`) cannot know topics, so it counts as
not answering, too. But if no other server knows, the request fails at once, because a broker's
start takes longer than a request's timeout. Callers with more time wait.

Source: RocketMQ 5.3, ``NettyRemotingClient.getAndCreateNameserverChannel``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import count
from typing import Final

from eruca.aio.http.transport import (
    HttpResponse,
    HttpTransport,
    late_connection,
    problem_error,
)
from eruca.contract.errors import (
    ErucaError,
    NameServerSettlingError,
    NameServersUnreachableError,
    NoLiveBrokerError,
    NotFoundError,
    TimeoutExpiredError,
    TransportError,
)
from eruca.contract.records import Buffer
from eruca.core.pauses import doubled

SETTLING_PAUSE_SECONDS: Final = 0.1  # before all are asked again; doubles
SETTLING_PAUSE_SECONDS_MAX: Final = 0.5
_SHARE_SECONDS_MIN: Final = 0.2  # for one name server, even if many are left to try


class NameServers:
    """Requests to one of several name servers."""

    def __init__(self, urls: Sequence[str], transport: HttpTransport) -> None:
        self._urls = tuple(urls)
        self._transport = transport
        # Error of the last round over all name servers; None if one has answered since.
        self.settling: NameServerSettlingError | None = None
        # Random, or all clients that start together would use the first server.
        self._current = random.randrange(len(self._urls))
        self._last_failure: str | None = None
        self._has_answered = False

    @property
    def urls(self) -> tuple[str, ...]:
        """All of them, as given."""
        return self._urls

    @property
    def current_url(self) -> str:
        """The one in use."""
        return self._urls[self._current]

    @property
    def silence(self) -> str:
        """Describe which server has not answered, for a caller that stops waiting."""
        hint = "" if self._has_answered else late_connection(self.current_url)
        before = f"; before that, {self._last_failure}" if self._last_failure else ""
        return f"{self.current_url} has not answered{hint}{before}"

    def rotate(self) -> None:
        """Switch to the next name server."""
        self._current = (self._current + 1) % len(self._urls)

    async def request(
        self,
        method: str,
        target: str,
        *,
        timeout: float,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        held_seconds: float = 0.0,
    ) -> HttpResponse:
        """Return the first answer with a status below 500.

        If no server knows, and one of them has just started, all are asked again within *timeout*.

        A server that has nothing at this path is not a name server; for example, it is a broker.

        Args:
            method: The HTTP method.
            target: The path and query.
            timeout: For all servers together, in seconds.
            headers: Additional headers.
            body: The request's body.
            held_seconds: How long the server may hold the request; added to *timeout*.

        Raises:
            NameServersUnreachableError: No server answered; the detail lists each failure.
            NameServerSettlingError: No server answered, and one of them has just started.
            NoLiveBrokerError: No server answered, and one of them knows no live broker.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        for attempt in count():
            try:
                answer = await self._asked(
                    method,
                    target,
                    deadline=deadline,
                    headers=headers,
                    body=body,
                    held_seconds=held_seconds,
                )
            except NameServerSettlingError as error:
                self.settling = error
                pause = doubled(SETTLING_PAUSE_SECONDS, attempt, SETTLING_PAUSE_SECONDS_MAX)
                if loop.time() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)
            else:
                self.settling = None
                return answer
        raise AssertionError("count() never ends")

    async def _asked(
        self,
        method: str,
        target: str,
        *,
        deadline: float,
        headers: Sequence[tuple[str, str]],
        body: Sequence[Buffer],
        held_seconds: float,
    ) -> HttpResponse:
        """Ask each name server at most once."""
        loop = asyncio.get_running_loop()
        failures = []
        settling: NameServerSettlingError | None = None
        brokerless: NoLiveBrokerError | None = None
        for tries_left in range(len(self._urls), 0, -1):
            url = self.current_url
            share = max((deadline - loop.time()) / tries_left, _SHARE_SECONDS_MIN)
            try:
                answer = await self._transport.request(
                    method, url, target, headers=headers, body=body, timeout=share + held_seconds
                )
                if answer.status < 400:
                    self._has_answered, self._last_failure = True, None
                    return answer
                # may be any class: proxies answer, too
                error: ErucaError = problem_error(answer, url)
                # A name server's own 404 names the missing object; this error is another server's.
                if type(error) is NotFoundError or isinstance(error, TransportError):
                    error.detail = (
                        "the answer is not a name server's; is this a broker's URL?"
                        f" ({error.detail})"
                    )
                elif answer.status < 500:
                    return answer
                if isinstance(error, NameServerSettlingError):
                    settling, self._has_answered = error, True
                elif isinstance(error, NoLiveBrokerError):
                    brokerless, self._has_answered = error, True
            except (TransportError, TimeoutExpiredError) as transport_error:
                error = transport_error
                if isinstance(error, TimeoutExpiredError) and not self._has_answered:
                    hint = late_connection(url)
                    error.detail += "" if error.detail.endswith(hint) else hint
            self._last_failure = f"{url}: {error.detail}"
            failures.append(self._last_failure)
            if self.current_url == url:  # else another request has already switched
                self.rotate()
        if settling is not None:
            raise settling
        if brokerless is not None:
            raise brokerless
        raise NameServersUnreachableError(
            f"no name server answered {method} {target}: {'; '.join(failures)}",
            fix="check ERUCA_NAMESRV_URLS, and that a name server runs at each URL",
        )
