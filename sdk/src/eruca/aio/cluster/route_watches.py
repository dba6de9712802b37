"""Watched routes: held requests, so that a client learns of a route change at once.

The name server holds a request with a route's ETag until the route changes. A watch that fails
restarts after a pause that doubles, or as soon as a name server answers another request. If the
client switches to another name server, watches at the old one restart at the new one. A name server
that refuses to hold more requests is left alone for as long as the refresh interval of routes
without a watch.

A watch is *unbroken* while its requests follow one another at one name server without a failure.
A route that was complete when an unbroken watch held a request is complete and current as long as
it does (:meth:`RouteWatches.unbroken`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.cluster.outages import Outages
from eruca.aio.http.transport import HttpResponse, path_segment, problem_error
from eruca.contract.errors import ErucaError, OverloadedError
from eruca.core.checked_names import check_topic
from eruca.core.pauses import doubled
from eruca.core.routing.route_table import ROUTE_AGE_MS_MAX, RouteTable

REFRESH_SECONDS: Final = ROUTE_AGE_MS_MAX / 1_000  # of routes that are not watched
WATCHES_MAX: Final = 16  # routes watched; each occupies a request at a name server
WATCH_SECONDS: Final = 25.0  # one held request; within WAIT_SECONDS_MAX
WATCH_PAUSE_SECONDS: Final = 0.5  # between two requests, in case a proxy does not hold them
WATCH_REST_SECONDS: Final = 0.5  # after a watch failed; doubles, up to REFRESH_SECONDS

_logger = logging.getLogger(__name__)
_numbers = count(1)


class _Watch:
    """One watched route, while its task runs."""

    __slots__ = ("asked_url", "is_wanted_again", "number", "task")

    def __init__(self) -> None:
        self.number = next(_numbers)  # another one after each failure
        self.task: asyncio.Task[None] | None = None
        # URL of the name server of the current request; None: no request
        self.asked_url: str | None = None
        self.is_wanted_again = asyncio.Event()  # set to end a rest early


class RouteWatches:
    """The watches of one client.

    Args:
        name_servers: The client's.
        table: The routes; a route that has left the table is not watched any more.
        take_in: Called with a topic and the answer that has its route. Returns how many seconds to
            leave the name server alone if the route cannot be used yet, or 0.
        timeout: Of a request, in seconds, on top of the time that it is held.
    """

    def __init__(
        self,
        name_servers: NameServers,
        table: RouteTable,
        take_in: Callable[[str, HttpResponse], float],
        *,
        timeout: float,
    ) -> None:
        self._name_servers = name_servers
        self._table = table
        self._take_in = take_in
        self._timeout = timeout
        self._watches: dict[str, _Watch] = {}
        self._outages = Outages(
            _logger,
            failed="the watch of the route of %s failed and will be retried: %s",
            over="the route of %s is watched again",
        )

    def begin(self, topic: str) -> None:
        """Watch a topic's route, unless it is watched already or the maximum is reached."""
        if topic not in self._watches and len(self._watches) < WATCHES_MAX:
            self._start(topic)

    def rouse(self) -> None:
        """Continue at the current name server, which has just answered another request."""
        url = self._name_servers.current_url
        for topic, watch in tuple(self._watches.items()):
            watch.is_wanted_again.set()
            if watch.task is not None and watch.asked_url not in (None, url):
                watch.task.cancel()
                self._start(topic)

    def unbroken(self, topic: str) -> int | None:
        """Return the number of the topic's unbroken watch; None: no name server holds a request.

        While it is the same number, no change of the route has been missed.
        """
        watch = self._watches.get(topic)
        # Another name server is in use once the watch's own has failed.
        is_held = watch is not None and watch.asked_url == self._name_servers.current_url
        return watch.number if watch is not None and is_held else None

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the running tasks, so that the caller can cancel them."""
        return [watch.task for watch in self._watches.values() if watch.task is not None]

    def _start(self, topic: str) -> None:
        watch = self._watches[topic] = _Watch()
        watch.task = asyncio.create_task(self._watch(topic, watch), name=f"eruca watch {topic}")

    async def _watch(self, topic: str, watch: _Watch) -> None:
        """Keep one route up to date with held requests."""
        loop = asyncio.get_running_loop()
        failures = 0
        kept_out: str | None = None  # ETag of a route that is not used yet
        while (cached := self._table.get(topic)) is not None and cached.etag is not None:
            asked_at = loop.time()
            try:
                answer = await self._held_route(topic, watch, kept_out or cached.etag)
                settling = 0.0
                if answer.status == 200:
                    settling = self._take_in(topic, answer)
                elif kept_out is None:
                    self._table.confirm(topic, now_ms=loop.time() * 1000)
                if settling:
                    watch.number = next(_numbers)
                kept_out = answer.headers.get("etag") if settling else None
                pause = WATCH_PAUSE_SECONDS if kept_out else max(WATCH_PAUSE_SECONDS, settling)
                failures = 0
            except OverloadedError as error:
                watch.number = next(_numbers)
                self._outages.failed(topic, error)
                await asyncio.sleep(REFRESH_SECONDS)
            except ErucaError as error:
                watch.number = next(_numbers)
                self._outages.failed(topic, error)
                await self._rest(watch, _rest_seconds(failures))
                failures += 1
            else:
                self._outages.answered(topic)
                await asyncio.sleep(asked_at + pause - loop.time())
        self._outages.forget(topic)
        self._watches.pop(topic)

    async def _held_route(self, topic: str, watch: _Watch, etag: str) -> HttpResponse:
        """Return a name server's answer: a route with another ETag than *etag*, or 304."""
        watch.asked_url = self._name_servers.current_url
        try:
            answer = await self._name_servers.request(
                "GET",
                f"{route_target(topic)}?wait_seconds={WATCH_SECONDS:g}",
                headers=[("if-none-match", etag)],
                timeout=self._timeout,
                held_seconds=WATCH_SECONDS,
            )
        finally:
            watch.asked_url = None
        if answer.status not in (200, 304):
            raise problem_error(answer, f"route of {topic}")
        return answer

    async def _rest(self, watch: _Watch, seconds: float) -> None:
        """Pause; end early if a name server answers another request."""
        watch.is_wanted_again.clear()
        await asyncio.sleep(WATCH_REST_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds - WATCH_REST_SECONDS):
                await watch.is_wanted_again.wait()


def route_target(topic: str) -> str:
    """Return a name server's path for a topic's route; raises ValidationError."""
    check_topic(topic)
    return f"/v1/topics/{path_segment(topic)}/route"


def _rest_seconds(failures: int) -> float:
    """Return the pause of a watch after so many consecutive failures."""
    return doubled(WATCH_REST_SECONDS, failures, REFRESH_SECONDS)
