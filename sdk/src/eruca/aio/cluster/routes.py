"""The routes a client works with: fetched when first needed, then kept fresh in the background.

A cached route is used whatever its age, so nobody waits for a refresh. The routes asked for first
are watched (:mod:`eruca.aio.cluster.route_watches`), so that a broker that comes or goes is known
at once; the others, and all while a name server holds no more requests, are asked for again every
30 s. Whoever meets a failed broker or a topic that is not where it should be calls
:meth:`Routes.refresh_soon`, at most one request per topic and second.

A name server that has just started knows no routes yet, or parts of them. It says so, and what it
does not know is no answer then (:mod:`eruca.aio.cluster.name_servers`). "Not found" counts only
when all of them say it, and never against a route that is already at hand: if the topic is really
gone, its brokers will say so. And while a name server says that it is settling, a fuller route that
is at hand is kept, or keys would move to other queues and back; what it has is watched. Whoever
needs all brokers of a topic (:meth:`Routes.route`) gets no route before it has settled.

A topic without a route may be created by sending to it, where brokers allow that. So a producer
gets a route to all live masters then, with the queues a new topic has; a broker that does not
create topics answers with the "not found" that the name servers gave. And a consumer that begins
looks for its topics for a moment: brokers tell the name servers of a new one once it is there.

While no broker is live at all, nobody knows whether a topic exists. Producers wait up to their
deadline, consumers as long as a restart takes, or as their caller waits.

Source: RocketMQ 5.3, ``MQClientInstance.updateTopicRouteInfoFromNameServer``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.cluster.outages import Outages
from eruca.aio.cluster.requests import parsed
from eruca.aio.cluster.route_watches import REFRESH_SECONDS, RouteWatches, route_target
from eruca.aio.http.transport import HttpResponse, problem_error
from eruca.contract.errors import (
    ClosedError,
    ErucaError,
    NameServerSettlingError,
    NoLiveBrokerError,
    NoRouteError,
    TopicNotFoundError,
    TransportError,
)
from eruca.contract.limits import QUEUE_COUNT_DEFAULT
from eruca.contract.routes import SETTLING_HEADER, BrokerList, QueueData, RouteBroker, TopicRoute
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.route_table import (
    CachedRoute,
    PublishView,
    RouteTable,
    SubscribeView,
    publish_view,
)

REFRESH_GAP_SECONDS: Final = 1.0  # between two requests for one topic that failures ask for
TOPICS_MAX: Final = 10_000  # routes kept; a program that makes up topics does not grow for ever

NEW_TOPIC_SECONDS: Final = 1.0  # how long a topic may be known to its brokers only
BROKERS_AWAY_SECONDS: Final = 30.0  # how long a consumer waits for brokers that restart
_AUTO_VIEW_SECONDS: Final = 1.0  # how long the queues of a topic yet to be created are assumed
_LOOK_AGAIN_SECONDS: Final = 0.1  # for a route that is about to appear
_FETCHES_AT_ONCE: Final = 8  # of the background refresh

_WAIT_NOTE: Final = "a consumer made with wait_for_topics=True waits for it"

_logger = logging.getLogger(__name__)


class Routes:
    """The routes of one client; belongs to the event loop that first uses it."""

    def __init__(self, name_servers: NameServers, *, network: str, timeout: float) -> None:
        self._name_servers = name_servers
        self._network = network
        self._timeout = timeout
        self._table = RouteTable(network=network)
        # By topic, and whether the route must be whole.
        self._fetches: dict[tuple[str, bool], asyncio.Task[None]] = {}
        self._fetched_at: dict[str, float] = {}  # last request for a topic, by the loop's clock
        self._due: dict[str, float] = {}  # topics to fetch, and from when on
        self._auto_views: dict[str, tuple[PublishView, float]] = {}  # and when each ends
        self._wake = asyncio.Event()
        self._refresher: asyncio.Task[None] | None = None
        self._watches = RouteWatches(name_servers, self._table, self._take_in, timeout=timeout)
        self._refresh_outages = Outages(
            _logger,
            failed="the route of %s stays as it was: %s",
            over="the route of %s is up to date again",
        )
        self._listeners: set[Callable[[str], None]] = set()
        self._is_closed = False

    @property
    def silence(self) -> str:
        """Tell which name server has not answered, for a caller that stops waiting for a route."""
        return self._name_servers.silence

    def cached_publish_view(self, topic: str) -> PublishView | None:
        """Return the topic's publish view if it is at hand."""
        cached = self._table.get(topic)
        return None if cached is None else cached.publish

    def cached_subscribe_view(self, topic: str) -> SubscribeView | None:
        """Return the topic's subscribe view if it is at hand."""
        cached = self._table.get(topic)
        return None if cached is None else cached.subscribe

    @property
    def settling(self) -> NameServerSettlingError | None:
        """Reason why name servers have no route now; None if they have answered since."""
        return self._name_servers.settling

    async def publish_view(self, topic: str) -> PublishView:
        """Return where messages of *topic* may be sent; it has at least one queue.

        That of an ordered topic whose brokers are all away has only missed queues.

        Raises:
            TopicNotFoundError: No name server knows it, and it is not created by sending to it.
            NoRouteError: It exists, but no live broker takes messages of it.
            NameServersUnreachableError: No name server answered.
            NameServerSettlingError: One has just started and does not know it yet; nor do others.
            NoLiveBrokerError: No broker is there that could have it.
        """
        try:
            view = (await self._cached(topic)).publish
        except TopicNotFoundError as error:
            view = await self._auto_create_view(topic, error)
        if not view.key_queues:
            self.refresh_soon(topic)
            raise NoRouteError(
                f"topic {topic} is on no broker that takes messages of it now",
                fix="look at its route and permission: eruca route NAME",
            )
        return view

    async def subscribe_view(self, topic: str) -> SubscribeView:
        """Return where messages of *topic* may be read; it may have no queue just now.

        Raises:
            TopicNotFoundError: No name server knows it.
            NameServersUnreachableError: No name server answered.
        """
        return (await self._cached(topic)).subscribe

    async def subscribe_view_of_new(
        self, topic: str, *, patience_seconds: float = BROKERS_AWAY_SECONDS
    ) -> SubscribeView:
        """Return where messages of *topic*, which may just have been created, may be read.

        While no broker at all is registered they may be restarting: they are waited for.

        Raises:
            TopicNotFoundError: For a moment no name server has known it.
            NoLiveBrokerError: For *patience_seconds* no broker has been there.
            NameServersUnreachableError: No name server answered.
        """
        loop = asyncio.get_running_loop()
        look_until = loop.time() + NEW_TOPIC_SECONDS
        give_up_at = loop.time() + patience_seconds
        while True:
            try:
                return await self.subscribe_view(topic)
            except NoLiveBrokerError:
                now = loop.time()
                if now >= give_up_at:
                    raise
                look_until = now + NEW_TOPIC_SECONDS  # a broker that comes has all of that time
            except TopicNotFoundError:
                if loop.time() >= look_until:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def consumers_view(self, topic: str, *, waits: bool) -> SubscribeView | None:
        """Return where a consumer reads *topic*; None if there is none, and it waits for one.

        Raises:
            TopicNotFoundError: For a moment no name server has known it, and it does not wait.
            NoLiveBrokerError: No broker has come as long as a restart takes; it does not wait.
            NameServersUnreachableError: No name server answered.
        """
        try:
            if waits:
                return await self.subscribe_view(topic)
            return await self.subscribe_view_of_new(topic)
        except (TopicNotFoundError, NameServerSettlingError, NoLiveBrokerError) as error:
            if waits:
                return None
            if _WAIT_NOTE not in getattr(error, "__notes__", ()):  # others may wait for this fetch
                error.add_note(_WAIT_NOTE)
            raise

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route as a name server tells it now, with all of its live brokers.

        Raises as the views do; NameServerSettlingError also where some of the brokers are known.
        """
        await self._fetch(topic, is_whole=True)
        cached = self._table.get(topic)
        assert cached is not None, "a fetch that did not raise has put it there"
        return cached.route

    def refresh_soon(self, topic: str) -> None:
        """Have the topic's route fetched now, unless that has just been done."""
        if topic not in self._due and self._refresher is not None:
            earliest = self._fetched_at.get(topic, -REFRESH_GAP_SECONDS) + REFRESH_GAP_SECONDS
            self._due[topic] = earliest
            self._wake.set()

    async def refresh(self, topic: str, *, within_seconds: float | None = None) -> None:
        """Have the topic's route fetched now; where that fails, or takes longer, it stays."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self._refresh(topic)

    async def wait_until(self, topic: str, shows: Callable[[TopicRoute], bool]) -> None:
        """Wait until the topic's route shows what was just done, up to the time-out."""
        changed = asyncio.Event()
        stop = self.on_change(lambda _: changed.set())
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    changed.clear()
                    await self.refresh(topic)
                    cached = self._table.get(topic)
                    if cached is not None and shows(cached.route):
                        return
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                            await changed.wait()
        except TimeoutError:
            _logger.info("the route of %s does not show yet what was done", topic)
        finally:
            stop()

    async def wait_for(self, queue: MessageQueue, within_seconds: float) -> PublishView:
        """Return where the topic's messages may be sent once *queue* is among it, or time is up.

        Raises as :meth:`publish_view` does.
        """
        changed = asyncio.Event()
        stop = self.on_change(lambda _: changed.set())
        try:
            async with asyncio.timeout(within_seconds):
                while (await self.publish_view(queue.topic)).is_missed(queue):
                    changed.clear()
                    self.refresh_soon(queue.topic)  # for a route that is not watched
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REFRESH_GAP_SECONDS):
                            await changed.wait()
        except TimeoutError:
            _logger.info(
                "%s, which has queues of %s, is still away", queue.broker_name, queue.topic
            )
        finally:
            stop()
        return await self.publish_view(queue.topic)

    def on_change(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call *listener* with a topic whenever its route changes; returns what ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    async def close(self) -> None:
        """End the background work."""
        self._is_closed = True
        tasks = [*self._fetches.values(), *self._watches.tasks()]
        if self._refresher is not None:
            tasks.append(self._refresher)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cached(self, topic: str) -> CachedRoute:
        cached = self._table.get(topic)
        if cached is None:
            await self._fetch(topic)
            cached = self._table.get(topic)
            assert cached is not None, "a fetch that did not raise has put it there"
        return cached

    async def _auto_create_view(self, topic: str, error: TopicNotFoundError) -> PublishView:
        loop = asyncio.get_running_loop()
        known = self._auto_views.get(topic)
        if known is not None and loop.time() < known[1]:
            return known[0]
        self._auto_views = {t: v for t, v in self._auto_views.items() if loop.time() < v[1]}
        for _ in self._name_servers.urls:
            answer = await self._name_servers.request("GET", "/v1/brokers", timeout=self._timeout)
            if answer.status != 200:
                raise problem_error(answer, "list of brokers")
            route = _route_to_all(topic, parsed(BrokerList, answer, "list of brokers"))
            view = publish_view(route, network=self._network)
            if view.queues:
                self._auto_views[topic] = (view, loop.time() + _AUTO_VIEW_SECONDS)
                return view
            self._name_servers.rotate()  # it may have started just now; perhaps the next one knows
        raise error

    async def _fetch(self, topic: str, *, is_whole: bool = False) -> None:
        """Fetch a route; those who want the same one wait for the same request."""
        if self._is_closed:
            raise ClosedError("the client is closed")
        if self._refresher is None:
            self._refresher = asyncio.create_task(self._refresh_for_ever(), name="eruca routes")
        key = topic, is_whole
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = asyncio.create_task(self._request_route(*key), name=f"eruca route {topic}")
            self._fetches[key] = fetch
            fetch.add_done_callback(lambda done: self._end_fetch(key, done))
        try:
            await asyncio.shield(fetch)  # who gives up must not take it from the others
        except asyncio.CancelledError:
            if fetch.cancelled():
                raise ClosedError("the client was closed") from None
            raise

    def _end_fetch(self, key: tuple[str, bool], fetch: asyncio.Task[None]) -> None:
        topic, _ = key
        self._fetches.pop(key, None)
        if not fetch.cancelled():
            fetch.exception()  # whoever waited has heard it; if nobody did, nobody needs it
        if self._table.get(topic) is None:
            self._fetched_at.pop(topic, None)

    async def _request_route(self, topic: str, is_whole: bool) -> None:  # noqa: FBT001 - a key's
        loop = asyncio.get_running_loop()
        self._fetched_at[topic] = loop.time()
        target = route_target(topic) + ("?require_settled=true" if is_whole else "")
        cached = self._table.get(topic)
        error: ErucaError | None = None
        for _ in self._name_servers.urls:
            etag = cached.etag if cached is not None else None
            headers = [("if-none-match", etag)] if etag else []
            answer = await self._name_servers.request(
                "GET", target, headers=headers, timeout=self._timeout
            )
            self._watches.rouse()
            if answer.status == 304 and cached is not None:
                self._table.confirm(topic, now_ms=loop.time() * 1000)
                return
            if answer.status == 200:
                self._take_in(topic, answer)
                return
            error = problem_error(answer, f"route of {topic}")
            if not isinstance(error, TopicNotFoundError):
                break
            self._name_servers.rotate()  # it may have started just now; perhaps the next one knows
        assert error is not None
        raise error

    def _take_in(self, topic: str, answer: HttpResponse) -> float:
        """Use the route of *answer*; return how many seconds to leave its name server alone."""
        try:
            route = TopicRoute.model_validate_json(answer.body)
            # What is only remembered of brokers that are away says less than their own words.
            is_remembered = route.order_config is not None and not route.brokers
            rest = REFRESH_SECONDS if is_remembered else _settling_seconds(answer)
            if rest and self._table.is_fuller(route):
                self._due.setdefault(topic, asyncio.get_running_loop().time() + rest)
                self._wake.set()
                return rest
            now_ms = asyncio.get_running_loop().time() * 1000
            changed = self._table.put(route, etag=answer.headers.get("etag"), now_ms=now_ms)
        except ValueError as error:
            raise TransportError(f"the route of {topic} could not be read: {error}") from error
        self._watches.begin(topic)
        topics = self._table.topics()
        if len(topics) > TOPICS_MAX:
            oldest = min(topics, key=lambda name: self._fetched_at.get(name, 0.0))
            self._table.forget(oldest)
            self._fetched_at.pop(oldest, None)
            self._refresh_outages.forget(oldest)
        if changed:
            for listener in tuple(self._listeners):
                listener(topic)
        return 0.0

    async def _refresh_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        everything_at = loop.time() + REFRESH_SECONDS
        while True:
            wake_at = min(self._due.values(), default=everything_at)
            try:
                async with asyncio.timeout_at(min(wake_at, everything_at)):
                    await self._wake.wait()
                self._wake.clear()
            except TimeoutError:
                pass
            now = loop.time()
            if now >= everything_at:
                everything_at = now + REFRESH_SECONDS
                old = [t for t in self._table.topics() if self._table.is_stale(t, now * 1000)]
                self._due.update(dict.fromkeys(old, now))
            due = [topic for topic, earliest in self._due.items() if earliest <= now]
            for start in range(0, len(due), _FETCHES_AT_ONCE):
                await asyncio.gather(*map(self._refresh, due[start : start + _FETCHES_AT_ONCE]))

    async def _refresh(self, topic: str) -> None:
        self._due.pop(topic, None)  # first: what comes may ask for another look
        try:
            await self._fetch(topic)
        except ErucaError as error:
            if self._table.get(topic) is not None:  # or whoever makes up topics fills the memory
                self._refresh_outages.failed(topic, error)
        else:
            self._refresh_outages.answered(topic)


def _settling_seconds(answer: HttpResponse) -> float:
    value = answer.headers.get(SETTLING_HEADER, "")
    return min(float(value), REFRESH_SECONDS) if value.isascii() and value.isdigit() else 0.0


def _route_to_all(topic: str, brokers: BrokerList) -> TopicRoute:
    """Return the route a topic would have if every broker had just created it."""
    return TopicRoute(
        topic=topic,
        queues=[
            QueueData(
                broker_name=group.broker_name,
                read_queue_count=QUEUE_COUNT_DEFAULT,
                write_queue_count=QUEUE_COUNT_DEFAULT,
                permission="rw",
            )
            for group in brokers.brokers
        ],
        brokers=[
            RouteBroker(
                cluster=group.cluster,
                broker_name=group.broker_name,
                urls={address.broker_id: address.urls for address in group.brokers},
                store_hosts={address.broker_id: address.store_host for address in group.brokers},
            )
            for group in brokers.brokers
        ],
    )
