"""Errors cross the wire: what a service raises is what the client raises."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from eruca.contract import errors
from eruca.contract.errors import (
    PROBLEM_MEDIA_TYPE,
    ClientError,
    ErucaError,
    NotMasterError,
    error_of_problem,
    every_error,
)
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.exchange import Exchange
from eruca_chassis.routes.router import Router
from eruca_chassis.running.settings import ServiceSettings
from support.hot_routes import Hot, hot_router
from support.services import client_of, raw_connection, serving

pytestmark = pytest.mark.anyio
TREE = [kind for kind in every_error() if kind.__module__.startswith(errors.__name__)]
BY_NAME = {kind.__name__: kind for kind in TREE if not issubclass(kind, ClientError)}
MASTER_URLS = {"default": "http://master:1", "lan": "http://10.0.0.1:1"}

router = Router()


def error(name: str) -> ErucaError:
    return BY_NAME[name](
        f"a detail: ü, \ud83d, {name}",
        fix="a fix",
        errors=[{"pointer": "/body/x", "detail": "not this"}],
        retry_after_seconds=7,
    )


@router.get("/raise/{name}", operation_id="raise", needs=PUBLIC)
async def raise_error(name: str) -> None:
    """Raise it."""
    raise error(name)


def raise_hot(exchange: Exchange) -> None:
    raise error(exchange.request.parameters["name"])


@router.api_route("/redirect/{name}", methods=["GET", "POST"], operation_id="redirect")
async def redirect(name: str) -> None:
    """Redirect it."""
    raise not_master()


def redirect_hot(_exchange: Exchange) -> None:
    raise not_master()


def not_master() -> NotMasterError:
    return NotMasterError("replica 2 is a standby", epoch=3, master_urls=MASTER_URLS)


def raising_app() -> ServiceApp:
    hot_routes = [
        Hot("GET", "/hot/raise/{name}", raise_hot),
        Hot("GET", "/hot/redirect/{name}", redirect_hot, admit=redirect_hot),
        Hot("POST", "/hot/redirect/{name}", redirect_hot, admit=redirect_hot),
    ]
    app = ServiceApp(
        title="Raises",
        summary="",
        description="",
        version="1",
        routers=[router, hot_router(*hot_routes)],
    )
    app.open_routes()
    return app


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(raising_app()) as client:
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


@pytest.mark.parametrize("path", ["/redirect/a%2Cb?x=%C3%BC&y=1", "/hot/redirect/a%2Cb"])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_request_for_the_master_is_redirected_to_the_same_target_there(
    path: str, method: str
) -> None:
    async with serving(raising_app(), ServiceSettings()) as (_, (host, port)):
        base = f"http://{host}:{port}"
        async with httpx.AsyncClient(base_url=base) as client:
            body = b"x" * 100_000 if method == "POST" else b""
            answer = await client.request(method, path, content=body)
            again = await client.request(method, path, content=body)

    raised = error_of_problem(answer.json(), answer.status_code)
    assert (answer.status_code, again.status_code) == (307, 307)
    assert answer.headers["location"] == again.headers["location"] == f"http://master:1{path}"
    assert answer.headers["content-type"] == PROBLEM_MEDIA_TYPE
    assert isinstance(raised, NotMasterError)
    assert (raised.epoch, raised.master_urls) == (3, MASTER_URLS)


async def test_an_upload_that_asks_first_is_redirected_before_it_is_sent() -> None:
    async with (
        serving(raising_app(), ServiceSettings()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(
            b"POST /hot/redirect/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 307 ")  # and no 100 Continue before
    assert b"location: http://master:1/hot/redirect/a\r\n" in head


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
