"""Models of hot routes: read, and refused, as FastAPI reads and refuses them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Body, Path
from pydantic import Field

from eruca.contract.fields import GroupName, Request
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.exchange import JSON_OK, BodyLimit, Exchange
from eruca_chassis.requests.model_bodies import ModelBody, PathValue
from eruca_chassis.routes.router import Router
from support.budgets import ManualBudget
from support.hot_routes import Hot, hot_router

pytestmark = pytest.mark.anyio
EXAMPLE = {"count": 3, "names": ["a"]}


class Wanted(Request):
    """The body of the two routes."""

    count: int
    names: list[str] = Field(default_factory=list)


router = Router()


@router.post("/v1/ordinary/{group}", needs=PUBLIC)
async def ordinary(
    group: Annotated[GroupName, Path()], wanted: Annotated[Wanted, Body(examples=[EXAMPLE])]
) -> dict[str, Any]:
    return {"group": group, **wanted.model_dump()}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    budget = ManualBudget(2**20)
    body, path = ModelBody(Wanted, EXAMPLE), PathValue[str](GroupName, "group")

    def admit(exchange: Exchange) -> None:
        exchange.expect_body(BodyLimit(budget, 2**20, "body_bytes_max"))

    def handle(exchange: Exchange) -> None:
        group = path.read(exchange.request.parameters["group"])
        wanted = body.read(exchange.body)
        said = Wanted.model_dump_json(wanted).removeprefix("{")
        exchange.answer(JSON_OK, f'{{"group":"{group}",{said}'.encode())

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    app = ServiceApp(
        title="Twice",
        summary="",
        description="",
        version="1",
        routers=[router, hot_router(Hot("POST", "/v1/hot/{group}", handle, admit=admit))],
        lifespan=lifespan,
    )
    async with (
        lifespan(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost/v1"
        ) as connected,
    ):
        yield connected


@pytest.mark.parametrize(
    "body",
    [
        b'{"count": 3, "names": ["a", "b"]}',
        b'\xef\xbb\xbf{"count": 3}',
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"count": }',
        b'{"count": 3} more',
        b'{"count": NaN}',
        b'{"count": "3"}',
        b'{"count": 3.5}',
        b'{"count": 3, "names": [1, "a", null]}',
        b'{"count": 3, "other": 1}',
        b'{"names": "a"}',
        b'{"count": 1' + b"0" * 5_000 + b"}",
        b'{"count": "\xff"}',
        b"[" * 100_000,
    ],
)
async def test_a_hot_route_says_of_a_body_what_fastapi_says(
    client: httpx.AsyncClient, body: bytes
) -> None:
    assert await said(client, "hot", "billing", body) == await said(
        client, "ordinary", "billing", body
    )


@pytest.mark.parametrize("group", ["no%20group", "x" * 300, "%e2%82%ac"])
async def test_a_hot_route_says_of_a_path_what_fastapi_says(
    client: httpx.AsyncClient, group: str
) -> None:
    body = b'{"count": 3}'

    assert await said(client, "hot", group, body) == await said(client, "ordinary", group, body)


async def said(
    client: httpx.AsyncClient, kind: str, group: str, body: bytes
) -> tuple[int, dict[str, Any]]:
    answer = await client.post(
        f"/{kind}/{group}", content=body, headers={"content-type": "application/json"}
    )
    document = answer.json()
    document.pop("request_id", None)
    return answer.status_code, document
