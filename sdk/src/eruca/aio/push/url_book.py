"""The brokers' URLs: from the routes of a consumer's topics, else the last known ones."""

from __future__ import annotations

from collections.abc import Iterable

from eruca.aio.cluster.routes import Routes
from eruca.contract.errors import NoRouteError
from eruca.contract.fields import MASTER_ID
from eruca.core.messages.message_queue import MessageQueue


class UrlBook:
    """The URLs of the brokers that have queues of some topics."""

    def __init__(self, routes: Routes, topics: Iterable[str]) -> None:
        self._routes = routes
        self._topics = tuple(topics)
        self._known: dict[str, str] = {}

    def url_of(self, broker_name: str) -> str:
        """Return a broker's URL: from a current route, else the last known one.

        Raises:
            NoRouteError: The broker was in no route so far.
        """
        for topic in self._topics:
            view = self._routes.cached_subscribe_view(topic)
            urls = {} if view is None else view.urls.get(broker_name, {})
            if urls:
                self._known[broker_name] = urls[MASTER_ID if MASTER_ID in urls else min(urls)]
                break
        url = self._known.get(broker_name)
        if url is None:
            raise NoRouteError(f"broker {broker_name} is in no route of {', '.join(self._topics)}")
        return url

    def url_of_queue(self, queue: MessageQueue) -> str:
        """Return the URL of a queue's broker."""
        return self.url_of(queue.broker_name)
