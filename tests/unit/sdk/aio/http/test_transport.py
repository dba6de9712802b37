"""The transport seam: its httpx side, and problem documents turned into errors."""

from __future__ import annotations

import asyncio
import logging
import socket

import httpx
import pytest

import eruca
from eruca.aio.http.transport import (
    HttpResponse,
    HttpxTransport,
    keep_alive_options,
    path_segment,
    problem_error,
    target_of,
)
from eruca.contract.errors import ErucaError, InternalError
from support.http_peers import OK, answering, closing_after, peer, read_request
from support.scripted_transport import problem_answer

pytestmark = pytest.mark.anyio


async def test_httpx_sends_what_it_is_given_and_reads_the_answer() -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(b"HTTP/1.1 201 Created\r\nEtag: x\r\ncontent-length: 2\r\n\r\nok")

    transport = HttpxTransport()
    async with peer(script) as server:
        answer = await transport.request(
            "PUT", server.url, "/v1/x?y=1", headers=[("a", "b")], body=[b"ab", b"cd"], timeout=5
        )
    await transport.close()

    assert (answer.status, answer.headers["etag"], answer.body) == (201, "x", b"ok")
    line, headers, body = seen[0]
    assert (line, headers["a"], body) == ("PUT /v1/x?y=1 HTTP/1.1", "b", b"abcd")


async def test_httpx_gives_the_seams_errors() -> None:
    transport = HttpxTransport()
    with pytest.raises(eruca.TransportError, match="xn--"):
        await transport.request("GET", "http://xn--" + "a" * 70 + ".test", "/", timeout=5)
    async with peer(answering(OK)) as server:
        url = server.url
    with pytest.raises(eruca.TransportError, match=url):
        await transport.request("GET", url, "/", timeout=5)
    async with peer(closing_after(b"no HTTP at all\r\n\r\n")) as server:
        with pytest.raises(eruca.TransportError):
            await transport.request("GET", server.url, "/", timeout=5)
    async with peer(answering(b"")) as server:
        with pytest.raises(eruca.TimeoutExpiredError, match=r"0\.05 s"):
            await transport.request("GET", server.url, "/", timeout=0.05)
    await transport.close()
    with pytest.raises(eruca.ClosedError):
        await transport.request("GET", url, "/", timeout=5)


async def test_requests_are_no_news_for_the_programs_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    transport = HttpxTransport()
    async with peer(answering(OK)) as server:
        await transport.request("GET", server.url, "/", timeout=5)
    await transport.close()

    assert caplog.messages == []


async def test_an_answer_that_breaks_off_or_hangs_frees_its_connection() -> None:
    begun = b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nbroken"
    transport = HttpxTransport()
    async with peer(closing_after(begun)) as server:
        with pytest.raises(eruca.TransportError, match=server.url):
            await transport.request("GET", server.url, "/", timeout=5)
    async with peer(answering(begun)) as server:
        with pytest.raises(eruca.TimeoutExpiredError, match=server.url):
            await transport.request("GET", server.url, "/", timeout=0.2)

    assert transport._carrier is not None
    assert transport._carrier._plain._pool.connections == []
    await transport.close()


async def test_a_connection_that_waits_for_an_answer_is_looked_after() -> None:
    options = keep_alive_options()
    assert (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) in options
    transport = HttpxTransport()
    async with peer(answering(OK, OK)) as server:
        await transport.request("GET", server.url, "/", timeout=5)
        assert transport._client is not None
        answer = await transport._client.get(server.url)
        connection = answer.extensions["network_stream"].get_extra_info("socket")
        for level, option, value in options:
            assert bool(connection.getsockopt(level, option)) is bool(value)
    await transport.close()


async def test_a_client_of_ones_own_can_be_given_to_httpx() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=str(request.url))

    transport = HttpxTransport(httpx.AsyncClient(transport=httpx.MockTransport(answer)))

    body = (await transport.request("GET", "http://somewhere:1/", "/x", timeout=5)).body

    assert body == b"http://somewhere:1/x"
    await transport.close()


@pytest.mark.parametrize(
    "error",
    [
        eruca.TopicNotFoundError("no topic"),
        eruca.OverloadedError("busy", retry_after_seconds=2.5),
        eruca.ValidationError("no", errors=[{"pointer": "/a", "detail": "b"}], fix="so"),
    ],
)
def test_a_problem_becomes_the_error_it_tells_of(error: ErucaError) -> None:
    raised = problem_error(problem_answer(error), "GET /")

    assert type(raised) is type(error)
    assert (raised.detail, raised.fix, raised.errors) == (error.detail, error.fix, error.errors)
    assert raised.retry_after_seconds == error.retry_after_seconds
    assert raised.request_id == "request-1"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, eruca.TransportError),
        (404, eruca.TransportError),
        (429, eruca.OverloadedError),
        (500, InternalError),
        (502, eruca.UnavailableError),
        (413, eruca.TooLargeError),
        (418, eruca.TransportError),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<h1>Proxy</h1>", b"\xff" * 5_000])
def test_an_answer_of_something_else_is_quoted(
    status: int, kind: type[ErucaError], body: bytes
) -> None:
    headers = {"content-type": "text/html", "x-request-id": "request-2"}

    raised = problem_error(HttpResponse(status, headers, body), "GET /v1/x")

    assert type(raised) is kind
    assert raised.request_id == "request-2"
    assert f"GET /v1/x: HTTP status {status}" in raised.detail
    assert len(raised.detail) < 400


@pytest.mark.parametrize("body", [b"not json", b"[]", b'"text"', b"\xff"])
def test_a_garbled_problem_is_no_reason_to_fail_otherwise(body: bytes) -> None:
    answer = HttpResponse(503, {"content-type": "application/problem+json"}, body)

    assert isinstance(problem_error(answer, "GET /"), eruca.UnavailableError)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3", 3.0),
        ("3600", 30.0),
        ("", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("-1", None),
        ("inf", None),
    ],
)
def test_only_a_number_of_seconds_says_when_to_try_again_and_none_an_hour_hence(
    text: str, seconds: float | None
) -> None:
    answer = HttpResponse(503, {"retry-after": text}, b"")

    assert problem_error(answer, "GET /").retry_after_seconds == seconds


def test_names_and_queries_are_quoted() -> None:
    assert path_segment("%RETRY%a/b c") == "%25RETRY%25a%2Fb%20c"
    assert target_of("/v1/x") == "/v1/x"
    assert target_of("/v1/x", a=None, from_="2026-01-01T00:00:00Z", b=True, c=1.5) == (
        "/v1/x?from=2026-01-01T00%3A00%3A00Z&b=true&c=1.5"
    )


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_make_another_path_is_no_allowed_value(name: str) -> None:
    with pytest.raises(eruca.ValidationError, match="expected a name or an id"):
        path_segment(name)


def test_a_name_without_a_form_in_utf_8_is_no_allowed_value() -> None:
    with pytest.raises(eruca.ValidationError, match="surrogate"):
        path_segment("a\udcff")
    with pytest.raises(eruca.ValidationError, match="surrogate"):
        target_of("/v1/x", key="a\udcff")
