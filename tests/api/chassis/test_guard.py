"""The guard stands at both doors: the hot routes, known heads included, and the application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.exchange import JSON_CREATED, JSON_OK, BodyLimit, Exchange
from eruca_chassis.routes.router import Router
from eruca_chassis.running.settings import ServiceSettings
from support.budgets import ManualBudget
from support.hot_routes import Hot, hot_router
from support.services import raw_connection, serving

pytestmark = pytest.mark.anyio

LIMIT = BodyLimit(ManualBudget(1_000), 100, "parts_size_max")
PATHS = ["/v1/parts", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/v1/nothing"]


router = Router(prefix="/v1")


@router.post("/whole/{name:path}", operation_id="whole", needs=PUBLIC)
async def whole(name: str) -> str:
    """Take a name with slashes."""
    assert name == "a/b"
    return name


class Parts:
    """A service that counts what it was made to do."""

    def __init__(self) -> None:
        self.made = 0

    def app(self, settings: ServiceSettings) -> ServiceApp:
        return ServiceApp(
            title="Parts",
            summary="",
            description="",
            version="1",
            routers=[
                router,
                hot_router(
                    Hot("POST", "/v1/parts", self._make, admit=lambda e: e.expect_body(LIMIT)),
                    Hot("GET", "/v1/parts", lambda e: e.answer(JSON_OK, b"[]")),
                ),
            ],
            lifespan=self._lifespan,
            guard=settings.guard(),
        )

    @asynccontextmanager
    async def _lifespan(self, app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    def _make(self, exchange: Exchange) -> None:
        self.made += 1
        exchange.answer(JSON_CREATED, b'"made"')


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer with a Content-Length: its status and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head.split(b" ")[1]), await reader.readexactly(size)


def settings(**more: str) -> ServiceSettings:
    return ServiceSettings.model_validate(more)


def post(*headers: str) -> bytes:
    return "\r\n".join(["POST /v1/parts HTTP/1.1", *headers, "Content-Length: 1", "", "x"]).encode()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
async def test_a_page_whose_name_leads_here_is_answered_nothing(method: str, path: str) -> None:
    """Neither with the Origin that a browser sends then, nor without."""
    head = f"{method} {path} HTTP/1.1\r\nHost: evil.example\r\n"
    origin = "Origin: http://evil.example\r\nSec-Fetch-Site: same-origin\r\n"
    parts = Parts()
    async with (
        serving(parts.app(settings()), settings()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        for more in (origin, ""):
            writer.write(f"{head}{more}\r\n".encode())
            status, body = await answer_of(reader)

            problem = json.loads(body)
            assert (status, problem["code"]) == (421, "unknown-host")
            assert "ALLOWED_HOSTS" in problem["fix"]
    assert parts.made == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Host: evil.example"], 421),
        ([], 400),
        (["Host: localhost", "Host: localhost"], 400),
        (["Host: localhost", "Host: evil.example"], 400),
        (["Host: evil.example", "Host: localhost"], 400),
        (["Host: a b/c"], 400),
        (["Host:"], 400),
        (["Host: localhost", "Sec-Fetch-Site: cross-site"], 403),
        (["Host: localhost", "Origin: http://evil.example"], 403),
        (["Host: localhost", "Origin: null"], 403),
    ],
    ids=str,
)
async def test_a_head_is_judged_the_same_every_time_it_comes(
    headers: list[str], status: int
) -> None:
    """By the parser, as a known head, behind others in a pipeline; and the next one is served."""
    parts = Parts()
    good = post("Host: localhost")
    async with (
        serving(parts.app(settings()), settings()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        for _ in range(3):
            writer.write(post(*headers))
            assert (await answer_of(reader))[0] == status
        writer.write(good + post(*headers) + good)

        assert [(await answer_of(reader))[0] for _ in range(3)] == [201, status, 201]
        assert server.watch.connections
    assert parts.made == 2


async def test_names_that_are_announced_listened_on_or_configured_are_known() -> None:
    chosen = settings(host="localhost", allowed_hosts="docs.example; *.inside.example")
    async with (
        serving(Parts().app(chosen), chosen) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        for host, status in (
            ("docs.example:8080", 201),
            ("DOCS.example.", 201),
            ("a.inside.example", 201),
            ("inside.example", 421),
            (f"127.0.0.1:{address[1]}", 201),
        ):
            writer.write(post(f"Host: {host}"))
            assert (await answer_of(reader))[0] == status, host


async def test_http_1_0_needs_no_host_and_is_asked_about_the_one_it_sends() -> None:
    async with serving(Parts().app(settings()), settings()) as (_, address):
        for host, status in (("", 200), ("Host: localhost\r\n", 200), ("Host: evil\r\n", 421)):
            async with raw_connection(address) as (reader, writer):
                writer.write(f"GET /healthz HTTP/1.0\r\n{host}\r\n".encode())
                assert (await answer_of(reader))[0] == status


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/v1/parts", "localhost", 201),
        ("http://localhost:10911/v1/parts", "evil.example", 201),  # the target's host counts
        ("http://evil.example/v1/parts", "localhost", 421),
        ("http://evil.example/v1/parts", "evil.example", 421),
        ("http://user@localhost/v1/parts", "localhost", 400),
        ("http://localhost/v1/parts", "localhost\r\nHost: localhost", 400),
        ("/v1/p%61rts", "localhost", 201),
        ("/v1/p%zzarts", "localhost", 400),
        ("/v1/%ffparts", "localhost", 400),
        ("/v1/parts?x=%", "localhost", 400),
        ("/v1/parts?x=%ff", "localhost", 400),
        ("/v1%2Fparts", "localhost", 422),
        ("/v1/things/a%2fb", "localhost", 422),
        ("/v1/whole/a%2fb", "localhost", 200),
    ],
)
async def test_a_target_means_one_thing_or_is_refused(target: str, host: str, status: int) -> None:
    head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n\r\nx".encode()
    parts = Parts()
    async with (
        serving(parts.app(settings()), settings()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        for _ in range(2):
            writer.write(head)
            answered, body = await answer_of(reader)
            assert answered == status
            if status >= 400:
                assert json.loads(body)["fix"]
        writer.write(post("Host: localhost"))
        assert (await answer_of(reader))[0] == 201
    assert parts.made == 1 + 2 * (status == 201)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("https://localhost/v1/parts", 400),
        ("ftp://localhost/v1/parts", 400),
        ("http:///v1/parts", 400),
        ("/v1/parts?x=1#there", 400),
        ("/v1/parts#there", 400),
        ("*", 400),
        ("v1/parts", 400),
    ],
)
async def test_what_is_no_target_ends_the_connection_with_a_problem(
    target: str, status: int
) -> None:
    async with (
        serving(Parts().app(settings()), settings()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answered, body = await answer_of(reader)

        assert (answered, json.loads(body)["code"]) == (status, "bad-request")
        assert await reader.read() == b""
