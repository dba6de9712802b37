"""Direct reads: each answer is the one that FastAPI would give to the same request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Literal

import httpx
import pytest
from anyio.lowlevel import checkpoint
from fastapi import Header, Path, Query, Request, Response
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from eruca.contract.errors import ConflictError
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import PUBLIC, Needs
from eruca_chassis.app import ServiceApp
from eruca_chassis.asgi import ClientGoneError
from eruca_chassis.connections.hot import HotRoutes
from eruca_chassis.requests.entity_tags import is_known, known_tags, tagged_answer
from eruca_chassis.routes.direct_reads import Leaving
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from support.services import client_of

pytestmark = pytest.mark.anyio


class Shelf:
    """A part of the service."""

    name = "the shelf"


class Thing(BaseModel):
    name: str
    size: int | None = None
    seen_at: datetime | None = None
    words: list[str] = []


router = Router(prefix="/v1/things", tags=["things"])


@router.get("/all", operation_id="listThings", needs=PUBLIC)
async def list_things(shelf: Part[Shelf], access: CallersAccess) -> list[Thing]:
    """List them."""
    return [Thing(name=shelf.name, size=int(access.is_open))]


@router.get("/{name}", operation_id="getThing", needs=PUBLIC, response_model_exclude_none=True)
async def get_thing(
    name: Annotated[str, Path(min_length=2, max_length=8)],
    *,
    size: Annotated[int, Query(ge=1, le=10)],
    since: datetime | None = None,
    kind: Literal["a", "b"] = "a",
    is_new: Annotated[bool, Query(alias="new")] = False,
    if_none_match: Annotated[str | None, Header(max_length=20)] = None,
) -> Thing:
    """Get one."""
    if name == "taken":
        raise ConflictError("somebody else has it")
    return Thing(name=f"{name} {kind} {is_new} {if_none_match}", size=size, seen_at=since)


@router.get("/{name}/waiting", operation_id="waitForThing", needs=PUBLIC, response_model=Thing)
async def wait_for_thing(
    name: str,
    leaving: Leaving,
    *,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Wait for one."""
    assert callable(leaving)
    await checkpoint()
    if name == "gone":
        raise ClientGoneError
    known = is_known('"1"', known_tags(if_none_match))
    return tagged_answer(None if known else b'{"name":"x"}', '"1"', headers={"x-more": name})


@router.get("/{name}/broken", operation_id="getBroken", needs=PUBLIC)
async def get_broken(name: str) -> Thing:
    """Fail."""
    raise ZeroDivisionError(name)


@router.get("/{name}/client", operation_id="getClient", needs=PUBLIC)
async def get_client(name: str, request: Request) -> Thing:
    """Get what only FastAPI knows."""
    return Thing(name=request.method + name)


@asynccontextmanager
async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
    app.parts.add(Shelf())
    app.open_routes()
    app.readiness.ready()
    yield


def make_app() -> ServiceApp:
    return ServiceApp(
        title="Things", summary="", description="", version="1", routers=[router],
        lifespan=lifespan, tags=[{"name": "things"}], body_bytes_max=1_000, bodies_bytes_max=1_000,
    )  # fmt: skip


@pytest.fixture
async def direct() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_app()) as client:
        yield client


@pytest.fixture
async def by_fastapi() -> AsyncIterator[httpx.AsyncClient]:
    app = make_app()
    app.hot = HotRoutes()
    async with client_of(app) as client:
        yield client


GIVEN: list[tuple[str, dict[str, str]]] = [
    ("/v1/things/all", {}),
    ("/v1/things/all?x=1", {}),
    ("/v1/things/abc?size=3", {}),
    ("/v1/things/a%20b?size=3&new=true&kind=b&since=2026-11-21T08:00:00%2B01:00", {}),
    ("/v1/things/%C3%A4%C3%B6?size=%33&kind=b", {"if-none-match": '"1", "2"'}),
    ("/v1/things/abc?size=3&size=4", {}),
    ("/v1/things/abc?sise=3", {}),
    ("/v1/things/abc", {}),
    ("/v1/things/abc?size=", {}),
    ("/v1/things/a?size=11&new=perhaps&kind=c&since=soon", {"if-none-match": "x" * 30}),
    ("/v1/things/taken?size=3", {}),
    ("/v1/things/abc/waiting", {}),
    ("/v1/things/abc/waiting", {"if-none-match": '"1"'}),
    ("/v1/things/gone/waiting", {}),
    ("/v1/things/abc/broken", {}),
    ("/v1/things/abc/client", {}),
    ("/v1/things/abc?size=3", {"content-encoding": "gzip"}),
    ("/v1/things/abc?size=3", {"x-request-id": "mine"}),
    ("/v1/things", {}),
    ("/healthz?probe=1", {}),
    ("/readyz", {}),
    ("/problems/validation-failed", {}),
    ("/problems/nothing", {}),
]


@pytest.mark.parametrize(("target", "headers"), GIVEN)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_answer_is_the_one_that_fastapi_gives(
    direct: httpx.AsyncClient,
    by_fastapi: httpx.AsyncClient,
    method: str,
    target: str,
    headers: dict[str, str],
) -> None:
    answers = [
        await client.request(method, target, headers=headers) for client in (direct, by_fastapi)
    ]

    assert told_by(answers[0]) == told_by(answers[1])


async def test_a_body_that_is_too_large_is_refused_as_fastapi_s_way_does(
    direct: httpx.AsyncClient, by_fastapi: httpx.AsyncClient
) -> None:
    answers = [
        await client.request("GET", "/v1/things/abc?size=3", content=b"x" * size)
        for client in (direct, by_fastapi)
        for size in (1_000, 1_001)
    ]

    assert [answer.status_code for answer in answers] == [200, 413] * 2
    assert told_by(answers[1]) == told_by(answers[3])


def test_a_route_that_declares_more_and_one_that_comes_after_it_stay_fastapi_s() -> None:
    late = Router(prefix="/v1/late")
    late.get("/{name}/own", operation_id="asks-for-more", needs=PUBLIC)(get_client)
    late.get("/{name}/{kind}", operation_id="behind-it", needs=PUBLIC)(get_any)
    late.get("/{name}/own/{kind}", operation_id="beside-it", needs=PUBLIC)(get_any)
    late.get("/all/{name:path}", operation_id="any-path", needs=PUBLIC)(get_broken)
    late.get("/all/{name}/{kind}", operation_id="behind-any-path", needs=PUBLIC)(get_any)
    late.get("/acts", operation_id="acts", needs=Needs(is_act=True))(get_any)
    late.post("/{name}", operation_id="changes", needs=PUBLIC)(get_broken)
    app = ServiceApp(title="Late", summary="", description="", version="1", routers=[late])

    found = {route.operation for route in app.hot.routes}

    assert found == {"health", "readiness", "metrics", "describeProblem", "beside-it"}


async def test_a_middleware_sees_ordinary_requests() -> None:
    app = ServiceApp(title="Seen", summary="", description="", version="1")
    seen: list[str] = []

    def noting(inner: ASGIApp) -> ASGIApp:
        async def note(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                seen.append(scope["path"])
            await inner(scope, receive, send)

        return note

    app.add_middleware(noting)
    async with client_of(app) as client:
        answer = await client.get("/healthz")

    assert answer.status_code == 200
    assert seen == ["/healthz"]
    assert app.hot.routes == ()


async def get_any(name: str = "", kind: str = "") -> Thing:
    return Thing(name=name + kind)


def told_by(answer: httpx.Response) -> dict[str, Any]:
    """Return what an answer tells its client, without the request's own id."""
    headers = dict(answer.headers)
    identity = headers.pop("x-request-id")
    text = answer.text.replace(identity, "") if identity != "mine" else answer.text
    if headers.get("content-type") == "application/problem+json":
        headers.pop("content-length")
    return {"status": answer.status_code, "headers": headers, "text": text}
