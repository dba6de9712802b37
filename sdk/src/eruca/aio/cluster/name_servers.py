"""The name servers: one is asked, and kept while it answers; when it does not, the next is.

Any of them will do: they know the same brokers, each by itself. So a client works while one of
them is up, and losing the others costs it nothing but the time of one failed request. One that has
just started and cannot know yet (:class:`NameServerSettlingError`) counts as one that does not
answer. Where no other one knows, all are asked again until the request's time is over.

One without any live broker (:class:`NoLiveBrokerError`) cannot know topics and counts so, too. But
where no other one knows, the request fails at once: brokers take longer to come than a request has.
Callers that can wait, wait.

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
_SHARE_SECONDS_MIN: Final = 0.2  # for one name server, however many are left to try


class NameServers:
    """Sends requests to one of several name servers."""

    def __init__(self, urls: Sequence[str], transport: HttpTransport) -> None:
        self._urls = tuple(urls)
        self._transport = transport
        # How the last round of all of them has ended.
        self.settling: NameServerSettlingError | None = None
        # Clients that start together do not all begin with the first.
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
        """Tell who has been asked without an answer, for a caller that stops waiting for one."""
        hint = "" if self._has_answered else late_connection(self.current_url)
        before = f"; before that, {self._last_failure}" if self._last_failure else ""
        return f"{self.current_url} has not answered{hint}{before}"

    def rotate(self) -> None:
        """Turn to the next one."""
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
        """Return the answer of the first that gives one, whatever its status below 500.

        Where none knows, and one has just started, all are asked again within *timeout*.

        What has nothing at this path is no name server: a broker, say, whose URL was taken for one.

        Args:
            method: The HTTP method.
            target: The path and query.
            timeout: For all of them together, in seconds.
            headers: Further headers.
            body: The request's body.
            held_seconds: How long the request asks to be held; comes on top of *timeout*.

        Raises:
            NameServersUnreachableError: None did; the detail says how each failed.
            NameServerSettlingError: None did, and one of them does not know yet.
            NoLiveBrokerError: None did, and one of them knows no broker.
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
        raise AssertionError("count() does not end")

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
                error: ErucaError = problem_error(answer, url)  # of any kind: proxies answer, too
                # A name server says what it is that is not there.
                if type(error) is NotFoundError or isinstance(error, TransportError):
                    error.detail = (
                        "answers, but not as a name server does; is it a broker's URL? "
                        f"({error.detail})"
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
            if self.current_url == url:  # else another request has turned away from it already
                self.rotate()
        if settling is not None:
            raise settling
        if brokerless is not None:
            raise brokerless
        raise NameServersUnreachableError(
            f"no name server answered {method} {target}: {'; '.join(failures)}",
            fix="check ERUCA_NAMESRV_URLS, and that a name server runs there",
        )
