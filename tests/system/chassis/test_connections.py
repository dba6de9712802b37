"""Connections over real sockets: what a client may cost, and what it is told when it costs more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import pytest
from structlog.testing import capture_logs

from eruca_chassis.app import ServiceApp
from eruca_chassis.budget import RESERVE_SIZE
from eruca_chassis.connections import connection_watch
from eruca_chassis.connections.connections import AHEAD_MAX, ServiceProtocol
from eruca_chassis.connections.exchange import AnswerHead, BodyLimit, Exchange
from eruca_chassis.connections.framing import HEAD_SIZE_MAX
from eruca_chassis.settings import ServiceSettings
from support.budgets import ManualBudget
from support.hot_routes import Hot, hot_router
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024
HELLO = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LATE = b"GET /v1/late HTTP/1.1\r\nHost: localhost\r\n\r\n"
FROM_PAGE = (
    b"Origin: http://page\r\n\r\n"  # as the end of a head: uvicorn's, though its path is hot
)


OK = AnswerHead(200)


class Things:
    """A service whose answers are large, slow or late, as asked for."""

    def __init__(self) -> None:
        self.held: list[Exchange] = []
        self.left = 0
        self.budget = ManualBudget(10 * MIB)

    def app(self) -> ServiceApp:
        app = ServiceApp(
            title="Things",
            summary="",
            description="",
            version="1",
            lifespan=self._lifespan,
            routers=[
                hot_router(
                    Hot("GET", "/v1/large", self._large),
                    Hot("GET", "/v1/late", self._late),
                    Hot("POST", "/v1/upload", self._upload, admit=self._admit_upload),
                )
            ],
        )
        app.stop_hooks.append(self.release)
        return app

    @asynccontextmanager
    async def _lifespan(self, app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    def release(self) -> None:
        """Answer all that is held."""
        while self.held:
            self.held.pop(0).answer(OK, b"released")

    def _large(self, exchange: Exchange) -> None:
        exchange.answer(OK, bytes(8 * MIB))

    def _late(self, exchange: Exchange) -> None:
        self.held.append(exchange)
        exchange.on_lost = partial(self._leave, exchange)

    def _leave(self, exchange: Exchange) -> None:
        self.held.remove(exchange)
        self.left += 1

    def _admit_upload(self, exchange: Exchange) -> None:
        exchange.expect_body(BodyLimit(self.budget, MIB, "upload_size_max"))

    def _upload(self, exchange: Exchange) -> None:
        exchange.answer(OK, b"%d" % len(exchange.body))


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Read one answer with a Content-Length: its status, headers and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status_line, *lines = head.strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(status_line.split(" ")[1]), headers, body


def ask_and_read_nothing(writer: asyncio.StreamWriter) -> None:
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
    writer.write(b"GET /v1/large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)


def limits(**settings: float) -> ServiceSettings:
    return ServiceSettings.model_validate({"stop_seconds": 2} | settings)


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


CHUNKED = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("piece_size", [1_000_000, 16_384, 1_000])
@pytest.mark.parametrize(
    ("data", "status", "kept"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000, 431, b""),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 30_000, 431, b""),
        (b"GET /" + b"y" * 200_000, 414, b""),
        (b"GET /healthz?" + b"y" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, b""),
        (b"\r\n" * 40_000 + HELLO, 431, b""),
        (CHUNKED + b"1\r\na\r\n0\r\n" + b"X: y\r\n" * 30_000, 431, b"chunk extensions"),
        (CHUNKED + b"1;" + b"x" * 70_000 + b"\r\na\r\n0\r\n\r\n", 431, b"chunk extensions"),
        (CHUNKED + b"0" * 70_000 + b"1\r\na\r\n0\r\n\r\n", 431, b"chunk extensions"),
        (CHUNKED + (b"1;" + b"x" * 999 + b"\r\na\r\n") * 90, 431, b"chunk extensions"),
    ],
    ids=["a header", "headers", "a path", "a query", "lines", "trailers", "x", "zeros", "xs"],
)
async def test_what_frames_a_request_is_bounded_however_it_arrives(
    data: bytes, status: int, kept: bytes, piece_size: int
) -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        for start in range(0, len(data), piece_size):
            writer.write(data[start : start + piece_size])
            await writer.drain()
        received = await reader.read()

    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert b"head_size_max, 65536 bytes" in received
    assert kept in received


@pytest.mark.parametrize("behind", [b"", HELLO, CHUNKED + b"1\r\na\r\n0\r\n\r\n"])
@pytest.mark.parametrize("piece_size", [1_000_000, 65_535, 4_099, 1])
async def test_a_head_may_have_its_limit_and_not_a_byte_more(
    piece_size: int, behind: bytes
) -> None:
    """Also behind another request in the same piece, and in pieces that divide its last line."""
    fixed = len(HELLO) + len(b"X: \r\n")
    for size, status in ((HEAD_SIZE_MAX, 200), (HEAD_SIZE_MAX + 1, 431)):
        head = HELLO[:-2] + b"X: " + b"y" * (size - fixed) + b"\r\n\r\n"
        assert len(head) == size
        async with (
            serving(Things().app(), limits()) as (_, address),
            raw_connection(address) as (reader, writer),
        ):
            if piece_size == 1:  # but for the long part of it
                data = [behind + head[:-9_000], *(bytes([byte]) for byte in head[-9_000:])][:1]
                data += [head[-9_000:-8], *(bytes([byte]) for byte in head[-8:])]
            else:
                whole = behind + head
                data = [whole[i : i + piece_size] for i in range(0, len(whole), piece_size)]
            for piece in data:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if behind:
                assert (await answer_of(reader))[0] == 200
            assert (await answer_of(reader))[0] == status


async def test_honest_chunks_are_taken_however_small_they_are() -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(CHUNKED + b"1\r\na\r\n" * 50_000 + b"0\r\n\r\n" + HELLO)

        assert (await answer_of(reader))[2] == b"50000"
        assert (await answer_of(reader))[0] == 200


@pytest.mark.parametrize(
    "unfinished",
    [
        b"",
        b"GET /heal",
        b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf",
    ],
    ids=["nothing", "half a head", "half a body"],
)
async def test_a_request_that_does_not_arrive_in_time_is_refused(unfinished: bytes) -> None:
    async with (
        serving(Things().app(), limits(request_seconds=0.5)) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(unfinished)

        status, _, body = await answer_of(reader)

        assert status == 408
        assert "request_seconds, 0.5 s" in json.loads(body)["detail"]
        assert await reader.read() == b""


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


async def test_uploads_one_after_another_are_each_given_their_time() -> None:
    """At every sweep some upload is under way, but never the same."""
    upload = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
    async with (
        serving(Things().app(), limits(request_seconds=1)) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(upload)
        for _ in range(16):
            await asyncio.sleep(0.2)  # the slowness under test: 3.2 s in all
            writer.write(b"body" + upload)
            assert (await answer_of(reader))[::2] == (200, b"4")


async def test_a_trickle_holds_nothing_longer() -> None:
    async with (
        serving(Things().app(), limits(request_seconds=0.5)) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(
            b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n"
        )
        answered = asyncio.create_task(answer_of(reader))
        while not answered.done():
            writer.write(b"x")
            await asyncio.sleep(0.05)  # the slowness under test

        status, _, _ = await answered

        assert status == 408


UPLOAD_HEAD = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n"
CHUNKED_HEAD = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begun", "limit"),
    [
        (b"", "head_seconds"),
        (b"GET /heal", "head_seconds"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", "head_seconds"),
        (UPLOAD_HEAD, "bytes_per_second_min"),
        (UPLOAD_HEAD + bytes(4_000), "bytes_per_second_min"),
        (UPLOAD_HEAD + bytes(400_000), "bytes_per_second_min"),
        (CHUNKED_HEAD + b"4\r\nhalf\r\n", "bytes_per_second_min"),
    ],
    ids=["nothing", "a line", "a header", "no body", "a little", "much", "a chunk"],
)
async def test_what_stops_coming_is_refused_long_before_the_request_must_be_whole(
    begun: bytes, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_watch, "BODY_WINDOW_SECONDS", 0.5)
    things = Things()
    async with (
        serving(things.app(), limits(head_seconds=0.5)) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(begun)

        status, headers, body = await answer_of(reader)

        assert (status, headers["connection"]) == (408, "close")
        problem = json.loads(body)
        assert (problem["code"], problem["retryable"]) == ("request-timeout", True)
        assert limit in problem["detail"]
        assert await reader.read() == b""
        assert things.budget.used == 0


@pytest.mark.parametrize("head", [UPLOAD_HEAD, CHUNKED_HEAD], ids=["announced", "chunked"])
async def test_a_trickling_body_is_refused_however_steadily_it_comes(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_watch, "BODY_WINDOW_SECONDS", 0.5)
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(head)
        answered = asyncio.create_task(answer_of(reader))
        while not answered.done():
            writer.write(b"x" if head is UPLOAD_HEAD else b"1\r\nx\r\n")
            await asyncio.sleep(0.05)  # the slowness under test

        status, _, body = await answered

        assert (status, b"bytes_per_second_min" in body) == (408, True)


async def test_a_trickling_reader_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving(Things().app(), limits(unread_seconds=0.5, bytes_per_second_min=MIB)) as (
            server,
            address,
        ),
        raw_connection(address, receive_buffer=4_096) as (reader, writer),
    ):
        ask_and_read_nothing(writer)
        await until(lambda: server.watch.unread_size)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionResetError, asyncio.IncompleteReadError):
            while server.watch.connections:
                await reader.readexactly(1_000)
                await asyncio.sleep(0.02)  # the slowness under test

        await until(lambda: not server.watch.connections)


async def test_a_client_that_leaves_in_mid_upload_is_noticed() -> None:
    things = Things()
    async with serving(things.app(), limits()) as (_, address):
        async with raw_connection(address) as (_, writer):
            writer.write(
                b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\nhalf"
            )
            await until(lambda: things.budget.used == RESERVE_SIZE)

        await until(lambda: things.budget.used == 0)


async def test_an_upload_beyond_its_limit_is_refused_and_the_rest_not_kept() -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(
            b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (3 * MIB)
        )
        writer.write(bytes(3 * MIB))

        status, _, body = await answer_of(reader)
        assert (status, json.loads(body)["code"]) == (413, "too-large")

        writer.write(HELLO)  # the connection is still good
        assert (await answer_of(reader))[0] == 200


async def test_a_trailer_is_no_header() -> None:
    chunked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n%b\r\n"
    trailer = b"1\r\na\r\n0\r\nX-Request-Id: trailer\r\n\r\n"
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(chunked % b"" + trailer)
        assert (await answer_of(reader))[1]["x-request-id"] != "trailer"

        writer.write(chunked % b"X-Request-Id: header\r\n" + trailer)
        assert (await answer_of(reader))[1]["x-request-id"] == "header"


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        body = b"x" * 7
        upload = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n" + body
        writer.write((upload + HELLO) * 50)

        for _ in range(50):
            assert (await answer_of(reader))[2] == b"7"
            assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}


async def test_requests_far_ahead_are_held_back_before_they_begin_and_answered_in_turn() -> None:
    things = Things()
    count = 2_000
    async with (
        serving(things.app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(LATE * count)
        await until(lambda: len(things.held) == AHEAD_MAX)
        writer.write(HELLO)
        for number in range(count):
            await until(lambda: bool(things.held))
            assert len(things.held) <= AHEAD_MAX
            things.held.pop(0).answer(OK, b"%d" % number)
            assert (await answer_of(reader))[2] == b"%d" % number

        assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}


@pytest.mark.parametrize("ends", [False, True], ids=["stays", "half closes"])
@pytest.mark.parametrize("mix", ["hot", "ordinary", "mixed", "with pages"])
async def test_two_thousand_requests_in_one_write_are_all_answered_in_order(
    mix: str, *, ends: bool
) -> None:
    upload = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n%b"
    page = b"Origin: http://localhost\r\n"
    asked, expected = [], []
    for number in range(2_000):
        size = number % 300
        if mix == "ordinary" or (mix == "mixed" and number % 3 == 2):
            asked.append(HELLO)
            expected.append(b'{"status":"ok"}')
        else:
            more = page if mix == "with pages" and number % 5 == 4 else b""
            asked.append(upload % (more, size, bytes(size)))
            expected.append(b"%d" % size)
    things = Things()
    async with (
        serving(things.app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(b"".join(asked))
        if ends:
            writer.write_eof()
        answered = [(await answer_of(reader))[2] for _ in asked]

        assert answered == expected
        if ends:
            assert await reader.read() == b""
    assert things.budget.used == 0


async def test_a_reader_that_reads_nothing_is_cut_and_others_are_served() -> None:
    with capture_logs() as logs:
        async with (
            serving(Things().app(), limits(unread_seconds=0.5)) as (server, address),
            raw_connection(address, receive_buffer=4_096) as (_, stuck),
            raw_connection(address) as (reader, writer),
        ):
            ask_and_read_nothing(stuck)
            await until(lambda: len(server.watch.connections) == 2)
            while len(server.watch.connections) == 2:
                writer.write(HELLO)
                assert (await answer_of(reader))[0] == 200

    assert any("unread_seconds" in entry.get("why", "") for entry in logs)


async def test_a_reader_may_be_slow_as_long_as_it_reads() -> None:
    async with (
        serving(Things().app(), limits(unread_seconds=0.5)) as (_, address),
        raw_connection(address, receive_buffer=65_536) as (reader, writer),
    ):
        writer.write(b"GET /v1/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        left = 8 * MIB
        while left:
            left -= len(await reader.readexactly(min(left, MIB // 2)))
            await asyncio.sleep(0.15)  # the slowness under test: 2.4 s in all


async def test_stuck_readers_together_cost_no_more_than_the_cap() -> None:
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(capture_logs())
        serving_capped = serving(Things().app(), limits(unread_bytes_max=20 * MIB))
        server, address = await stack.enter_async_context(serving_capped)
        for _ in range(6):
            stuck = raw_connection(address, receive_buffer=4_096)
            ask_and_read_nothing((await stack.enter_async_context(stuck))[1])

        await until(lambda: sum("unread_bytes_max" in e.get("why", "") for e in logs) >= 3)

        watch = server.watch
        sizes = [connection.unread_size() for connection in watch.connections]
        assert watch.unread_size <= 20 * MIB
        assert max(sizes) <= 8 * MIB  # one answer each, though three were asked for


async def test_connections_beyond_the_limit_are_told_so() -> None:
    things = Things()
    async with (
        serving(things.app(), limits(connections_max=2)) as (server, address),
        raw_connection(address) as (reader, writer),
        raw_connection(address) as (_, other),
    ):
        for busy in (writer, other):
            busy.write(LATE)
        await until(lambda: len(things.held) == 2)
        async with raw_connection(address) as (refused_reader, refused_writer):
            await until(lambda: len(server.watch.connections) == 3)
            refused_writer.write(HELLO)
            status, headers, body = await answer_of(refused_reader)
            assert (status, json.loads(body)["code"]) == (429, "overloaded")
            assert headers["retry-after"] == "1"
            assert await refused_reader.read() == b""

        things.release()
        assert (await answer_of(reader))[0] == 200


async def test_an_idle_connection_makes_room_for_one_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_watch, "IDLE_SPARED_SECONDS", 0)
    things = Things()
    async with (
        serving(things.app(), limits(connections_max=4)) as (_, address),
        AsyncExitStack() as stack,
        raw_connection(address) as (hot_reader, hot),
        raw_connection(address) as (ordinary_reader, ordinary),
        raw_connection(address) as (silent_reader, _),
        raw_connection(address) as (busy_reader, busy),
    ):
        hot.write(b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
        assert (await answer_of(hot_reader))[0] == 200
        ordinary.write(HELLO)
        assert (await answer_of(ordinary_reader))[0] == 200
        busy.write(LATE)
        await until(lambda: things.held)

        for idle in (silent_reader, hot_reader, ordinary_reader):  # the longest idle first
            reader, writer = await stack.enter_async_context(raw_connection(address))
            assert await idle.read() == b""
            writer.write(HELLO)
            assert (await answer_of(reader))[0] == 200

        things.release()
        assert (await answer_of(busy_reader))[2] == b"released"


async def test_a_held_request_notices_that_its_client_left() -> None:
    things = Things()
    async with serving(things.app(), limits()) as (_, address):
        async with raw_connection(address) as (_, writer):
            writer.write(b"GET /v1/late HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: len(things.held))
        await until(lambda: things.left == 1)


@pytest.mark.parametrize("is_behind_at_once", [True, False])
@pytest.mark.parametrize("held", [LATE, LATE[:-2] + FROM_PAGE], ids=["hot", "uvicorn's"])
async def test_a_held_request_with_others_behind_it_notices_that_its_client_left(
    held: bytes, *, is_behind_at_once: bool
) -> None:
    things = Things()
    async with serving(things.app(), limits()) as (server, address):
        async with raw_connection(address) as (_, writer):
            writer.write(held + HELLO * is_behind_at_once)
            await until(lambda: len(things.held))
            writer.write(HELLO)
            [connection] = server.server_state.connections
            assert isinstance(connection, ServiceProtocol)
            await until(lambda: len(connection.pipeline) == 1 + is_behind_at_once)
        await until(lambda: things.left == 1)


@pytest.mark.parametrize("held", [LATE, LATE[:-2] + FROM_PAGE], ids=["hot", "uvicorn's"])
async def test_what_waits_behind_a_held_request_is_bounded_and_answered(held: bytes) -> None:
    things, count = Things(), 40
    async with (
        serving(things.app(), limits()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        upload = (
            b"POST /healthz HTTP/1.1\r\n"
            b"Host: localhost\r\nContent-Length: 50000\r\n\r\n" + bytes(50_000)
        )
        writer.write(held)
        await until(lambda: len(things.held))
        writer.write(upload)
        [connection] = server.server_state.connections
        assert isinstance(connection, ServiceProtocol)
        await until(lambda: len(connection.pipeline) == 1)
        assert not connection.flow.read_paused

        writer.write(upload * (count - 1))
        await until(lambda: connection.flow.read_paused)
        assert sum(len(cycle.body) for cycle, _ in connection.pipeline) < MIB
        things.release()

        assert (await answer_of(reader))[2] == b"released"
        assert [(await answer_of(reader))[0] for _ in range(count)] == [405] * count


async def test_a_refusal_is_not_written_into_an_answer_that_has_a_request_behind_it() -> None:
    large = b"GET /v1/large HTTP/1.1\r\nHost: localhost\r\n" + FROM_PAGE
    with capture_logs() as logs:
        async with (
            serving(Things().app(), limits()) as (_, address),
            raw_connection(address, receive_buffer=4_096) as (reader, writer),
        ):
            writer.write(large + HELLO)
            await reader.readuntil(b"\r\n\r\n")

            writer.write(b"\x16\x03\x01 not HTTP\r\n\r\n")
            await until(lambda: any(entry["event"] == "connection cut" for entry in logs))

            received = b""
            with suppress(ConnectionResetError):
                received = await reader.read()
            assert received.strip(b"\0") == b""


async def test_stopping_answers_held_requests_and_closes_idle_connections() -> None:
    things = Things()
    async with (
        serving(things.app(), limits()) as (server, address),
        raw_connection(address) as (idle, _),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(b"GET /v1/late HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(things.held))

        server.stop()

        status, headers, body = await answer_of(reader)
        assert (status, body) == (200, b"released")
        assert headers["connection"] == "close"
        assert await idle.read() == b""


async def test_answers_tell_neither_server_nor_date() -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(HELLO)

        _, headers, _ = await answer_of(reader)

        assert not {"server", "date"} & headers.keys()


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
UPLOAD = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE
BODIES = [
    (UPLOAD + b"Content-Length: 3\r\n\r\nabc", b"3"),
    (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"5"),
    (UPLOAD + b"Content-Length: 0\r\n\r\n", b"0"),
    (UPLOAD + b"\r\n", b"0"),
]


@pytest.mark.parametrize("piece_size", [1, 7, 1_000])
async def test_an_upgrade_that_is_offered_is_ignored_without_losing_the_body(
    piece_size: int,
) -> None:
    """Java's client offers h2c in its first requests and goes on in HTTP/1.1 when ignored."""
    said = b"".join(request for request, _ in BODIES) + HELLO
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        for start in range(0, len(said), piece_size):
            writer.write(said[start : start + piece_size])
            await asyncio.sleep(0)

        for _, size in BODIES:
            assert (await answer_of(reader))[::2] == (200, size)
        assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
