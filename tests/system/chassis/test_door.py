"""The door: hot requests and ordinary ones are refused alike, on a socket and in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest

from eruca.contract.errors import ConflictError, ErucaError, NotFoundError, NotReadyError
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.asgi import Header
from eruca_chassis.connections.exchange import JSON_OK, Exchange
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter
from eruca_chassis.routes.router import Router
from eruca_chassis.running.serving import embedded
from eruca_chassis.running.settings import ServiceSettings
from support.services import client_of

pytestmark = pytest.mark.anyio

ordinary = Router(prefix="/v1")
hot = HotRouter(prefix="/v1")


@ordinary.get("/things", operation_id="listThings", needs=PUBLIC)
async def things() -> list[str]:
    return ["thing"]


@ordinary.put("/things/{name}", operation_id="putThing", needs=PUBLIC)
async def put(name: str, thing: dict[str, str]) -> str:
    return name


@ordinary.get("/things/{name}", operation_id="getThing", needs=PUBLIC)
async def thing(name: str) -> str:
    raise NotFoundError(f"no thing {name}")


@hot.hot("GET", "/parts/{name}", operation_id="getPart", needs=PUBLIC)
class Part(HotEndpoint):
    """Get a part."""

    @staticmethod
    def read(head: object, *, name: str) -> str:
        return name

    def handle(self, exchange: Exchange) -> None:
        raise NotFoundError(f"no part {exchange.request.meaning}")


@hot.hot("GET", "/parts", operation_id="listParts", needs=PUBLIC)
class Parts(HotEndpoint):
    """List the parts."""

    @staticmethod
    def read(head: object) -> None:
        return None

    def handle(self, exchange: Exchange) -> None:
        exchange.answer(JSON_OK, b'["part"]')


class ReadingRoom:
    """A door that lets nobody in but readers, and says how often it was asked for headers."""

    def __init__(self, *readers: str) -> None:
        self.readers = readers
        self.answers = 0

    def refusal(self, operation: str) -> ErucaError | None:
        return None if operation in self.readers else ConflictError(f"not {operation}")

    def failure(self, operation: str, error: ErucaError) -> ErucaError:
        if isinstance(error, NotFoundError):
            return NotReadyError(f"{operation} does not know: {error.detail}")
        return error

    def headers(self, operation: str) -> Sequence[Header]:
        self.answers += 1
        return ((b"room", operation.encode()),)


def make_app() -> ServiceApp:
    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    return ServiceApp(
        title="Things",
        summary="",
        description="",
        version="1",
        routers=[ordinary, hot],
        lifespan=lifespan,
    )


@pytest.fixture(params=["socket", "in process"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    app = make_app()
    if request.param == "in process":
        async with client_of(app) as client:
            client.app = app  # type: ignore[attr-defined]
            yield client
        return
    async with embedded(app, ServiceSettings()) as server:
        [(host, port)] = server.service.addresses
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            client.app = app  # type: ignore[attr-defined]
            yield client


def set_door(client: httpx.AsyncClient, door: ReadingRoom | None) -> None:
    client.app.readiness.door = door  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("GET", "/v1/things", "listThings"),
        ("HEAD", "/v1/things", "listThings"),
        ("PUT", "/v1/things/a", "putThing"),
        ("GET", "/v1/parts", "listParts"),
        ("HEAD", "/v1/parts", "listParts"),
    ],
)
async def test_the_door_refuses_by_operation(
    client: httpx.AsyncClient, method: str, path: str, operation: str
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code in (200, 422)
    assert "room" not in answer.headers

    set_door(client, ReadingRoom("nothing"))
    refused = await client.request(method, path, content=b"{")
    assert refused.status_code == 409
    if method != "HEAD":
        assert refused.json()["detail"] == f"not {operation}"

    set_door(client, ReadingRoom(operation))
    answer = await client.request(method, path)
    assert answer.status_code in (200, 422)
    assert answer.headers["room"] == operation

    set_door(client, None)
    assert (await client.request(method, path)).status_code in (200, 422)


@pytest.mark.parametrize(
    ("path", "operation"), [("/v1/things/a", "getThing"), ("/v1/parts/a", "getPart")]
)
async def test_the_door_sees_how_operations_fail(
    client: httpx.AsyncClient, path: str, operation: str
) -> None:
    assert (await client.get(path)).status_code == 404

    set_door(client, ReadingRoom(operation))

    answer = await client.get(path)
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith(f"{operation} does not know: no ")


async def test_other_paths_are_none_of_the_doors_business(client: httpx.AsyncClient) -> None:
    set_door(client, ReadingRoom())
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.get("/v1/nothing")).status_code == 404
    assert (await client.delete("/v1/parts")).status_code == 405


async def test_a_stopping_service_still_shows_the_way(client: httpx.AsyncClient) -> None:
    set_door(client, ReadingRoom("listThings"))

    client.app.readiness.stop()  # type: ignore[attr-defined]

    assert (await client.get("/v1/parts")).status_code == 409
    assert (await client.get("/v1/things")).status_code == 503


async def test_a_farewell_ends_before_requests_are_refused() -> None:
    app = make_app()
    is_leaving, may_leave = asyncio.Event(), asyncio.Event()

    async def farewell() -> None:
        is_leaving.set()
        await may_leave.wait()

    async def failing() -> None:
        raise ZeroDivisionError

    app.farewells += [failing, farewell]
    async with embedded(app, ServiceSettings()) as server:
        [(host, port)] = server.service.addresses
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            server.stop()
            await is_leaving.wait()

            assert (await client.get("/v1/parts")).json() == ["part"]
            assert not app.readiness.is_stopping
            may_leave.set()
    assert app.readiness.is_stopping
