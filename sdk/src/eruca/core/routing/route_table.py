"""Routes in a client: the queues of each topic, and the age of this knowledge.

A topic's route has two views. The *publish view*, for producers, has queues of writable brokers
with a live master. The *subscribe view*, for consumers, has queues of readable brokers, from which
a replica can serve as well. Both are in queue order, so all clients count the same queues in the
same order. If the topic has an order config, sharding keys are divided over its queues, whether or
not their brokers are up. So a key keeps its queue. Otherwise they are divided over the queues of
the publish view.

Routes come from one name server at a time; they are not merged.

Source: RocketMQ 5.3, ``MQClientInstance.topicRouteData2TopicPublishInfo`` and
``topicRouteData2TopicSubscribeInfo``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from eruca.contract.errors import NoRouteError
from eruca.contract.fields import MASTER_ID, STANDALONE_EPOCH
from eruca.contract.limits import QUEUE_COUNT_MAX
from eruca.contract.records import Host
from eruca.contract.routes import TopicRoute
from eruca.core.messages.message_queue import MessageQueue

ROUTE_AGE_MS_MAX: Final = 30_000  # RocketMQ's pollNameServerInterval
DEFAULT_NETWORK: Final = "default"
_ORDER_PART: Final = re.compile(r"(?P<broker>.+):(?P<count>[0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class PublishView:
    """The part of a topic's route that producers need."""

    topic: str
    queues: tuple[MessageQueue, ...]  # writable queues, in publish order; may be empty
    urls: Mapping[str, str]  # of the masters, by broker name
    store_hosts: Mapping[str, Host]  # the masters' hosts as written into records, by broker name
    order: tuple[MessageQueue, ...] = ()  # the order config's queues, if there is one
    epochs: Mapping[str, int] = field(default_factory=dict)  # of brokers with replicas, by name

    @property
    def key_queues(self) -> tuple[MessageQueue, ...]:
        """The queues over which sharding keys and selectors divide messages."""
        return self.order or self.queues

    @property
    def awaits_master(self) -> bool:
        """True if a broker with replicas has no master now: they elect one within seconds."""
        return not self.epochs.keys() <= self.urls.keys()

    def is_missed(self, queue: MessageQueue) -> bool:
        """Tell whether *queue*'s broker is away, and worth waiting for.

        That is so if *queue* is in the order config, or if the broker has replicas.
        """
        name = queue.broker_name
        return name not in self.urls and (queue in self.order or name in self.epochs)

    def has_successor(self, broker_name: str) -> bool:
        """Tell whether another replica may become the broker's master: it returns within seconds.

        Then an attempt that the broker did not receive is worth another one.
        """
        return broker_name in self.epochs

    def url_of(self, queue: MessageQueue) -> str:
        """Return the URL of *queue*'s broker for writing.

        Raises:
            NoRouteError: Its broker has no live master: the queue was named, or is in the order
                config.
        """
        url = self.urls.get(queue.broker_name)
        if url is None:
            where = f"broker {queue.broker_name} of queue {queue.queue_id} of {self.topic} is away"
            if queue in self.order:
                raise NoRouteError(
                    f"{where}; in an ordered topic a sharding key keeps its queue",
                    fix="send again when it is back. If it will not return: eruca topic create"
                    f" {self.topic} --without {queue.broker_name}",
                )
            raise NoRouteError(where)
        return url


@dataclass(frozen=True, slots=True)
class SubscribeView:
    """The part of a topic's route that consumers need."""

    topic: str
    queues: tuple[MessageQueue, ...]  # readable queues, in queue order; may be empty
    urls: Mapping[str, Mapping[int, str]]  # by broker name, then by broker id
    standbys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # in sync, by broker name

    def url_of(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        """Return a URL for reading *queue*: of the given process of its broker, or of another one.

        Raises:
            NoRouteError: The broker is not in the route any more.
        """
        by_id = self.urls.get(queue.broker_name)
        if not by_id:
            raise NoRouteError(f"broker {queue.broker_name} of {self.topic} is not in the route")
        return by_id[broker_id if broker_id in by_id else min(by_id)]


@dataclass(frozen=True, slots=True)
class CachedRoute:
    """A topic's parsed route, and the time when it was fetched."""

    route: TopicRoute
    publish: PublishView
    subscribe: SubscribeView
    etag: str | None
    fetched_at_ms: float


class RouteTable:
    """The routes that a client has fetched. Not thread-safe.

    Args:
        network: The network whose broker addresses this client uses; the default network for
            brokers without an address in it.
        age_ms_max: How long a route is used before it is fetched again.
    """

    def __init__(
        self, *, network: str = DEFAULT_NETWORK, age_ms_max: float = ROUTE_AGE_MS_MAX
    ) -> None:
        self._network = network
        self._age_ms_max = age_ms_max
        self._routes: dict[str, CachedRoute] = {}

    def put(self, route: TopicRoute, *, etag: str | None, now_ms: float) -> bool:
        """Store a fetched route; return whether it differs from the one before.

        Raises:
            NoRouteError: Its order config is invalid; the route before it stays.
        """
        before = self._routes.get(route.topic)
        self._routes[route.topic] = CachedRoute(
            route,
            publish_view(route, network=self._network),
            subscribe_view(route, network=self._network),
            etag,
            now_ms,
        )
        return before is None or before.route != route

    def is_fuller(self, route: TopicRoute) -> bool:
        """Tell whether the cached route has all of *route*'s brokers and masters, and more."""
        cached = self._routes.get(route.topic)
        if cached is None:
            return False
        return _presence(cached.route) > _presence(route)

    def confirm(self, topic: str, *, now_ms: float) -> None:
        """Record that a cached route is still valid: the name server answered 304."""
        if (cached := self._routes.get(topic)) is not None:
            self._routes[topic] = replace(cached, fetched_at_ms=now_ms)

    def get(self, topic: str) -> CachedRoute | None:
        """Return a topic's route, however old; None if it was never fetched."""
        return self._routes.get(topic)

    def is_stale(self, topic: str, now_ms: float) -> bool:
        """Tell whether the topic's route must be fetched: it is missing or too old."""
        cached = self._routes.get(topic)
        return cached is None or now_ms - cached.fetched_at_ms >= self._age_ms_max

    def forget(self, topic: str) -> None:
        """Drop a topic's route: the topic is deleted, or not needed any more."""
        self._routes.pop(topic, None)

    def topics(self) -> list[str]:
        """Return the topics with cached routes, sorted."""
        return sorted(self._routes)

    def topics_at(self, url: str) -> list[str]:
        """Return the topics whose brokers have *url*."""
        return [
            topic
            for topic, cached in self._routes.items()
            if any(url in urls.values() for urls in cached.subscribe.urls.values())
        ]

    def broker_names(self) -> frozenset[str]:
        """Return every broker in the routes."""
        return frozenset(
            broker.broker_name
            for cached in self._routes.values()
            for broker in cached.route.brokers
        )


def _presence(route: TopicRoute) -> set[tuple[str, bool]]:
    """Return the names of the brokers that are there, and of the masters that are there."""
    return {
        (broker.broker_name, is_master)
        for broker in route.brokers
        for is_master in (False, bool(broker.urls.get(MASTER_ID)))
    }


def publish_view(route: TopicRoute, *, network: str = DEFAULT_NETWORK) -> PublishView:
    """Return the publish view of *route*.

    Raises:
        NoRouteError: The order config is invalid.
        ValueError: A store host is not ``IP:port``; name servers refuse such a registration.
    """
    masters = {b.broker_name: b for b in route.brokers if b.urls.get(MASTER_ID)}
    queues = tuple(
        MessageQueue(route.topic, data.broker_name, queue_id)
        for data in sorted(route.queues, key=lambda data: data.broker_name)
        if "w" in data.permission and data.broker_name in masters
        for queue_id in range(data.write_queue_count)
    )
    return PublishView(
        route.topic,
        queues,
        urls={
            name: address_for(broker.urls[MASTER_ID], network) for name, broker in masters.items()
        },
        store_hosts={
            name: Host.from_text(broker.store_hosts[MASTER_ID])
            for name, broker in masters.items()
            if MASTER_ID in broker.store_hosts
        },
        order=_ordered_queues(route.topic, route.order_config or ""),
        epochs={
            broker.broker_name: broker.epoch
            for broker in route.brokers
            if broker.epoch > STANDALONE_EPOCH
        },
    )


def subscribe_view(route: TopicRoute, *, network: str = DEFAULT_NETWORK) -> SubscribeView:
    """Return the subscribe view of *route*."""
    urls = {
        broker.broker_name: {
            broker_id: address_for(broker.urls[broker_id], network)
            for broker_id in sorted(broker.urls)
            if broker.urls[broker_id]
        }
        for broker in route.brokers
    }
    queues = tuple(
        MessageQueue(route.topic, data.broker_name, queue_id)
        for data in sorted(route.queues, key=lambda data: data.broker_name)
        if "r" in data.permission and urls.get(data.broker_name)
        for queue_id in range(data.read_queue_count)
    )
    standbys = {
        broker.broker_name: tuple(
            url
            for broker_id, url in urls[broker.broker_name].items()
            if broker.roles.get(broker_id) == "standby"
        )
        for broker in route.brokers
        if broker.epoch > STANDALONE_EPOCH
    }
    return SubscribeView(route.topic, queues, urls, standbys)


def _ordered_queues(topic: str, config: str) -> tuple[MessageQueue, ...]:
    """Return the queues of an order config, ``broker-a:4;broker-b:2``, in its own order."""
    queues = []
    for part in filter(None, config.split(";")):
        match = _ORDER_PART.fullmatch(part.strip())
        if match is None or int(match["count"]) > QUEUE_COUNT_MAX:
            raise NoRouteError(f"order config of {topic}: expected BROKER:QUEUES, found {part!r}")
        for queue_id in range(int(match["count"])):
            queues.append(MessageQueue(topic, match["broker"], queue_id))
    return tuple(queues)


def address_for(urls: Mapping[str, str], network: str) -> str:
    """Return the broker's address for a client in *network*."""
    # If a broker has no default address, the first one is as good as any.
    return urls.get(network) or urls.get(DEFAULT_NETWORK) or next(iter(urls.values()))
