"""Send messages to a topic in batches; each batch is stored whole or not at all.

Each request has an idempotency key. A broker knows a key for a time, so a request whose answer was
lost is sent again until the answer comes, and two attempts of a task may run at once.

A key is known to one broker, and not for ever. So before a batch is sent, every broker of the topic
is asked for its first message, whose id must not depend on the queues. If they have changed since
an earlier attempt, another queue may have it. If the attempt was long ago, the key is forgotten,
but the message is still in the log. In both cases the batch is compared with the stored messages
one by one. If they are the same, it is not sent again, and otherwise it is refused. Not found are
messages that retention has deleted, messages that wait for their delivery time, and messages of a
broker that is not in the route.

A broker that dies leaves the route. So a route can be looked up once for all attempts. Then each of
them asks every broker of it, and fails if one cannot be asked, instead of storing the batch again
at another broker.
"""

from __future__ import annotations

import copy
import json
import os
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPMessage
from types import MappingProxyType
from typing import Any, Final, Protocol
from urllib.parse import quote

from eruca.exporting.credentials import CredentialFiles, credentials_of
from eruca.exporting.errors import RefusedError, SourceError
from eruca.exporting.ranges import Queue
from eruca.exporting.service import TRANSIENT, Patience, Service

IDEMPOTENCY_WINDOW_DEFAULT: Final = 86_400.0  # seconds, the brokers' default
_NOT_THE_MASTER: Final = frozenset({"not-master", "not-master-for-sure"})
KEY_REUSED: Final = "idempotency-key-reused"
_FOUND_MAX: Final = 64  # messages in one answer
_REPLAYED_HEADER: Final = "idempotent-replayed"


class SendOptions(Protocol):
    """The options of every writer."""

    @property
    def namesrvs(self) -> tuple[str, ...]:
        """The name servers."""
        ...

    @property
    def patience_seconds(self) -> float:
        """Seconds to retry without any progress."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """Seconds to wait for an answer's next bytes."""
        ...

    @property
    def files(self) -> CredentialFiles:
        """The files of keys and certificates."""
        ...


@dataclass(frozen=True)
class TopicRoute:
    """The queues of a topic, and the brokers to ask for its messages, at one time."""

    queues: tuple[Queue, ...]  # that accept messages
    urls: Mapping[str, str]  # of the brokers' masters, by name


class Connections:
    """The services that one thread talks to, each over one connection, whatever the topic.

    Args:
        options: How long to retry, and the credentials.
    """

    def __init__(self, options: SendOptions) -> None:
        self._options = options
        self._services: dict[tuple[str, ...], Service] = {}

    def to(self, *urls: str) -> Service:
        """Return the service at one of *urls*, which are equivalent."""
        if urls not in self._services:
            self._services[urls] = Service(
                urls,
                timeout=self._options.timeout_seconds,
                patience=self._options.patience_seconds,
                credentials=credentials_of(os.environ, self._options.files),
            )
        return self._services[urls]

    def close(self) -> None:
        """Close the connections."""
        for service in self._services.values():
            service.close()


class TopicSender:
    """Sends to the queues of one topic.

    Args:
        options: The name servers, and how long to retry.
        topic: The topic, which must exist.
        window_seconds: How long brokers know an idempotency key.
        route: An earlier sender's, whose brokers must all be asked; None: look it up.
        connections: Those of this thread; None: new ones.

    Raises:
        SourceError: The topic does not exist, or no broker accepts its messages.
    """

    def __init__(
        self,
        options: SendOptions,
        topic: str,
        *,
        window_seconds: float = IDEMPOTENCY_WINDOW_DEFAULT,
        route: TopicRoute | None = None,
        connections: Connections | None = None,
    ) -> None:
        self._namesrvs = options.namesrvs
        self._window_seconds = window_seconds
        self._topic = topic
        self._path = f"/v1/topics/{quote(topic, safe='')}"
        self._connections = connections or Connections(options)
        self.route = route or self._look_up()
        self._urls = dict(self.route.urls)  # at present; no broker is ever removed
        if not self.queues:
            raise SourceError(f"no broker accepts messages of {topic}")

    @property
    def queues(self) -> Sequence[Queue]:
        """The queues, which stay the same."""
        return self.route.queues

    def twin(self, connections: Connections) -> TopicSender:
        """Return a sender to the same queues for another thread, over its connections."""
        twin = copy.copy(self)
        twin._connections = connections
        twin._urls = dict(self._urls)
        return twin

    def send(
        self,
        queue: Queue,
        ids: Sequence[str],
        messages: Sequence[bytes],
        *,
        next_id: str | None = None,
    ) -> bool:
        """Store messages in one queue; return False if they had been stored before.

        Args:
            queue: One of the queues.
            ids: The messages' ids; the first one is the idempotency key.
            messages: Their JSON, at least one, each with its id.
            next_id: The id that one more message under the key would have; None: ids tell nothing.

        Raises:
            RefusedError: A broker refused the messages, or other messages were sent under the key.
                None of them is stored.
            UnavailableError: There was no answer until the time limit. They may be stored.
        """
        for name in list(self._urls):
            found = self._stored(name, ids[0])
            if found is None:
                continue
            is_there = (name, found["queue_id"]) == (queue.broker_name, queue.queue_id)
            if is_there and not self._may_be_forgotten(found):
                break  # the broker itself compares
            self._check_same(name, ids, messages)
            if next_id is not None and self._stored(name, next_id) is not None:
                raise RefusedError(
                    f"{name} has more messages of topic {self._topic} under {ids[0]!r}: {next_id!r}"
                    " follows them there",
                    KEY_REUSED,
                )
            return False
        body = b'{"messages": [%b]}' % b", ".join(messages)
        escaped = ids[0].replace("\\", "\\\\").replace('"', '\\"')
        headers, _ = self._request(
            queue.broker_name,
            "POST",
            [("queue_id", str(queue.queue_id))],
            body,
            {"idempotency-key": f'"{escaped}"'},
        )
        return _REPLAYED_HEADER not in headers

    def holder(self, message_id: str) -> str | None:
        """Return a broker that has the message with an id; None if there is none."""
        for name in list(self._urls):
            if self._stored(name, message_id) is not None:
                return name
        return None

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _request(
        self,
        broker_name: str,
        method: str,
        query: Sequence[tuple[str, str]],
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[HTTPMessage, bytes]:
        """Return a broker's answer, with retries until the time limit."""
        patience = self._connections.to(self._urls[broker_name]).patience()
        while True:
            try:
                return self._connections.to(self._urls[broker_name]).kept_request(
                    method, f"{self._path}/messages", query, body=body, headers=headers
                )
            except TRANSIENT as error:
                self._look_again(patience, error)
            except RefusedError as error:
                if error.code not in _NOT_THE_MASTER:
                    raise
                self._look_again(patience, error)

    def _look_again(self, patience: Patience, error: Exception) -> None:
        """Wait, and take over the present addresses of the brokers: another one may be master."""
        patience.wait(error)
        for name, url in self._look_up().urls.items():
            known = self._urls.get(name, url)
            self._urls[name] = url
            if known != url:
                self._connections.to(known).close()

    def _stored(self, broker_name: str, message_id: str) -> dict[str, Any] | None:
        """Return the message with an id; None if the broker has none."""
        query = [("key", message_id), ("limit", str(_FOUND_MAX))]
        cursor: str | None = ""
        while cursor is not None:
            more = [("cursor", cursor)] if cursor else []
            _, content = self._request(broker_name, "GET", [*query, *more])
            found = json.loads(content)
            for message in found["messages"]:
                if message["message_id"] == message_id:
                    return dict(message)
            if found.get("damaged"):
                raise SourceError(
                    f"{broker_name} has a damaged message that may be {message_id!r} of topic"
                    f" {self._topic}: it cannot be known whether it was sent"
                )
            cursor = found.get("next_cursor")
        return None

    def _may_be_forgotten(self, stored: Mapping[str, Any]) -> bool:
        """Tell whether the broker may soon not know a message's key any more."""
        age = datetime.now(UTC) - datetime.fromisoformat(stored["stored_at"])
        return age.total_seconds() > self._window_seconds / 2

    def _check_same(self, broker_name: str, ids: Sequence[str], messages: Sequence[bytes]) -> None:
        """Raise RefusedError if a broker does not have just these messages."""
        for message_id, text in zip(ids, messages, strict=True):
            stored = self._stored(broker_name, message_id)
            if stored is None or _content(stored) != _content(json.loads(text)):
                what = "is missing" if stored is None else "has other content"
                raise RefusedError(
                    f"{broker_name} has message {ids[0]!r} of topic {self._topic}, but"
                    f" {message_id!r} {what} there",
                    KEY_REUSED,
                )

    def _look_up(self) -> TopicRoute:
        # All queues of the topic, because keys are divided over them. A name server that has just
        # started would return only some.
        namesrv = self._connections.to(*self._namesrvs)
        route = namesrv.get_json(f"{self._path}/route", [("require_settled", "true")])
        masters = {
            broker["broker_name"]: broker["urls"].get("0", {}).get("default")
            for broker in route["brokers"]
        }
        queues: list[Queue] = []
        urls: dict[str, str] = {}
        for data in sorted(route["queues"], key=lambda data: str(data["broker_name"])):
            name, url = data["broker_name"], masters.get(data["broker_name"])
            if not url or data["permission"] == "none":
                continue
            urls[name] = url  # a broker that accepts no more messages may have earlier ones
            if "w" in data["permission"]:
                queues += [
                    Queue(self._topic, name, number) for number in range(data["write_queue_count"])
                ]
        return TopicRoute(tuple(queues), urls)


def _content(message: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the compared fields of a message, to be sent or stored."""
    body = message["body"] or {}
    octets: object = None
    if "json" in body:
        octets = body["json"]  # compared by value
    elif "base64" in body:
        octets = b64decode(body["base64"])
    elif "text" in body:
        octets = body["text"].encode()
    return (
        octets,
        message["tag"],
        message["keys"],
        message["sharding_key"],
        message["properties"],
        message["flag"],
    )


def queue_index(sharding_key: str, queue_count: int) -> int:
    """Return the queue for a sharding key's messages, as all producers compute it.

    It is Java's ``String.hashCode``, and the absolute value of Java's remainder.
    """
    value = 0
    units = sharding_key.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "little")) & 0xFFFF_FFFF
    return abs(value - (1 << 32) if value & 0x8000_0000 else value) % queue_count
