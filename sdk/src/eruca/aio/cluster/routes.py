"""The routes of a client: fetched at first use, then refreshed in the background.

A cached route is used whatever its age, so no caller waits for a refresh. The first routes are
watched (:mod:`eruca.aio.cluster.route_watches`), so the client learns at once of a broker that
comes or goes. All other routes are fetched again every 30 s; so are watched ones while the name
server refuses to hold more requests. Code that finds a failed broker or a missing topic calls
:meth:`Routes.refresh_soon`, which sends at most one request per topic and second.

A name server that has just started is *settling*: it knows no routes yet, or parts of them
(:mod:`eruca.aio.cluster.name_servers`). Three rules follow:

1. "Not found" counts only if all name servers say so, and never replaces a cached route. If the
   topic is really deleted, its brokers will say so.
2. While a name server is settling, a cached route with more queues is kept, and the server's route
   is watched. Otherwise keys would move to other queues and back.
3. A caller that needs all brokers of a topic (:meth:`Routes.route`) gets no route until the name
   server has settled. The route is fetched for it, unless a complete one has been watched without
   a break since (:meth:`Routes.complete_view`).

Sending may create a missing topic, if the brokers allow it. So a producer gets a route to all live
masters with the queue count of a new topic. A broker that does not create topics answers with "not
found", as the name servers did. A consumer that starts retries a missing topic for a short time,
because brokers register a new topic only after creating it.

While no broker is live, no server knows whether a topic exists. Producers wait until their
deadline. Consumers wait as long as a restart takes, or until their caller's timeout.

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
from eruca.contract.access import Right
from eruca.contract.errors import (
    ClosedError,
    ErucaError,
    ForbiddenError,
    NameServerSettlingError,
    NoLiveBrokerError,
    NoRouteError,
    TopicNotFoundError,
    TransportError,
)
from eruca.contract.limits import QUEUE_COUNT_DEFAULT
from eruca.contract.routes import SETTLING_HEADER, BrokerList, QueueData, RouteBroker, TopicRoute
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.master_book import MasterBook
from eruca.core.routing.route_table import (
    CachedRoute,
    PublishView,
    RouteTable,
    SubscribeView,
    publish_view,
)

REFRESH_GAP_SECONDS: Final = 1.0  # between two requests for one topic after failures
TOPICS_MAX: Final = 10_000  # routes kept; bounds the memory of a program that makes up topics

NEW_TOPIC_SECONDS: Final = 1.0  # how long a new topic may be missing at the name servers
BROKERS_AWAY_SECONDS: Final = 30.0  # how long a consumer waits for brokers that restart
_AUTO_VIEW_SECONDS: Final = 1.0  # how long the queues of a topic yet to be created are assumed
_LOOK_AGAIN_SECONDS: Final = 0.1  # for a route that is about to appear
_FETCHES_AT_ONCE: Final = 8  # of the background refresh

_WAIT_NOTE: Final = "a consumer with wait_for_topics=True waits for the topic"

_logger = logging.getLogger(__name__)


class Routes:
    """The routes of one client; belongs to the event loop that first uses it."""

    def __init__(
        self, name_servers: NameServers, book: MasterBook, *, network: str, timeout: float
    ) -> None:
        self._name_servers = name_servers
        self._book = book
        self._network = network
        self._timeout = timeout
        self._table = RouteTable(network=network)
        # By topic, and whether the route must be complete.
        self._fetches: dict[tuple[str, bool], asyncio.Task[None]] = {}
        self._fetched_at: dict[str, float] = {}  # last request for a topic, by the loop's clock
        self._complete: dict[str, int] = {}  # watches that began with a complete route, by topic
        self._due: dict[str, float] = {}  # topics to fetch, and the earliest time
        self._auto_views: dict[str, tuple[PublishView, float]] = {}  # each with its expiry
        self._wake = asyncio.Event()
        self._refresher: asyncio.Task[None] | None = None
        self._watches = RouteWatches(name_servers, self._table, self._take_in, timeout=timeout)
        self._refresh_outages = Outages(
            _logger,
            failed="the route of %s cannot be refreshed: %s",
            over="the route of %s is up to date again",
        )
        self._listeners: set[Callable[[str], None]] = set()
        self._is_closed = False

    @property
    def silence(self) -> str:
        """Describe which name server has not answered, for a caller that stops waiting."""
        return self._name_servers.silence

    def cached_publish_view(self, topic: str) -> PublishView | None:
        """Return the topic's cached publish view, if there is one."""
        cached = self._table.get(topic)
        return None if cached is None else cached.publish

    def cached_subscribe_view(self, topic: str) -> SubscribeView | None:
        """Return the topic's cached subscribe view, if there is one."""
        cached = self._table.get(topic)
        return None if cached is None else cached.subscribe

    @property
    def settling(self) -> NameServerSettlingError | None:
        """Reason why name servers have no route now; None if they have answered since."""
        return self._name_servers.settling

    async def publish_view(self, topic: str) -> PublishView:
        """Return the queues to which messages of *topic* may be sent; at least one.

        For an ordered topic whose brokers are all away, it has only missed queues. While all
        brokers with replicas elect a master, it has none.

        Raises:
            TopicNotFoundError: No name server knows the topic, and sending does not create it.
            NoRouteError: The topic exists, but no live broker accepts its messages.
            NameServersUnreachableError: No name server answered.
            NameServerSettlingError: A name server has just started, and none knows the topic yet.
            NoLiveBrokerError: No broker is live.
        """
        try:
            view = (await self._cached(topic, Right.PRODUCE)).publish
        except TopicNotFoundError as error:
            view = await self._auto_create_view(topic, error)
        if not view.key_queues:
            self.refresh_soon(topic)
        if not view.key_queues and not view.awaits_master:
            raise NoRouteError(
                f"no live broker of topic {topic} accepts messages",
                fix="check the topic's route and permission: eruca route NAME",
            )
        return view

    async def subscribe_view(self, topic: str) -> SubscribeView:
        """Return the queues from which messages of *topic* may be read; possibly none now.

        Raises:
            TopicNotFoundError: No name server knows it.
            NameServersUnreachableError: No name server answered.
        """
        return (await self._cached(topic, Right.CONSUME)).subscribe

    async def subscribe_view_of_new(
        self, topic: str, *, patience_seconds: float = BROKERS_AWAY_SECONDS
    ) -> SubscribeView:
        """Return the queues of *topic*, which may have been created just now.

        If no broker is registered, brokers may be restarting, so the call waits for them.

        Raises:
            TopicNotFoundError: No name server knows the topic, not even after a short wait.
            NoLiveBrokerError: No broker was live for *patience_seconds*.
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
                # a broker that registers late gets the full time
                look_until = now + NEW_TOPIC_SECONDS
            except TopicNotFoundError:
                if loop.time() >= look_until:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def consumers_view(self, topic: str, *, waits: bool) -> SubscribeView | None:
        """Return the queues that a consumer reads; None if it *waits* for a missing topic.

        Raises:
            TopicNotFoundError: No name server knows the topic after a short wait; *waits* is false.
            NoLiveBrokerError: No broker was live for as long as a restart takes; *waits* is false.
            NameServersUnreachableError: No name server answered.
        """
        try:
            if waits:
                return await self.subscribe_view(topic)
            return await self.subscribe_view_of_new(topic)
        except (TopicNotFoundError, NameServerSettlingError, NoLiveBrokerError) as error:
            if waits:
                return None
            # other callers may wait for this fetch
            if _WAIT_NOTE not in getattr(error, "__notes__", ()):
                error.add_note(_WAIT_NOTE)
            raise

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's current route from a name server, with all of its live brokers.

        Raises the same errors as the views; NameServerSettlingError even if some brokers are known.
        """
        await self._fetch(topic, is_whole=True)
        cached = self._table.get(topic)
        assert cached is not None, "a successful fetch stores the view"
        return cached.route

    async def complete_view(self, topic: str) -> PublishView:
        """Return the topic's publish view, current and with all of its live brokers.

        Raises the same errors as :meth:`route`.
        """
        watch = self._watches.unbroken(topic)
        if watch is None or self._complete.get(topic) != watch:
            await self._fetch(topic, is_whole=True)
            # The fetch asks the name server that the watch is at, or ends the watch.
            if watch is not None and watch == self._watches.unbroken(topic):
                self._complete[topic] = watch
        cached = self._table.get(topic)
        assert cached is not None, "a successful fetch stores the view"
        return cached.publish

    def refresh_soon(self, topic: str) -> None:
        """Start to fetch the topic's route, unless that was done just now."""
        if topic not in self._due and self._refresher is not None:
            earliest = self._fetched_at.get(topic, -REFRESH_GAP_SECONDS) + REFRESH_GAP_SECONDS
            self._due[topic] = earliest
            self._wake.set()

    async def refresh(self, topic: str, *, within_seconds: float | None = None) -> None:
        """Fetch the topic's route; keep the old one if that fails or times out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self._refresh(topic)

    def refresh_those_at(self, url: str) -> None:
        """Fetch the routes that lead to *url* soon: its replica is not the master any more."""
        for topic in self._table.topics_at(url):
            self.refresh_soon(topic)

    async def wait_until(self, topic: str, shows: Callable[[TopicRoute], bool]) -> None:
        """Wait until the topic's route shows a change, or until the timeout."""
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    await self.refresh(topic)
                    cached = self._table.get(topic)
                    if cached is not None and shows(cached.route):
                        return
                    await self.changed(topic, within_seconds=_LOOK_AGAIN_SECONDS)
        except TimeoutError:
            _logger.info("the route of %s does not show the change yet", topic)

    async def wait_for(self, queue: MessageQueue, within_seconds: float) -> PublishView:
        """Return the topic's queues for sending once they include *queue*, or after the timeout.

        Raises the same errors as :meth:`publish_view`.
        """
        try:
            async with asyncio.timeout(within_seconds):
                while (await self.publish_view(queue.topic)).is_missed(queue):
                    self.refresh_soon(queue.topic)  # for a route that is not watched
                    await self.changed(queue.topic, within_seconds=REFRESH_GAP_SECONDS)
        except TimeoutError:
            _logger.info(
                "broker %s with queues of %s is still away", queue.broker_name, queue.topic
            )
        return await self.publish_view(queue.topic)

    async def changed(self, topic: str, *, within_seconds: float) -> None:
        """Wait until the topic's route changes, or until the time has passed.

        A caller that looks at the route and calls this at once misses no change between the two.
        """
        changed = asyncio.Event()
        stop = self.on_change(lambda name: changed.set() if name == topic else None)
        try:
            async with asyncio.timeout(within_seconds):
                await changed.wait()
        except TimeoutError:
            pass  # the caller looks again
        finally:
            stop()

    def on_change(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call *listener* with a topic when its route changes; return a function that ends this."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    async def close(self) -> None:
        """Cancel the background work."""
        self._is_closed = True
        tasks = [*self._fetches.values(), *self._watches.tasks()]
        if self._refresher is not None:
            tasks.append(self._refresher)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cached(self, topic: str, right: Right) -> CachedRoute:
        """Return the topic's route, for a caller that needs *right* on the topic."""
        cached = self._table.get(topic)
        if cached is None:
            try:
                await self._fetch(topic)
            except ForbiddenError as error:
                raise error.narrowed(right) from None
            cached = self._table.get(topic)
            assert cached is not None, "a successful fetch stores the view"
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
            self._name_servers.rotate()  # it may have just started; perhaps the next one knows
        raise error

    async def _fetch(self, topic: str, *, is_whole: bool = False) -> None:
        """Fetch a route; concurrent callers share one request."""
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
            # a cancelled caller must not cancel the request of the others
            await asyncio.shield(fetch)
        except asyncio.CancelledError:
            if fetch.cancelled():
                raise ClosedError("the client was closed") from None
            raise

    def _end_fetch(self, key: tuple[str, bool], fetch: asyncio.Task[None]) -> None:
        topic, _ = key
        self._fetches.pop(key, None)
        if not fetch.cancelled():
            fetch.exception()  # waiting callers have raised it; otherwise it has no reader
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
            self._name_servers.rotate()  # it may have just started; perhaps the next one knows
        assert error is not None
        raise error

    def _take_in(self, topic: str, answer: HttpResponse) -> float:
        """Use the route of *answer*; return how many seconds to leave its name server alone."""
        try:
            route = TopicRoute.model_validate_json(answer.body)
            # This route holds only remembered facts about absent brokers. Those brokers' own words
            # count more.
            is_remembered = route.order_config is not None and not route.brokers
            rest = REFRESH_SECONDS if is_remembered else _settling_seconds(answer)
            if rest and self._table.is_fuller(route):
                self._due.setdefault(topic, asyncio.get_running_loop().time() + rest)
                self._wake.set()
                return rest
            now_ms = asyncio.get_running_loop().time() * 1000
            changed = self._table.put(route, etag=answer.headers.get("etag"), now_ms=now_ms)
        except ValueError as error:
            raise TransportError(f"the route of {topic} is invalid: {error}") from error
        for broker in route.brokers:
            self._book.learn(broker.broker_name, broker.epoch, broker.urls)
        self._watches.begin(topic)
        topics = self._table.topics()
        if len(topics) > TOPICS_MAX:
            oldest = min(topics, key=lambda name: self._fetched_at.get(name, 0.0))
            self._table.forget(oldest)
            self._complete.pop(oldest, None)
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
        self._due.pop(topic, None)  # first, because a listener may request another refresh
        try:
            await self._fetch(topic)
        except ErucaError as error:
            # or a program that makes up topics would fill the memory
            if self._table.get(topic) is not None:
                self._refresh_outages.failed(topic, error)
        else:
            self._refresh_outages.answered(topic)


def _settling_seconds(answer: HttpResponse) -> float:
    value = answer.headers.get(SETTLING_HEADER, "")
    return min(float(value), REFRESH_SECONDS) if value.isascii() and value.isdigit() else 0.0


def _route_to_all(topic: str, brokers: BrokerList) -> TopicRoute:
    """Return the route of a topic that every broker has just created."""
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
                epoch=group.epoch,
            )
            for group in brokers.brokers
        ],
    )
