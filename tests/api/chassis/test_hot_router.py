"""A hot route is declared once: its document and its dispatch are of the same declaration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Path, Query
from fastapi.routing import iter_route_contexts
from msgspec import Struct

from eruca.contract.errors import ConflictError
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.exchange import JSON_CREATED, BodyLimit, Exchange, RequestHead
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.documents.schemas import in_json, in_octets
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter
from support.budgets import ManualBudget
from support.services import client_of

pytestmark = pytest.mark.anyio

PARTS = "/v1/things/{name}/parts"
LIMIT = BodyLimit(ManualBudget(1_000), 100, "parts_size_max")


class Part(Struct):
    """A part."""

    size: int


class Shop:
    """State of the endpoints; it counts the heads that are read."""

    heads_read = 0


router = HotRouter(prefix="/v1/things/{name}", tags=["things"])


@router.get("/parts", operation_id="listParts", needs=PUBLIC)
async def list_parts(name: str) -> list[str]:
    """List parts."""
    return [name]


@router.hot(
    "POST",
    "/parts",
    operation_id="postParts",
    needs=PUBLIC,
    summary="Make parts",
    status_code=201,
    takes=(in_json(Part, {"size": 1}), in_octets("image/png")),
    responses=answer({"size": 1}, 201, model=Part, description="Made.") | problems(ConflictError),
)
class PostParts(HotEndpoint):
    """Make as many parts as are wanted."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    @staticmethod
    def read(
        head: RequestHead,
        name: Annotated[str, Path(max_length=8)],
        *,
        count: Annotated[int, Query(ge=1, le=10)] = 1,
    ) -> tuple[str, int, str | None]:
        """Return whose parts are wanted, how many, and what they are made of."""
        Shop.heads_read += 1
        if name == "taken":
            raise ConflictError("somebody else has it")
        return name, count, head.media_type

    def admit(self, exchange: Exchange) -> None:
        """Ask for the body."""
        exchange.expect_body(LIMIT)

    def handle(self, exchange: Exchange) -> None:
        """Answer with what was understood."""
        name, count, media_type = exchange.request.meaning
        exchange.answer(JSON_CREATED, f"{name} {count} {media_type}".encode())


router.hot("POST", "/tools", operation_id="postTools", needs=PUBLIC)(PostParts)


def make_app() -> ServiceApp:
    return ServiceApp(
        title="Things", summary="", description="", version="1", routers=[router],
        lifespan=lifespan, tags=[{"name": "things"}],
    )  # fmt: skip


@asynccontextmanager
async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
    app.parts.add(Shop())
    app.open_routes()
    app.readiness.ready()
    yield


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_app()) as client:
        yield client


@pytest.fixture(name="operation")
def declared() -> dict[str, Any]:
    operation: dict[str, Any] = make_app().openapi()["paths"][PARTS]["post"]
    return operation


def test_the_declaration_is_the_document(operation: dict[str, Any]) -> None:
    assert operation["operationId"] == "postParts"
    assert operation["description"] == "Make as many parts as are wanted."
    assert [p["name"] for p in operation["parameters"]] == ["name", "count"]
    assert operation["parameters"][1]["schema"]["maximum"] == 10
    assert operation["requestBody"]["content"].keys() == {"application/json", "image/png"}
    assert operation["responses"].keys() >= {"201", "409", "415", "503"}


def test_the_router_knows_each_hot_route_once() -> None:
    app = make_app()
    known = [
        (method, context.path)
        for context in iter_route_contexts(app.routes)
        for method in context.methods or ()
    ]

    for route in app.hot.routes:
        assert known.count((route.method, route.template)) == 1, route.template


async def test_what_is_documented_is_taken_and_nothing_else(client: httpx.AsyncClient) -> None:
    for query, status in (
        ({}, 201), ({"count": 10}, 201), ({"count": 11}, 422), ({"coumt": 1}, 422),
    ):  # fmt: skip
        made = await client.post("/v1/things/a/parts", params=query, json={"size": 1})
        assert made.status_code == status, query
    for media_type, status in (("image/png", 201), ("image/jpeg", 415)):
        made = await client.post(
            "/v1/things/a/parts", content=b"x", headers={"content-type": media_type}
        )
        assert made.status_code == status, media_type
    assert (await client.post("/v1/things/a/parts?count=3", json={})).text == "a 3 application/json"
    assert (await client.post("/v1/things/taken/parts", json={})).status_code == 409


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/things/a/parts", 200),  # an ordinary route of the same path
        ("PUT", "/v1/things/a/parts", 405),
        ("POST", "/v1/things/a/tools%0A", 404),  # FastAPI's pattern matches it, the hot route not
        ("POST", "/v1/things/a/parts/", 404),
        ("POST", "/v1/things//parts", 404),
    ],
)
async def test_another_method_is_405_and_another_path_404(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answered = await client.request(method, path)

    assert answered.status_code == status
    if status == 405:
        assert answered.headers["allow"] == "GET, HEAD, POST"
        metrics = (await client.get("/metrics")).text
        assert f'total{{method="{method}",route="{PARTS}",status="405"}} 1.0' in metrics


async def test_no_request_comes_to_an_endpoint_before_the_service_is_open() -> None:
    app = make_app()  # … and its lifespan has not begun
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as client:
        read_before = Shop.heads_read
        refused = await client.post("/v1/things/a/parts", json={})
        wrong_method = await client.patch("/v1/things/a/parts")

    assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")
    assert (wrong_method.status_code, wrong_method.json()["code"]) == (503, "not-ready")
    assert Shop.heads_read == read_before


def test_an_endpoint_whose_signature_lacks_the_head_is_refused_where_it_is_declared() -> None:
    class Headless(HotEndpoint):
        """Reads nothing."""

        def __init__(self, shop: Shop) -> None: ...

        @staticmethod
        def read(name: str) -> str:
            return name

        def handle(self, exchange: Exchange) -> None: ...

    with pytest.raises(AssertionError, match="head"):
        router.hot("GET", "/headless", needs=PUBLIC)(Headless)
    assert all(operation.endpoint is not Headless for operation in router.hot_operations)
