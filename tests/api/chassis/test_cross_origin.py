"""Pages of other sites: the named ones may call the service, foreign ones change nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from eruca_chassis.admission.cross_origin import CrossOrigin, origins_of
from eruca_chassis.admission.hosts import AllowedHosts
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.exchange import JSON_CREATED, BodyLimit, Exchange
from eruca_chassis.guard import Guard
from eruca_chassis.routes.router import Router
from eruca_chassis.running.settings import ServiceSettings
from support.budgets import ManualBudget
from support.hot_routes import Hot, hot_router
from support.services import client_of, serving

pytestmark = pytest.mark.anyio

EXPLORER = "http://127.0.0.1:10931"
CROSS_SITE = {"sec-fetch-site": "cross-site"}
FROM_EXPLORER = {"origin": EXPLORER, **CROSS_SITE}
FROM_ELSEWHERE = {"origin": "https://elsewhere.example", **CROSS_SITE}
LIMIT = BodyLimit(ManualBudget(1_000), 100, "parts_size_max")

router = Router(prefix="/v1/things")


@router.get("/{name}", operation_id="getThing", needs=PUBLIC)
async def get_thing(name: str) -> str:
    """Get a thing."""
    return name


@router.put("/{name}", operation_id="putThing", needs=PUBLIC)
async def put_thing(name: str) -> str:
    """Put a thing."""
    return name


def post_part(exchange: Exchange) -> None:
    exchange.answer(JSON_CREATED, b'"made"')


@asynccontextmanager
async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
    app.open_routes()
    app.readiness.ready()
    yield


def make_app(explorer_origins: str = f"http://other:1;{EXPLORER}/") -> ServiceApp:
    part = Hot("POST", "/v1/parts", post_part, admit=lambda e: e.expect_body(LIMIT))
    return ServiceApp(
        title="Things",
        summary="",
        description="",
        version="1",
        routers=[router, hot_router(part)],
        lifespan=lifespan,
        guard=Guard(AllowedHosts(["desk.example"]), CrossOrigin(origins_of(explorer_origins))),
    )


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client over a real connection, so that hot routes are really hot."""
    settings = ServiceSettings(_env_file=None)  # type: ignore[call-arg]  # pydantic-settings' own
    async with (
        serving(make_app(), settings) as (_, (host, port)),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/things/a", 200),
        ("PUT", "/v1/things/a", 200),
        ("POST", "/v1/parts", 201),
        ("GET", "/openapi.json", 200),
        ("GET", "/v1/nothing", 404),
        ("DELETE", "/v1/things/a", 405),
    ],
)
async def test_the_explorers_page_may_call_everything_and_read_the_answer(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await client.request(method, path, headers=FROM_EXPLORER)

    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == EXPLORER
    assert answer.headers["access-control-expose-headers"] == "*"
    assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    ("path", "methods"), [("/v1/things/a", "GET, HEAD, PUT"), ("/v1/parts", "POST")]
)
async def test_the_explorers_page_is_granted_what_it_asks_for(
    client: httpx.AsyncClient, path: str, methods: str
) -> None:
    asked = {**FROM_EXPLORER, "access-control-request-method": "PUT"}

    granted = await client.options(path, headers=asked)

    assert (granted.status_code, granted.content) == (204, b"")
    assert granted.headers["access-control-allow-origin"] == EXPLORER
    assert granted.headers["access-control-allow-methods"] == methods
    assert granted.headers["access-control-allow-headers"] == "*, authorization"


@pytest.mark.parametrize(
    "headers",
    [
        FROM_ELSEWHERE,
        # Over plain HTTP to another machine a browser says no more than this.
        {"origin": "http://elsewhere.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1.elsewhere.example"},
        {"origin": "http://elsewhere.example", "host": "10.0.0.7:10911"},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("PUT", "/v1/things/a"), ("POST", "/v1/parts")])
async def test_a_page_of_another_site_changes_nothing(
    client: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]
) -> None:
    refused = await client.request(method, path, headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (403, "cross-site")
    assert "access-control-allow-origin" not in refused.headers


async def test_a_page_of_another_site_is_not_shown_an_answer(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/things/a", headers=FROM_ELSEWHERE)
    asked = {**FROM_ELSEWHERE, "access-control-request-method": "PUT"}
    preflight = await client.options("/v1/things/a", headers=asked)

    assert answer.status_code == 200  # its browser keeps it from the page
    assert preflight.status_code == 405
    for headers in (answer.headers, preflight.headers):
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://localhost", "sec-fetch-site": "same-origin"},
        {"origin": "http://10.0.0.7:10911", "host": "10.0.0.7:10911"},
        {"origin": "http://desk.example", "host": "Desk.example:10911"},
        {"origin": "http://[::1]:10931", "host": "[::1]:10911"},
    ],
)
async def test_programs_and_the_services_own_page_are_not_asked_where_they_come_from(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    assert (await client.put("/v1/things/a", headers=headers)).status_code == 200
    assert (await client.post("/v1/parts", headers=headers)).status_code == 201


async def test_no_site_is_allowed_unless_it_is_named() -> None:
    async with client_of(make_app("")) as client:
        answer = await client.put("/v1/things/a", headers=FROM_EXPLORER)

        assert answer.json()["code"] == "cross-site"


async def test_a_preflight_is_granted_before_the_service_is_ready() -> None:
    """Or the page could not read that it is not."""
    app = make_app()
    asked = {**FROM_EXPLORER, "access-control-request-method": "GET"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        granted = await client.options("/v1/things/a", headers=asked)
        answer = await client.get("/v1/things/a", headers=FROM_EXPLORER)

    assert granted.status_code == 204
    assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
    assert answer.headers["access-control-allow-origin"] == EXPLORER
