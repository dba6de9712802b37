"""Handlers depend on no plain functions: FastAPI would start threads for those."""

from __future__ import annotations

import inspect

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIRouter

from eruca_namesrv.api import brokers
from eruca_query.api import messages, status


@pytest.mark.parametrize("router", [messages.router, status.router, brokers.router])
def test_no_request_needs_a_thread(router: APIRouter) -> None:
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    plain = [
        dependant.call
        for route in routes
        for dependant in _all(route.dependant)
        if dependant.call is not None and not inspect.iscoroutinefunction(dependant.call)
    ]

    assert routes
    assert plain == []


def _all(dependant: Dependant) -> list[Dependant]:
    return [dependant, *(inner for each in dependant.dependencies for inner in _all(each))]
