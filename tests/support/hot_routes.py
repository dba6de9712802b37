"""Hot routes whose functions a test brings along, instead of endpoints that are classes."""

from __future__ import annotations

from typing import NamedTuple

from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.connections.exchange import Exchange
from eruca_chassis.connections.hot import Step
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter


def _expect_no_body(_exchange: Exchange) -> None:
    pass


class Hot(NamedTuple):
    """One route."""

    method: str
    path: str
    handle: Step
    admit: Step = _expect_no_body


def hot_router(*routes: Hot) -> HotRouter:
    """Return a router with *routes*; ``open_routes`` opens them."""
    router = HotRouter()
    for number, route in enumerate(routes):
        router.hot(route.method, route.path, needs=PUBLIC)(_endpoint(f"hot{number}", route))
    return router


def _endpoint(name: str, route: Hot) -> type[HotEndpoint]:
    functions = {
        "read": staticmethod(lambda head: None),
        "admit": staticmethod(route.admit),
        "handle": staticmethod(route.handle),
    }
    return type(name, (HotEndpoint,), functions)
