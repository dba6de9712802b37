"""Parts: an endpoint gets the ones that it declares, and a service without them does not open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import pytest

from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.exchange import JSON_OK, Exchange, RequestHead
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter
from eruca_chassis.routes.parts import Part, Parts
from eruca_chassis.routes.router import Router
from support.services import client_of

pytestmark = pytest.mark.anyio
_T = TypeVar("_T")


class Pump:
    name = "pump"


class Valve:
    name = "valve"


class Shelf(Generic[_T]):
    def __init__(self, *things: _T) -> None:
        self.things = things


router = Router()
hot_router = HotRouter()


@router.get("/v1/pump", operation_id="getPump", needs=PUBLIC)
async def get_pump(pump: Part[Pump], shelf: Part[Shelf[int]]) -> tuple[str, int]:
    """Get the pump."""
    return pump.name, len(shelf.things)


@hot_router.hot("GET", "/v1/valve", operation_id="getValve", needs=PUBLIC)
class GetValve(HotEndpoint):
    """Get the valve."""

    def __init__(self, pump: Pump, *, valve: Valve) -> None:
        self._names = f'["{pump.name}","{valve.name}"]'.encode()

    @staticmethod
    def read(head: RequestHead) -> None:
        """Return nothing: the head says nothing else."""

    def handle(self, exchange: Exchange) -> None:
        """Answer with the names."""
        exchange.answer(JSON_OK, self._names)


def service(*parts: object) -> ServiceApp:
    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        for part in parts:
            app.parts.add(part)
        app.open_routes()
        app.readiness.ready()
        yield

    return ServiceApp(
        title="Parts", summary="", description="", version="1",
        routers=[router, hot_router], lifespan=lifespan,
    )  # fmt: skip


async def test_each_endpoint_gets_the_parts_that_it_declares() -> None:
    async with client_of(service(Pump(), Valve(), Shelf(1, 2))) as client:
        ordinary, hot = await client.get("/v1/pump"), await client.get("/v1/valve")

    assert ordinary.json() == ["pump", 2]
    assert hot.json() == ["pump", "valve"]


async def test_parts_are_no_parameters_of_a_request() -> None:
    operation = service().openapi()["paths"]["/v1/pump"]["get"]

    assert "requestBody" not in operation
    assert "parameters" not in operation


@pytest.mark.parametrize(
    ("parts", "missing"),
    [((Pump(), Valve()), "Shelf"), ((Pump(), Shelf[int]()), "Valve")],
    ids=["of an ordinary endpoint", "of a hot one"],
)
async def test_a_service_that_lacks_a_declared_part_does_not_open(
    parts: tuple[object, ...], missing: str
) -> None:
    with pytest.raises(AssertionError, match=f"{missing}.* is missing"):
        async with client_of(service(*parts)):
            pass


def test_a_part_may_be_added_under_its_superclass() -> None:
    class SmallPump(Pump):
        pass

    parts = Parts()
    pump = parts.add(SmallPump(), Pump)

    assert parts[Pump] is pump
    with pytest.raises(AssertionError, match=r"SmallPump.* is missing"):
        parts[SmallPump]


def test_there_is_one_part_of_each_type() -> None:
    parts = Parts()
    parts.add(Pump())

    with pytest.raises(AssertionError, match="found two"):
        parts.add(Pump())
