"""Routes of a client whose name servers are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import eruca
from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.cluster.routes import Routes
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import OverloadedError, TransportError
from eruca.core.routing.master_book import MasterBook
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    live_brokers,
    problem_answer,
    route_of,
)


class NameServer:
    """One that holds requests, and several of which may disagree."""

    def __init__(self, urls: list[str]) -> None:
        self.tables: dict[str, dict[str, dict[str, Any]]] = {url: {} for url in urls}
        self.brokers: list[str] = []
        self.holds = True
        self.is_down = False
        self.unreachable: str | None = None  # what is asked there from now on fails
        self.settling: int | None = None  # seconds, as one that has just started says
        self.changed = asyncio.Event()

    def put(self, topic: str, *broker_names: str, at: str | None = None) -> None:
        for url in self.tables if at is None else [at]:
            self.tables[url][topic] = route_of(topic, *broker_names)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def go_down(self) -> None:
        self.is_down = True
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def lose_everything(self) -> None:
        for table in self.tables.values():
            table.clear()

    async def __call__(self, request: Request) -> HttpResponse:
        if request.target == "/v1/brokers":
            return self.broker_list()
        topic = request.target.split("/")[3]
        if self.settling is not None and "require_settled" in request.target:
            return problem_answer(eruca.NameServerSettlingError("it has just started"))
        is_held = "wait_seconds" in request.target
        if is_held and not self.holds:
            return problem_answer(OverloadedError("too many held requests"))
        while True:
            if self.is_down or request.url == self.unreachable:
                raise TransportError(f"{request.url} is down")
            route = self.tables[request.url].get(topic)
            etag = f'"{hash(str(route))}"'
            if route is not None and request.headers.get("if-none-match") != etag:
                answer = json_answer(route, etag=etag)
                if self.settling is not None:
                    answer.headers["eruca-settling"] = str(self.settling)  # type: ignore[index]
                return answer
            if not is_held:
                break
            await self.changed.wait()
        if route is None and self.settling is not None:
            return problem_answer(eruca.NameServerSettlingError("it has just started"))
        if route is None:
            return problem_answer(eruca.TopicNotFoundError(f"no topic {topic}"))
        return HttpResponse(304, {"etag": etag}, b"")

    def broker_list(self) -> HttpResponse:
        return json_answer(live_brokers(*self.brokers))


@asynccontextmanager
async def routes_of(
    *urls: str, timeout: float = 5.0
) -> AsyncIterator[tuple[Routes, NameServer, ScriptedTransport]]:
    chosen = list(urls) or ["http://n1"]
    server = NameServer(chosen)
    transport = ScriptedTransport(server)
    routes = Routes(
        NameServers(chosen, transport), MasterBook(), network="default", timeout=timeout
    )
    yield routes, server, transport
    await routes.close()


def plain(transport: ScriptedTransport) -> list[Request]:
    return [request for request in transport.requests if "wait_seconds" not in request.target]


def brokers_of(routes: Routes, topic: str) -> set[str]:
    view = routes.cached_publish_view(topic)
    return set() if view is None else set(view.urls)
