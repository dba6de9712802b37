"""Connections: requests that cannot be read are refused with a problem."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from support.connection_things import HELLO, Things, answer_of, limits
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_garbage_is_refused_with_a_problem_and_the_connection_closed() -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(b"\x16\x03\x01 not HTTP\r\n\r\n")

        status, headers, body = await answer_of(reader)

        assert (status, json.loads(body)["code"]) == (400, "bad-request")
        assert headers["content-type"] == "application/problem+json"
        assert await reader.read() == b""


@pytest.mark.parametrize("first", [b"", HELLO], ids=["first", "behind another"])
async def test_a_method_that_no_service_knows_is_not_implemented(first: bytes) -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(first + b"get /v1/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if first:
            assert (await answer_of(reader))[0] == 200

        status, headers, body = await answer_of(reader)

        problem = json.loads(body)
        assert (status, problem["code"]) == (501, "method-unknown")
        assert (problem["detail"], headers["connection"]) == ("the method get is unknown", "close")
        assert await reader.read() == b""


@pytest.mark.parametrize("method", [b"PROPFIND", b"TRACE", b"PATCH"])
async def test_a_known_method_that_the_path_does_not_take_is_refused_with_those_it_takes(
    method: bytes,
) -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(method + b" /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")

        status, headers, _ = await answer_of(reader)

        assert (status, headers["allow"]) == (405, "GET, HEAD")


async def test_an_unknown_expectation_fails_at_once_on_every_way() -> None:
    for path in (b"/v1/upload", b"/healthz", b"/nothing"):
        async with (
            serving(Things().app(), limits()) as (_, address),
            raw_connection(address) as (reader, writer),
        ):
            head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n" % path
            writer.write(head + b"Expect: 100-continue, more\r\n\r\n")

            status, headers, body = await answer_of(reader)

            assert (status, json.loads(body)["code"]) == (417, "expectation-failed")
            assert headers["connection"] == "close"


@pytest.mark.parametrize(
    ("head", "detail"),
    [
        (b"GET /v1/gr\xc3\xbc\xc3\x9fe HTTP/1.1\r\n", "the request's URL cannot be parsed"),
        (b"GET /v1/parts?name=\xff HTTP/1.1\r\n", "the request's URL cannot be parsed"),
        (b"GET http://[::1/ HTTP/1.1\r\n", "the request's URL cannot be parsed"),
        (b"BREW / HTTP/1.1\r\n", "the method BREW is unknown"),
        (b"GET / HTTP/1.1\r\nHost : x\r\n", "the data is not HTTP/1.1: invalid header token"),
        (
            b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n",
            "the request's head is larger than head_size_max",
        ),
    ],
    ids=["a path", "a query", "a host", "a method", "a header", "a length"],
)
async def test_what_cannot_be_read_of_a_head_is_named(head: bytes, detail: str) -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(head + b"\r\n")

        _, _, body = await answer_of(reader)

    problem = json.loads(body)
    assert problem["detail"].startswith(detail)
    assert ("%XX" in (problem["fix"] or "")) == ("URL" in detail)


async def test_garbage_behind_a_request_is_answered_in_its_place_and_is_no_defect() -> None:
    with capture_logs() as logs:
        async with (
            serving(Things().app(), limits()) as (_, address),
            raw_connection(address) as (reader, writer),
        ):
            writer.write(HELLO + b"\x16\x03\x01 not HTTP\r\n\r\n" + HELLO)

            assert (await answer_of(reader))[0] == 200
            assert (await answer_of(reader))[0] == 400
            assert await reader.read() == b""

    assert [entry for entry in logs if entry["log_level"] == "error"] == []


@pytest.mark.parametrize(
    ("request_head", "rest"),
    [
        (b"POST /v1/nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n", b"hello"),
        (HELLO, b"\r\n"),
    ],
    ids=["a body that nobody waited for", "an empty line"],
)
async def test_what_comes_behind_an_answer_is_no_request(request_head: bytes, rest: bytes) -> None:
    async with (
        serving(Things().app(), limits(request_seconds=0.5)) as (_, address),
        raw_connection(address) as (reader, writer),
        raw_connection(address) as (unfinished_reader, unfinished),
    ):
        writer.write(request_head)
        assert (await answer_of(reader))[0] in (200, 404)
        writer.write(rest)
        unfinished.write(b"GET /heal")
        assert (await answer_of(unfinished_reader))[0] == 408  # it is over for both, if for one

        writer.write(HELLO)
        assert (await answer_of(reader))[0] == 200


async def test_a_refused_client_that_stays_is_cut_after_a_moment_and_refused_once() -> None:
    with capture_logs() as logs:
        async with (
            serving(Things().app(), limits(request_seconds=0.3)) as (server, address),
            raw_connection(address) as (reader, writer),
        ):
            writer.write(b"GET /heal")
            await answer_of(reader)
            writer.write(b"th HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)
            await until(lambda: not server.watch.connections)

    assert [entry["event"] for entry in logs if entry["log_level"] != "info"] == []


async def test_answers_tell_neither_server_nor_date() -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(HELLO)

        _, headers, _ = await answer_of(reader)

        assert not {"server", "date"} & headers.keys()
