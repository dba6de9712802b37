"""The name server's work: the route table, the key-value table, and the requests held for a change.

Everything runs on one event loop. A route is rendered once per change. Its ETag is a digest of the
bytes sent, so name servers that know the same brokers agree on it, and a client may switch between
them. A change wakes the requests that wait for it at once. Expiry is checked on every read, and
every few seconds for the requests that are held.

A name server that has just started is *settling*: an existing broker may not have registered yet,
so an unknown topic may exist all the same. Until every broker has had time to register, lists and
look-ups that find nothing raise :class:`NameServerSettlingError`, which is safe to retry. A route
that is found is marked as perhaps partial. Settling ends after ``settle_seconds``, or as soon as
all expected brokers have registered, if their names are set.

Without a single live broker nobody knows which topics exist, however long ago the name server has
started: the only broker may be restarting. Look-ups and lists of topics then raise
:class:`NoLiveBrokerError`, which is safe to retry, too. Lists of brokers are empty: that is known.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

import structlog

from eruca.contract.errors import (
    ErucaError,
    KeyNotFoundError,
    NameServerSettlingError,
    NoLiveBrokerError,
    NotReadyError,
    TopicNotFoundError,
)
from eruca.contract.fields import MASTER_ID
from eruca.contract.names import (
    CHECKERS_NAMESPACE,
    CONTROLLERS_NAMESPACE,
    ORDERED_TOPICS_NAMESPACE,
    QUERY_SERVICES_NAMESPACE,
)
from eruca.contract.routes import (
    BrokerAddress,
    BrokerGroup,
    BrokerList,
    BrokerRegistration,
    ClusterList,
    RegistrationResult,
    TopicRoute,
)
from eruca.contract.topics import TopicConfig
from eruca_chassis.admission.held import HeldPlace, HeldPlaces, Release, Waking
from eruca_chassis.asgi import Receive
from eruca_chassis.clock import Clock
from eruca_chassis.requests.entity_tags import is_known
from eruca_namesrv.kv import ORDER_NAMESPACE, KvTable
from eruca_namesrv.ordered_topics import OrderedTopics
from eruca_namesrv.route_table import LiveBroker, RouteTable

EXPIRY_SCAN_SECONDS: Final = 5.0  # RocketMQ's scanNotActiveBrokerInterval
RETRY_SECONDS: Final = 1.0  # while topics are not known: a broker may register at any moment
ANNOUNCED: Final = frozenset({CHECKERS_NAMESPACE, CONTROLLERS_NAMESPACE, QUERY_SERVICES_NAMESPACE})
"""Namespaces of the key-value table in which services announce their addresses repeatedly."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RenderedRoute:
    """A route as bytes to send, with its ETag."""

    body: bytes  # JSON of a TopicRoute
    etag: str  # strong, with its quotes


@dataclass(frozen=True, slots=True)
class Expected:
    """Names of the brokers and services that are known to exist; None if unknown."""

    brokers: frozenset[str] | None = None
    services: frozenset[str] | None = None


class NameServer:
    """One name server; the HTTP routes call its methods."""

    def __init__(
        self,
        table: RouteTable,
        kv: KvTable,
        held: HeldPlaces,
        clock: Clock,
        *,
        returns_order_config: bool,
        settle_seconds: float = 0.0,
        expected: Expected = Expected(),
    ) -> None:
        self.table = table
        self.kv = kv
        self.held = held
        self.started_at = _instant(clock.now_ms())
        self._clock = clock
        self._settled_at = clock.monotonic() + settle_seconds
        self._awaited_brokers = None if expected.brokers is None else set(expected.brokers)
        self._awaited_services = None if expected.services is None else set(expected.services)
        self._ordered = OrderedTopics(kv)
        self._returns_order_config = returns_order_config
        self._rendered: dict[str, RenderedRoute] = {}
        self._sorted_topics: list[str] | None = None  # None after a change: sort again
        self._watchers: dict[str, set[HeldPlace]] = {}
        self._waking = Waking()

    @property
    def settling_seconds(self) -> float:
        """Seconds for which brokers may still be missing after a start; 0 once settled.

        A route without them is not wrong. But a client that knows a fuller one should keep it:
        otherwise keys would move to other queues, and back.
        """
        return 0.0 if self._awaited_brokers == set() else self._starting_seconds

    @property
    def _starting_seconds(self) -> float:
        return max(self._settled_at - self._clock.monotonic(), 0.0)

    def services_settling_seconds(self, namespace: str) -> float:
        """Return the seconds for which announcements may still be missing in *namespace*."""
        if namespace not in ANNOUNCED or self._awaited_services == set():
            return 0.0
        return self._starting_seconds

    def require_settled(self) -> None:
        """Raise unless every broker has had time to register.

        Raises:
            NameServerSettlingError: The name server is still settling.
        """
        if (seconds := self.settling_seconds) > 0:
            raise _settling(
                f"brokers may not have registered yet; registered: {self.table.broker_count}",
                seconds,
            )

    async def register(
        self, broker_name: str, broker_id: int, registration: BrokerRegistration
    ) -> RegistrationResult:
        """Store a broker's registration or heartbeat."""
        is_settling = self.settling_seconds > 0  # read first: this broker may be the last expected
        self.expire()
        knew_topics = self.table.knows_topics
        registered = self.table.register(
            broker_name,
            broker_id,
            registration,
            now=self._clock.monotonic(),
            now_ms=self._clock.now_ms(),
        )
        if registered.is_new:
            _log.info(
                "broker registered",
                broker=f"{broker_name}/{broker_id}",
                cluster=registration.cluster,
                store_host=registration.store_host,
                epoch=registration.epoch,
            )
        if broker_id == MASTER_ID and not registered.needs_topics:
            self._has_registered(broker_name)
        self._changed(registered.changed_topics)
        if self.table.knows_topics and not knew_topics:
            self._wake_all()
        if broker_id == MASTER_ID and registration.topics is not None:
            await self._remember_ordered(broker_name, registration.topics)
        if is_settling and registration.ordered_topics:
            live = {broker.broker_name for broker in self.table.brokers()}
            await self._kept_ordered(
                broker_name, self._ordered.absorb(registration.ordered_topics, live=live)
            )
        # While settling it may know fewer ordered topics than the broker does: send no digest.
        digest = None if self.settling_seconds else self._ordered.digest
        is_known = digest == registration.ordered_topics_digest
        return RegistrationResult(
            broker_name=broker_name,
            broker_id=broker_id,
            needs_topics=registered.needs_topics,
            order_topics=self.kv.entries(ORDER_NAMESPACE),
            ordered_topics=None if digest is None or is_known else self._ordered.entries(),
            ordered_topics_digest=digest,
        )

    def _has_registered(self, broker_name: str) -> None:
        """Note that a broker's topics are known; settle if it was the last one expected."""
        if self._awaited_brokers and broker_name in self._awaited_brokers:
            self._awaited_brokers.remove(broker_name)
            if not self._awaited_brokers:
                self._wake_all()

    def _wake_all(self) -> None:
        """Wake every request for a route: an unknown topic may now be certainly missing."""
        for places in self._watchers.values():
            self._waking.wake(places)

    async def _remember_ordered(self, broker_name: str, topics: Iterable[TopicConfig]) -> None:
        await self._kept_ordered(broker_name, self._ordered.remember(broker_name, topics))

    async def _kept_ordered(self, broker_name: str, keeping: Awaitable[None]) -> None:
        try:
            await keeping
        except ErucaError as error:  # the registration itself is valid: don't fail it
            _log.warning("ordered topics not remembered", broker=broker_name, why=str(error))
        finally:
            self._changed(self._ordered.read())

    def unregister(self, broker_name: str, broker_id: int, store_host: str | None) -> None:
        """Remove a broker that is shutting down."""
        self.expire()
        self._changed(self.table.unregister(broker_name, broker_id, store_host=store_host))
        _log.info("broker unregistered", broker=f"{broker_name}/{broker_id}")

    async def expiry_step(self) -> None:
        """Remove expired brokers; called by the expiry loop."""
        self.expire()

    def expire(self) -> None:
        """Remove expired brokers and wake the requests that wait for their topics."""
        now = self._clock.monotonic()
        for broker in self.table.overdue(now):
            _log.warning(
                "broker expired",
                broker=f"{broker.broker_name}/{broker.broker_id}",
                store_host=broker.store_host,
                silent_seconds=round(now - broker.seen_at, 1),
            )
        self._changed(self.table.expire(now))

    async def route(
        self, topic: str, known_etags: frozenset[str], wait_seconds: float, receive: Receive
    ) -> RenderedRoute:
        """Return the topic's route; wait until it differs from those the client knows.

        After *wait_seconds* the current route is returned. Without known tags the call waits only
        for a topic that does not exist yet. A client that knew the route must learn that the topic
        is gone, as soon as that is certain.

        Raises:
            TopicNotFoundError: No live broker has the topic.
            NameServerSettlingError: No broker has registered the topic yet.
            NoLiveBrokerError: No broker is there that could have it.
            OverloadedError: Too many requests are held.
            NotReadyError: The name server shut down while the request was held.
        """
        current = self._look_up(topic)
        if wait_seconds > 0 and not self._is_news(current, known_etags):
            current = await self._changed_route(topic, current, known_etags, wait_seconds, receive)
        if current is None:
            raise self._unknown(topic)
        return current

    def _is_news(self, route: RenderedRoute | None, known_etags: frozenset[str]) -> bool:
        if route is None:
            return bool(known_etags) and self.table.knows_topics and not self.settling_seconds
        return not is_known(route.etag, known_etags)

    def _unknown(self, topic: str) -> ErucaError:
        if (seconds := self.settling_seconds) > 0:
            return _settling(
                f"topic {topic} may be on a broker that has not registered yet", seconds
            )
        if not self.table.knows_topics:
            return _no_live_broker(f"whether topic {topic} exists")
        return TopicNotFoundError(
            f"no live broker has topic {topic}", fix=TopicNotFoundError.fix_of(topic)
        )

    def topic_names(
        self, after: str | None, limit: int, sees: Callable[[str], bool] | None = None
    ) -> tuple[list[str], bool]:
        """Return up to *limit* topics that sort after a name, and whether there are more.

        Args:
            after: The name; None: the beginning.
            limit: The maximum number.
            sees: Returns whether the caller may see a topic; None: it may see all.

        Raises:
            NameServerSettlingError: Some brokers may not have registered their topics yet.
            NoLiveBrokerError: No broker is there that could have any.
        """
        self.require_settled()
        self.expire()
        if not self.table.knows_topics:
            raise _no_live_broker("which topics exist")
        if self._sorted_topics is None:
            self._sorted_topics = sorted(self.table.topics())
        topics = self._sorted_topics if sees is None else list(filter(sees, self._sorted_topics))
        start = 0 if after is None else bisect_right(topics, after)
        return topics[start : start + limit], start + limit < len(topics)

    def broker_list(self) -> BrokerList:
        """Return every live broker; raises NameServerSettlingError."""
        self.require_settled()
        self.expire()
        groups = groupby(self.table.brokers(), key=lambda broker: broker.broker_name)
        return BrokerList(brokers=[_group(name, list(brokers)) for name, brokers in groups])

    def cluster_list(self) -> ClusterList:
        """Return the broker names of each cluster; raises NameServerSettlingError."""
        self.require_settled()
        self.expire()
        clusters: dict[str, set[str]] = {}
        for broker in self.table.brokers():
            clusters.setdefault(broker.cluster, set()).add(broker.broker_name)
        return ClusterList(clusters={name: sorted(clusters[name]) for name in sorted(clusters)})

    def kv_value(self, namespace: str, key: str) -> str:
        """Return a value of the key-value table.

        Raises:
            KeyNotFoundError: The key is missing.
            NameServerSettlingError: The service of this key may not have announced itself yet.
        """
        try:
            return self.kv.get(namespace, key)
        except KeyNotFoundError:
            if (seconds := self.services_settling_seconds(namespace)) > 0:
                raise _settling(f"{key} may not have announced itself yet", seconds) from None
            raise

    def kv_entries(self, namespace: str) -> dict[str, str]:
        """Return a namespace's entries.

        A client needs any one of the services that announce themselves, so one entry is enough.

        Raises:
            NameServerSettlingError: No service has announced itself there yet.
        """
        entries = self.kv.entries(namespace)
        if not entries and (seconds := self.services_settling_seconds(namespace)) > 0:
            raise _settling("services may not have announced themselves yet", seconds)
        return entries

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a value of the key-value table."""
        try:
            await self.kv.put(namespace, key, value)
        finally:  # even if the client has disconnected: the write is completed all the same
            self._kv_changed(namespace, key)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Remove a key of the key-value table."""
        try:
            await self.kv.delete(namespace, key)
        finally:
            self._kv_changed(namespace, key)

    def _kv_changed(self, namespace: str, key: str) -> None:
        """Apply a changed entry to the routes and to the services still expected."""
        if namespace == ORDER_NAMESPACE and self._returns_order_config:
            self._changed([key])
        elif namespace == ORDERED_TOPICS_NAMESPACE:
            self._changed(self._ordered.read())
        elif namespace in ANNOUNCED and self._awaited_services:
            self._awaited_services = {
                name for name in self._awaited_services if not key.startswith(f"{name}-")
            }

    async def _changed_route(
        self,
        topic: str,
        known: RenderedRoute | None,
        known_etags: frozenset[str],
        seconds: float,
        receive: Receive,
    ) -> RenderedRoute | None:
        if known is None and known_etags and self.table.knows_topics:
            # Hold it only until the topic's absence is certain.
            seconds = min(seconds, self.settling_seconds)
        deadline = self._clock.monotonic() + seconds
        with self.held.place() as place:
            watchers = self._watchers.setdefault(topic, set())
            watchers.add(place)
            try:
                released = Release.NEWS
                while released is Release.NEWS:
                    # A change may have been undone before this ran: then keep waiting.
                    current = self._look_up(topic)
                    if current != known or self._is_news(current, known_etags):
                        return current
                    left = deadline - self._clock.monotonic()
                    released = await place.wait(left, receive)
            finally:
                watchers.discard(place)
                if not watchers:
                    self._watchers.pop(topic, None)
        if released is Release.STOPPING:
            raise NotReadyError(
                "the name server is stopping", fix="ask another name server", retry_after_seconds=1
            )
        return self._look_up(topic)

    def _look_up(self, topic: str) -> RenderedRoute | None:
        self.expire()
        rendered = self._rendered.get(topic)
        if rendered is None and (route := self._known_route(topic)) is not None:
            if self._returns_order_config:
                order = self.kv.entries(ORDER_NAMESPACE).get(topic, route.order_config)
                route = route.model_copy(update={"order_config": order})
            body = route.model_dump_json().encode()
            digest = hashlib.blake2b(body, digest_size=16).hexdigest()
            rendered = self._rendered[topic] = RenderedRoute(body, f'"{digest}"')
        return rendered

    def _known_route(self, topic: str) -> TopicRoute | None:
        route = self.table.route(topic)
        if route is None and (order := self._ordered.order_config(topic)) is not None:
            # Its brokers are away, so it has no queues. It must not count as unknown: a client
            # would create it elsewhere, and its keys would move.
            route = TopicRoute(topic=topic, queues=[], brokers=[], order_config=order)
        return route

    def _changed(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._sorted_topics = None
            self._rendered.pop(topic, None)
            self._waking.wake(self._watchers.get(topic, ()))


def _settling(text: str, seconds: float) -> NameServerSettlingError:
    return NameServerSettlingError(
        f"the name server has just started: {text}, for {seconds:.1f} s more",
        retry_after_seconds=min(seconds, RETRY_SECONDS),
    )


def _no_live_broker(what: str) -> NoLiveBrokerError:
    return NoLiveBrokerError(
        f"no live broker has registered its topics here, so it is unknown {what}",
        retry_after_seconds=RETRY_SECONDS,
    )


def _group(name: str, brokers: list[LiveBroker]) -> BrokerGroup:
    former = dict.fromkeys(host for broker in brokers for host in broker.former_store_hosts)
    for broker in brokers:
        former.pop(broker.store_host, None)
    return BrokerGroup(
        cluster=brokers[0].cluster,
        broker_name=name,
        epoch=max(broker.epoch for broker in brokers),
        former_store_hosts=list(former),
        brokers=[
            BrokerAddress(
                broker_id=broker.broker_id,
                epoch=broker.epoch,
                role=broker.role,
                replica_id=broker.replica_id,
                urls=dict(broker.urls),
                store_host=broker.store_host,
                data_version=broker.data_version,
                last_seen_at=_instant(broker.seen_at_ms),
                expires_at=_instant(broker.seen_at_ms + round(broker.expiry_seconds * 1000)),
            )
            for broker in brokers
        ],
    )


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
