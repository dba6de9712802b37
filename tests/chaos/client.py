"""A client that sends one request at a time, and writes down what it asked and was told.

It follows 307 as curl does, but only with its next request: so each operation of the history is one
request to one replica, and its outcome is known exactly.

| Answer | Outcome |
|---|---|
| 2xx | ok |
| no connection was made, 307, 4xx, 503 before anything was appended | fail |
| ``outcome-unknown``, ``store-failed``, 500, or no answer | info |
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from chaos.cluster import CLIENTS, Cluster
from chaos.history import Outcome, Recorder
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.transport import ConnectTimeoutError, HttpResponse, NotConnectedError
from eruca.contract.errors import ErucaError

ANSWER_SECONDS: Final = 4.0
PAUSE_SECONDS: Final = 0.15  # after a request that failed, so that nobody spins
UNKNOWN_CODES: Final = ("outcome-unknown", "store-failed")
_BAD_ANSWER: Final = "no JSON"

Read = Callable[[Any], Mapping[str, Any]]


class Request(NamedTuple):
    """A request to a broker group."""

    broker: str
    method: str
    target: str
    body: object = None
    headers: tuple[tuple[str, str], ...] = ()
    seconds: float = ANSWER_SECONDS
    replica: int | None = None  # which one must answer; None: the master
    meanings: Mapping[str, Mapping[str, Any]] = {}  # refusals that are answers, by their codes


class Answer(NamedTuple):
    """The knowledge of a client after its request."""

    outcome: Outcome
    told: Mapping[str, Any]

    @property
    def is_ok(self) -> bool:
        """True if it was done."""
        return self.outcome == "ok"


@dataclass
class World:
    """The things that all clients of a run share.

    Attributes:
        masters: For each group, the URL to which requests go first.
        last_ok: By operation and group, when the last one was done.
        is_over: Set when clients shall end.
        handled: Set when the consumers of the SDK shall end.
        settled: Set when nobody needs to look at the cluster any more.
    """

    cluster: Cluster
    recorder: Recorder
    random: Random
    masters: dict[str, str] = field(default_factory=dict)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    handled: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    last_ok: dict[tuple[str, str], float] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def url_of(self, broker: str, replica: int) -> str:
        """Return the URL by which clients know a replica."""
        [link] = self.cluster.network.between([CLIENTS], [f"{broker}/{replica}"])
        return link.url

    def any_url(self, broker: str) -> str:
        """Return the URL of a replica that may be the master."""
        return self.url_of(broker, self.random.randint(1, self.cluster.shape.replicas))

    def message(self, process: str) -> str:
        """Return a new message's body, which no other has."""
        self._counts[process] = self._counts.get(process, 0) + 1
        return f"{process}.{self._counts[process]}"


class Client:
    """One process of the history."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        self.random = Random(f"{world.random.random()}")
        self._transport = Http1Transport()

    async def close(self) -> None:
        """Close its connections."""
        await self._transport.close()

    async def pause(self, seconds: float) -> None:
        """Wait, until the run is over at most."""
        waiting = asyncio.ensure_future(self.world.is_over.wait())
        await asyncio.wait([waiting], timeout=seconds)
        waiting.cancel()

    async def do(self, op: str, asked: Mapping[str, Any], request: Request, read: Read) -> Answer:
        """Send a request, and record it with its end."""
        self.world.recorder.record("invoke", self.name, op, asked)
        answer = await self._ask(request, read)
        self.world.recorder.record(answer.outcome, self.name, op, answer.told)
        if answer.is_ok:
            self.world.last_ok[op, request.broker] = self.world.recorder.now()
        else:
            await self.pause(PAUSE_SECONDS * (0.5 + self.random.random()))
        return answer

    async def _ask(self, request: Request, read: Read) -> Answer:
        broker = request.broker
        if request.replica is not None:
            url = self.world.url_of(broker, request.replica)
        else:
            url = self.world.masters.setdefault(broker, self.world.any_url(broker))
        content = () if request.body is None else (json.dumps(request.body).encode(),)
        headers = request.headers
        if content:
            headers = (*headers, ("content-type", "application/json"))
        try:
            response = await self._transport.request(
                request.method,
                url,
                request.target,
                headers=headers,
                body=content,
                timeout=request.seconds,
            )
        except (NotConnectedError, ConnectTimeoutError) as error:
            self._try_another(broker, url)
            return Answer("fail", {"code": error.code, "url": url})
        except ErucaError as error:
            self._try_another(broker, url)
            return Answer("info", {"code": error.code, "url": url})
        return self._judge(request, url, response, read)

    def _judge(self, request: Request, url: str, response: HttpResponse, read: Read) -> Answer:
        broker = request.broker
        try:
            told = json.loads(response.body) if response.body else {}
        except ValueError:
            return Answer("info", {"code": _BAD_ANSWER, "url": url})
        if 200 <= response.status < 300:
            return Answer("ok", {**read(told), "by": url})
        code = told.get("code", "")
        if code in request.meanings:
            return Answer("ok", {**request.meanings[code], "by": url})
        seen = {"code": code, "url": url}
        if response.status == 307:
            self._go_to_master(broker, url, told)
        elif response.status >= 500:
            self._try_another(broker, url)
        is_unknown = code in UNKNOWN_CODES or response.status == 500
        return Answer("info" if is_unknown else "fail", seen)

    def _go_to_master(self, broker: str, url: str, told: Mapping[str, Any]) -> None:
        urls = told.get("master_urls") or {}
        target = urls.get("default")
        if target is None:
            self._try_another(broker, url)
        elif self.world.masters.get(broker) == url:
            self.world.masters[broker] = target

    def _try_another(self, broker: str, url: str) -> None:
        if self.world.masters.get(broker) == url:
            self.world.masters[broker] = self.world.any_url(broker)
