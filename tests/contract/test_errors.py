"""Errors cross the wire: what a service raises is what the client raises."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import APIRouter

from eruca.contract import errors
from eruca.contract.errors import ClientError, ErucaError, error_of_problem, every_error
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.exchange import Exchange
from support.hot_routes import Hot, hot_router
from support.services import client_of

pytestmark = pytest.mark.anyio
TREE = [kind for kind in every_error() if kind.__module__.startswith(errors.__name__)]
BY_NAME = {kind.__name__: kind for kind in TREE if not issubclass(kind, ClientError)}

router = APIRouter()


def error(name: str) -> ErucaError:
    return BY_NAME[name](
        f"a detail: ü, \ud83d, {name}",
        fix="a fix",
        errors=[{"pointer": "/body/x", "detail": "not this"}],
        retry_after_seconds=7,
    )


@router.get("/raise/{name}", operation_id="raise")
async def raise_error(name: str) -> None:
    """Raise it."""
    raise error(name)


def raise_hot(exchange: Exchange) -> None:
    raise error(exchange.request.parameters["name"])


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = ServiceApp(
        title="Raises",
        summary="",
        description="",
        version="1",
        routers=[router, hot_router(Hot("GET", "/hot/raise/{name}", raise_hot))],
    )
    app.open_routes()
    async with client_of(app) as client:
        yield client


@pytest.mark.parametrize("path", ["/raise", "/hot/raise"])
@pytest.mark.parametrize("name", BY_NAME)
async def test_every_error_comes_back_as_the_same_class_with_all_it_said(
    client: httpx.AsyncClient, path: str, name: str
) -> None:
    answer = await client.get(f"{path}/{name}", headers={"x-request-id": "id-1"})

    raised = error_of_problem(
        answer.json(),
        answer.status_code,
        retry_after_seconds=float(answer.headers["retry-after"]),
    )

    sent = error(name)
    assert type(raised) is BY_NAME[name]
    assert answer.status_code == sent.status
    assert (raised.detail, raised.fix, raised.errors) == (sent.detail, sent.fix, sent.errors)
    assert raised.request_id == "id-1"
    assert raised.retry_after_seconds == 7
    assert answer.json()["retryable"] is sent.retryable


def test_no_two_errors_share_a_code() -> None:
    assert len({kind.code for kind in TREE}) == len(TREE)


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (404, "NotFoundError"),
        (418, "RequestError"),
        (429, "OverloadedError"),
        (500, "InternalError"),
        (502, "UnavailableError"),
        (503, "UnavailableError"),
    ],
)
def test_a_problem_of_a_newer_service_is_the_nearest_kind(status: int, name: str) -> None:
    raised = error_of_problem({"code": "something-new", "detail": "x"}, status)

    assert type(raised) is BY_NAME[name]
