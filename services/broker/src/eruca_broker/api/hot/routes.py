"""The hot routes: which there are, and who answers them once the store is open.

A hot route is dispatched before FastAPI sees the request. FastAPI knows the paths all the same, so
that it answers 405 and not 404 where the method is another: by the router that declares a route for
the document, or else by its shadow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from eruca_broker.api.hot.delivery_routes import DeliveryRoutes
from eruca_broker.api.hot.pull import PullRoutes
from eruca_broker.api.hot.send import SendRoutes
from eruca_broker.api.hot.transaction_routes import TransactionRoutes
from eruca_chassis.connections.exchange import Exchange
from eruca_chassis.connections.hot import HotRoute, HotRoutes

SEND_PATH: Final = "/v1/topics/{topic}/messages"
RECORDS_PATH: Final = "/v1/topics/{topic}/queues/{queue_id}/records"
PULL_PATH: Final = "/v1/topics/{topic}/queues/{queue_id}/messages"
MULTI_PULL_PATH: Final = "/v1/pull"
BEGIN_PATH: Final = "/v1/transactions"
COMMIT_PATH: Final = "/v1/transactions/{transaction_id}:commit"
ROLLBACK_PATH: Final = "/v1/transactions/{transaction_id}:rollback"
DELIVERIES_PATH: Final = "/v1/groups/{group}/deliveries"
ACK_PATH: Final = f"{DELIVERIES_PATH}:ack"


class HotHandlers:
    """The routes; until :meth:`open` the service is not ready and refuses every request."""

    def __init__(self) -> None:
        self._messages = _unopened("POST", SEND_PATH)
        self._records = _unopened("POST", RECORDS_PATH)
        self._pull = _unopened("GET", PULL_PATH)
        self._multi_pull = _unopened("POST", MULTI_PULL_PATH)
        self._begin = _unopened("POST", BEGIN_PATH)
        self._commit = _unopened("POST", COMMIT_PATH)
        self._rollback = _unopened("POST", ROLLBACK_PATH)
        self._deliveries = _unopened("POST", DELIVERIES_PATH)
        self._ack = _unopened("POST", ACK_PATH)
        self.routes = HotRoutes(
            self._messages,
            self._records,
            self._pull,
            self._multi_pull,
            self._begin,
            self._commit,
            self._rollback,
            self._deliveries,
            self._ack,
        )

    def open(
        self,
        send: SendRoutes,
        pull: PullRoutes,
        transactions: TransactionRoutes,
        deliveries: DeliveryRoutes,
    ) -> None:
        """Let them answer."""
        self._messages.answer_by(send.send_messages, admit=send.admit_messages)
        self._records.answer_by(send.send_records, admit=send.admit_records)
        self._pull.answer_by(pull.pull)
        self._multi_pull.answer_by(pull.pull_many, admit=pull.admit_many)
        self._begin.answer_by(transactions.begin, admit=transactions.admit_begin)
        self._commit.answer_by(transactions.commit, admit=transactions.admit_decision)
        self._rollback.answer_by(transactions.roll_back, admit=transactions.admit_decision)
        self._deliveries.answer_by(deliveries.receive, admit=deliveries.admit)
        self._ack.answer_by(deliveries.acknowledge, admit=deliveries.admit)


def shadow_router(routers: Iterable[APIRouter]) -> APIRouter:
    """Return a router that knows the hot routes, but for those that *routers* declare.

    It is never asked to answer them.
    """
    declared = {
        (method, route.path)
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    shadow = APIRouter()
    for route in HotHandlers().routes.routes:
        if (route.method, route.template) not in declared:
            shadow.add_route(
                route.template, _shadow(), methods=[route.method], include_in_schema=False
            )
    return shadow


def dispatched_before() -> AssertionError:
    """Return what an endpoint raises that stands for a hot route."""
    return AssertionError("a hot route is dispatched before the router sees it")


def _shadow() -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint of one path's own: what is refused is counted by it."""

    async def never(_request: Request) -> Response:
        raise dispatched_before()

    return never


def _unopened(method: str, template: str) -> HotRoute:
    return HotRoute(method, template, _too_early, admit=_too_early)


def _too_early(_exchange: Exchange) -> None:
    raise AssertionError("the service was ready before its store was open")
