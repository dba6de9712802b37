"""The hot routes: which there are, and how they reach their handlers.

A hot route is dispatched before FastAPI sees the request. FastAPI's router is given the paths all
the same, so that it answers 405 and not 404 where the method is another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from fastapi import APIRouter, Request, Response

from eruca_broker.api.pull import PullRoutes
from eruca_broker.api.send import SendRoutes
from eruca_chassis.asgi import Receive, Scope, Send
from eruca_chassis.hot import HotRoute, HotRoutes

SEND_PATH: Final = "/v1/topics/{topic}/messages"
RECORDS_PATH: Final = "/v1/topics/{topic}/queues/{queue_id}/records"
PULL_PATH: Final = "/v1/topics/{topic}/queues/{queue_id}/messages"
MULTI_PULL_PATH: Final = "/v1/pull"

Answer: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[int]]


class HotHandlers:
    """The handlers, once the store is open: before that, the service refuses every request."""

    def __init__(self) -> None:
        self.send: SendRoutes | None = None
        self.pull: PullRoutes | None = None

    def routes(self) -> HotRoutes:
        """Return the routes."""
        return HotRoutes(
            HotRoute("POST", SEND_PATH, self._send_messages),
            HotRoute("POST", RECORDS_PATH, self._send_records),
            HotRoute("GET", PULL_PATH, self._pull),
            HotRoute("POST", MULTI_PULL_PATH, self._pull_many),
        )

    # Plain functions that return the handler's coroutine: one coroutine less per request.

    def _send_messages(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[int]:
        assert self.send is not None
        return self.send.send_messages(scope, receive, send)

    def _send_records(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[int]:
        assert self.send is not None
        return self.send.send_records(scope, receive, send)

    def _pull(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[int]:
        assert self.pull is not None
        return self.pull.pull(scope, receive, send)

    def _pull_many(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[int]:
        assert self.pull is not None
        return self.pull.pull_many(scope, receive, send)


def shadow_router() -> APIRouter:
    """Return a router that knows the hot paths and is never asked to answer them."""
    router = APIRouter()
    for route in HotHandlers().routes().routes:
        router.add_route(route.template, _never, methods=[route.method], include_in_schema=False)
    return router


async def _never(_request: Request) -> Response:
    raise AssertionError("a hot route is dispatched before the router sees it")
