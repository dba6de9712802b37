"""Exchanges over real sockets: their order, their endings, and what is left to uvicorn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from structlog.testing import capture_logs

from eruca_chassis.app import ServiceApp
from eruca_chassis.budget import RESERVE_SIZE
from eruca_chassis.connections.body_receiver import LARGE_BODY_SIZE_MIN, BodyReceiver
from eruca_chassis.connections.connections import AHEAD_MAX, ServiceProtocol
from eruca_chassis.connections.exchange import AnswerHead, BodyLimit, Exchange
from eruca_chassis.serving import Server
from eruca_chassis.settings import ServiceSettings
from support.budgets import ManualBudget
from support.hot_routes import Hot, hot_router
from support.patience import PATIENCE_SECONDS
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024
OK = AnswerHead(200)
ORDINARY = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LATE = b"GET /v1/late/%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
SAY = b"POST /v1/say HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"


class Things:
    """Answers at once, late or at length, as asked for."""

    def __init__(self) -> None:
        self.late: dict[str, Exchange] = {}
        self.working: list[Exchange] = []
        self.lost: list[str] = []
        self.budget = ManualBudget(64 * MIB)
        self.app = ServiceApp(
            title="Things",
            summary="",
            description="",
            version="1",
            lifespan=self._lifespan,
            routers=[
                hot_router(
                    Hot("GET", "/v1/late/{name}", self._late),
                    Hot("GET", "/v1/large/{size}", self._large),
                    Hot("POST", "/v1/say", self._say, admit=self._admit),
                    Hot("POST", "/v1/work", self.working.append, admit=self._admit),
                )
            ],
        )
        self.app.stop_hooks.append(self._release_all)

    @asynccontextmanager
    async def _lifespan(self, app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    def release(self, name: str) -> None:
        self.late.pop(name).answer(OK, name.encode())

    def _release_all(self) -> None:
        for name in list(self.late):
            self.release(name)

    def _late(self, exchange: Exchange) -> None:
        name = exchange.request.parameters["name"]
        self.late[name] = exchange
        exchange.on_lost = partial(self._lose, name)

    def _lose(self, name: str) -> None:
        del self.late[name]
        self.lost.append(name)

    def _large(self, exchange: Exchange) -> None:
        size = int(exchange.request.parameters["size"])
        exchange.take(self.budget, size)
        pieces = [bytes([number % 256]) * 100_000 for number in range(size // 100_000)]
        exchange.answer(OK, b"begin ", *pieces, b" end")

    def _admit(self, exchange: Exchange) -> None:
        exchange.expect_body(BodyLimit(self.budget, MIB, "said_size_max"))

    def _say(self, exchange: Exchange) -> None:
        if exchange.body == b"broken":
            raise ZeroDivisionError
        exchange.answer(OK, bytes(exchange.body))


def said(body: bytes) -> bytes:
    return SAY % (len(body), body)


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status_line, *lines = head.strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(status_line.split(" ")[1]), headers, body


async def bodies_of(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    return [(await answer_of(reader))[2] for _ in range(count)]


def settings(**changed: float) -> ServiceSettings:
    return ServiceSettings.model_validate({"stop_seconds": 5} | changed)


@pytest.fixture
def things() -> Things:
    return Things()


@pytest.fixture
async def connection(
    things: Things,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with (
        serving(things.app, settings()) as (_, address),
        raw_connection(address) as connection,
    ):
        yield connection


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


# --- Heads ---------------------------------------------------------------------------------------


async def test_a_request_whose_head_is_known_does_not_pass_the_parser(things: Things) -> None:
    async with (
        serving(things.app, settings()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        for body in (b"first", b"other", b"sixthy"):
            writer.write(said(body))
            assert (await answer_of(reader))[2] == body
        [protocol] = server.server_state.connections
        assert isinstance(protocol, ServiceProtocol)
        parser, protocol.parser = protocol.parser, None

        writer.write(said(b"again") + said(b"sixteen"[:6]) + said(b"third"))
        assert await bodies_of(reader, 3) == [b"again", b"sixtee", b"third"]

        protocol.parser = parser
        writer.write(said(b"known") + said(b"unheard of") + said(b"known"))
        assert await bodies_of(reader, 3) == [b"known", b"unheard of", b"known"]
    assert things.budget.used == 0


@pytest.mark.parametrize("missing", [1, 4, 5, 40])
async def test_a_known_head_may_come_in_pieces_and_before_its_body(
    connection: Connection, missing: int
) -> None:
    reader, writer = connection
    for _ in range(2):
        writer.write(said(b"whole"))
        assert (await answer_of(reader))[2] == b"whole"
    sent = said(b"parts")

    writer.write(sent[:-missing])
    await writer.drain()
    _, pending = await asyncio.wait([asyncio.create_task(answer_of(reader))], timeout=0.05)
    writer.write(sent[-missing:] + said(b"after"))

    [answering] = pending
    assert (await answering)[2] == b"parts"
    assert (await answer_of(reader))[2] == b"after"


async def test_known_heads_wait_for_what_uvicorn_answers(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(said(b"known"))
    assert (await answer_of(reader))[2] == b"known"

    writer.write(ORDINARY)
    writer.write(said(b"later") + LATE % 1 + said(b"final"))
    assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
    assert (await answer_of(reader))[2] == b"later"
    await until(lambda: "1" in things.late)
    things.release("1")
    assert await bodies_of(reader, 2) == [b"1", b"final"]


async def test_a_known_head_is_refused_like_any_other(things: Things) -> None:
    async with (
        serving(things.app, settings()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(said(b"broken"))
        assert (await answer_of(reader))[0] == 500
        with capture_logs():
            writer.write(said(b"broken"))
            assert (await answer_of(reader))[0] == 500
        things.app.readiness.not_ready("it rests")
        writer.write(said(b"broken"))
        assert (await answer_of(reader))[0] == 503


# --- Large bodies ---------------------------------------------------------------------------------


LARGE = bytes(range(251)) * 4_000  # a megabyte, less a little


def is_received_directly(server: Server) -> bool:
    """Tell whether what arrives on the only connection passes the parser by."""
    protocols = [c.transport.get_protocol() for c in server.server_state.connections]
    return any(isinstance(protocol, BodyReceiver) for protocol in protocols)


@pytest.mark.parametrize("missing", [1, LARGE_BODY_SIZE_MIN - 1, LARGE_BODY_SIZE_MIN, 900_000])
async def test_a_large_body_and_what_follows_it_come_whole(things: Things, missing: int) -> None:
    async with (
        serving(things.app, settings()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        for number in range(2):  # an unknown head, and a known one
            body = LARGE + b"%d" % number
            sent = said(body)
            writer.write(sent[:-missing])
            if missing >= LARGE_BODY_SIZE_MIN:
                await until(lambda: is_received_directly(server))
            writer.write(sent[-missing:] + said(b"after") + ORDINARY + said(b"last"))

            assert await bodies_of(reader, 2) == [body, b"after"]
            assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
            assert (await answer_of(reader))[2] == b"last"
            assert not is_received_directly(server)
    assert things.budget.used == 0


async def test_a_large_body_waits_behind_an_answer_that_is_late(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(LATE % 1 + said(LARGE) + LATE % 2)
    await until(lambda: {"1", "2"} <= things.late.keys())
    things.release("2")
    things.release("1")

    assert await bodies_of(reader, 3) == [b"1", LARGE, b"2"]


async def test_a_client_that_leaves_in_a_large_body_gives_back_what_it_took(things: Things) -> None:
    async with serving(things.app, settings()) as (server, address):
        async with raw_connection(address) as (_, writer):
            writer.write(said(LARGE)[:400_000])
            await until(lambda: is_received_directly(server))
            await until(lambda: things.budget.used == 400_000 - len(said(LARGE)) + len(LARGE))
        await until(lambda: not server.watch.connections)
    assert things.budget.used == 0


async def test_a_large_body_that_is_not_wanted_is_dropped(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    things.budget.take(things.budget.maximum)
    writer.write(said(LARGE))
    assert (await answer_of(reader))[0] == 429
    things.budget.give(things.budget.maximum)

    writer.write(said(b"after"))
    assert (await answer_of(reader))[2] == b"after"


# --- Order ----------------------------------------------------------------------------------------


async def test_answers_go_out_in_the_order_of_their_requests_whenever_they_come(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(b"".join(LATE % number for number in range(4)) + said(b"at once"))
    await until(lambda: len(things.late) == 4)

    for name in ("2", "1", "0", "3"):
        things.release(name)

    assert await bodies_of(reader, 5) == [b"0", b"1", b"2", b"3", b"at once"]


@pytest.mark.parametrize("piece_size", [1, 33, 100_000])
async def test_hot_and_ordinary_requests_take_turns(
    things: Things, connection: Connection, piece_size: int
) -> None:
    reader, writer = connection
    sent = b"".join(said(b"%d" % number) + ORDINARY * (number % 3) for number in range(20))

    async def send() -> None:
        for start in range(0, len(sent), piece_size):
            writer.write(sent[start : start + piece_size])
            await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    for number in range(20):
        assert (await answer_of(reader))[2] == b"%d" % number
        for _ in range(number % 3):
            assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
    await sending
    assert things.budget.used == 0


async def test_an_ordinary_request_waits_for_hot_ones_before_it(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(LATE % 1 + ORDINARY + LATE % 2)
    await until(lambda: "1" in things.late)

    things.release("1")

    assert (await answer_of(reader))[2] == b"1"
    assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
    await until(lambda: "2" in things.late)
    things.release("2")
    assert (await answer_of(reader))[2] == b"2"


async def test_a_client_far_ahead_is_held_back_and_then_answered(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    count = 3 * AHEAD_MAX
    writer.write(LATE % 0 + b"".join(said(b"%d" % number) for number in range(count)))
    await until(lambda: "0" in things.late)

    things.release("0")

    assert await bodies_of(reader, 1 + count) == [b"0", *(b"%d" % n for n in range(count))]


async def test_small_answers_behind_a_large_one_wait_until_it_is_read(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
    size = 30 * MIB // 100_000 * 100_000
    writer.write(
        b"GET /v1/large/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % size + said(b"x") * 3 + LATE % 1
    )
    await until(lambda: "1" in things.late)
    assert things.budget.used >= size  # its last piece is not with the kernel yet
    writer.transport.resume_reading()  # type: ignore[attr-defined]

    body = (await answer_of(reader))[2]

    assert (len(body), body[:7], body[-4:]) == (size + 10, b"begin \0", b" end")
    assert await bodies_of(reader, 3) == [b"x"] * 3
    assert things.budget.used == 0
    things.release("1")
    assert (await answer_of(reader))[2] == b"1"


# --- What is unusual ------------------------------------------------------------------------------


async def test_a_head_request_gets_no_body_but_its_length(connection: Connection) -> None:
    reader, writer = connection
    for path, size in ((b"/v1/large/100000", 100_010), (b"/v1/large/0", 10)):
        writer.write(b"HEAD %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: %d" % size in head
    writer.write(said(b"next"))
    assert (await answer_of(reader))[2] == b"next"


async def test_a_chunked_body_is_put_together(things: Things, connection: Connection) -> None:
    reader, writer = connection
    writer.write(b"POST /v1/say HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    assert (await answer_of(reader))[2] == b"abcde"
    assert things.budget.used == 0


@pytest.mark.parametrize("is_behind", [False, True])
async def test_a_client_that_expects_100_is_told_to_go_on(
    things: Things, connection: Connection, *, is_behind: bool
) -> None:
    reader, writer = connection
    if is_behind:
        writer.write(LATE % 1)
    writer.write(
        b"POST /v1/say HTTP/1.1\r\n"
        b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    )
    if is_behind:
        await until(lambda: "1" in things.late)
        things.release("1")
        assert (await answer_of(reader))[2] == b"1"

    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"body")
    assert (await answer_of(reader))[2] == b"body"


async def test_a_client_that_expects_100_is_refused_without_its_body(
    connection: Connection,
) -> None:
    reader, writer = connection
    head = (
        b"POST /v1/say HTTP/1.1\r\n"
        b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n"
    )
    writer.write(head)

    status, headers, _ = await answer_of(reader)
    # A client that leaves its body out would otherwise have its next request taken for it.
    assert (status, headers["connection"]) == (413, "close")
    writer.write(bytes(1_000))
    assert await reader.read() == b""


async def test_a_body_that_comes_unasked_does_not_end_the_connection(
    connection: Connection,
) -> None:
    reader, writer = connection
    writer.write(
        b"POST /v1/nothing HTTP/1.1\r\n"
        b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody"
    )
    status, headers, _ = await answer_of(reader)
    assert (status, "connection" in headers) == (404, False)

    writer.write(said(b"next"))
    assert (await answer_of(reader))[2] == b"next"


async def test_http_1_0_is_not_told_to_go_on(connection: Connection) -> None:
    reader, writer = connection
    writer.write(b"POST /v1/say HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody")

    assert (await answer_of(reader))[2] == b"body"


@pytest.mark.parametrize("first", [b"", LARGE], ids=["at once", "behind a large body"])
@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/say HTTP/1.1\r\n"
        b"Host: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\n",
        b"POST /v1/say HTTP/1.0\r\nContent-Length: 4\r\n\r\n",
        b"POST /v1/say HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\n",
    ],
    ids=["close", "1.0", "1.0 keep-alive"],
)
async def test_a_connection_that_is_to_be_closed_is_closed_behind_its_answer(
    connection: Connection, head: bytes, first: bytes
) -> None:
    reader, writer = connection
    if first:
        writer.write(said(first))
        assert (await answer_of(reader))[2] == first
    writer.write(head + b"body" + said(b"never") + ORDINARY)

    _, headers, body = await answer_of(reader)

    assert (headers["connection"], body) == ("close", b"body")
    assert await reader.read() == b""


async def test_a_refused_upload_is_read_to_its_end_before_the_connection_closes(
    things: Things, connection: Connection
) -> None:
    """Closing at once would reset the connection under the client, which would not read why."""
    reader, writer = connection
    size = 5 * MIB
    writer.write(
        b"POST /v1/say HTTP/1.1\r\n"
        b"Host: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    )
    for _ in range(5):
        writer.write(bytes(MIB))
        await writer.drain()

    assert (await answer_of(reader))[0] == 413
    assert await reader.read() == b""
    assert things.budget.used == 0


async def test_a_path_in_an_unusual_form_is_answered_all_the_same(connection: Connection) -> None:
    reader, writer = connection
    for path in (b"http://localhost/v1/say", b"/v1/s%61y", b"/v1/say?"):
        writer.write(b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody" % path)
        assert (await answer_of(reader))[::2] == (200, b"body"), path


# --- Endings --------------------------------------------------------------------------------------


async def test_a_defect_is_a_problem_and_the_connection_goes_on(connection: Connection) -> None:
    reader, writer = connection
    with capture_logs() as logs:
        writer.write(said(b"broken") + said(b"fine"))
        status, headers, body = await answer_of(reader)

    assert (status, headers["content-type"]) == (500, "application/problem+json")
    assert json.loads(body)["request_id"] == headers["x-request-id"] == logs[0]["request_id"]
    assert (await answer_of(reader))[2] == b"fine"


async def test_every_answer_has_its_requests_id_however_it_is_answered(things: Things) -> None:
    post = b"POST /v1/say HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n"
    requests = {
        "parsed": post % (b"X-Request-Id: parsed\r\n", 4) + b"body",
        "again": post % (b"X-Request-Id: again\r\n", 4) + b"body",
        "lower": post % (b"x-request-id: lower\r\n", 4) + b"body",
        "large": post % (b"X-Request-Id: large\r\n", MIB) + bytes(MIB),
        "defect": post % (b"X-Request-Id: defect\r\n", 6) + b"broken",
        "too-large": post % (b"X-Request-Id: too-large\r\n", MIB + 1) + bytes(MIB + 1),
        "pieces": b"GET /v1/large/300000 HTTP/1.1\r\nHost: [::1]\r\nX-Request-Id: pieces\r\n\r\n",
        "ordinary": ORDINARY[:-2] + b"X-Request-Id: ordinary\r\n\r\n",
        "unknown": b"GET /v1/none HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: unknown\r\n\r\n",
        "through-asgi": b"POST /v1/s%61y HTTP/1.1\r\nHost: [::1]\r\nX-Request-Id: through-asgi\r\n"
        b"Content-Length: 4\r\n\r\nbody",
    }
    async with serving(things.app, settings()) as (_, address):
        for name, request in [*requests.items(), *requests.items()]:
            async with raw_connection(address) as (reader, writer):
                writer.write(request)
                assert (await answer_of(reader))[1]["x-request-id"] == name

        async with raw_connection(address) as (reader, writer):
            made = []
            for _ in range(4):  # of which all but the first have a known head
                writer.write(said(b"body"))
                made.append((await answer_of(reader))[1]["x-request-id"])
            assert all(made)
            assert len(set(made)) == len(made)

        async with raw_connection(address) as (reader, writer):
            writer.write(post % (b"X-Request-Id: a b\r\n", 4) + b"body")
            assert (await answer_of(reader))[1]["x-request-id"] != "a b"


async def test_a_request_that_does_not_come_whole_is_refused_under_its_id(things: Things) -> None:
    head = (
        b"POST %b HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: slow\r\nContent-Length: 4\r\n\r\nb"
    )
    async with serving(things.app, settings(request_seconds=0.1)) as (_, address):
        for path in (b"/v1/say", b"/healthz"):
            async with raw_connection(address) as (reader, writer):
                writer.write(head % path)
                _, headers, body = await answer_of(reader)
                assert json.loads(body)["request_id"] == headers["x-request-id"] == "slow", path


async def test_a_client_that_leaves_ends_what_is_waited_for_and_lets_work_finish(
    things: Things,
) -> None:
    async with serving(things.app, settings()) as (server, address):
        async with raw_connection(address) as (_, writer):
            work = b"POST /v1/work HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"
            half = b"POST /v1/say HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"
            writer.write(LATE % 1 + work + half)
            await until(lambda: things.budget.used == 2 * RESERVE_SIZE)
        await until(lambda: things.lost == ["1"])
        assert not server.watch.connections
        assert things.budget.used == RESERVE_SIZE

        [working] = things.working
        working.answer(OK, b"to nobody")

        assert things.budget.used == 0
        counted = things.app.registry.get_sample_value
        for route, status in (("late/{name}", "499"), ("say", "499"), ("work", "200")):
            labels = {"route": f"/v1/{route}", "status": status}
            labels["method"] = "GET" if route.startswith("late") else "POST"
            assert counted("eruca_http_requests_total", labels) == 1, route


async def test_a_client_that_leaves_amid_a_large_answer_gives_back_what_it_took(
    things: Things,
) -> None:
    async with serving(things.app, settings()) as (_, address):
        async with raw_connection(address, receive_buffer=4_096) as (_, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
            writer.write(b"GET /v1/large/30000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: things.budget.used == 30_000_000)
        await until(lambda: things.budget.used == 0)


async def test_stopping_answers_all_that_is_under_way_and_closes_behind_the_last(
    things: Things,
) -> None:
    async with (
        serving(things.app, settings()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        work = b"POST /v1/work HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"
        writer.write(LATE % 1 + work + ORDINARY)
        await until(lambda: len(things.late) == len(things.working) == 1)

        server.stop()
        _, headers, body = await answer_of(reader)
        assert ("connection" in headers, body) == (False, b"1")
        things.working[0].answer(OK, b"worked")

        assert (await answer_of(reader))[2] == b"worked"
        _, headers, body = await answer_of(reader)
        assert (headers["connection"], json.loads(body)) == ("close", {"status": "ok"})
        assert await reader.read() == b""


@pytest.mark.parametrize("behind", [b"", ORDINARY], ids=["the last", "one behind it"])
async def test_stopping_closes_behind_an_answer_that_had_begun(
    things: Things, behind: bytes
) -> None:
    size = 30 * MIB // 100_000 * 100_000
    async with (
        serving(things.app, settings(stop_seconds=600)) as (server, address),
        raw_connection(address, receive_buffer=4_096) as (reader, writer),
    ):
        writer.write(b"GET /v1/large/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % size)
        await until(lambda: things.budget.used > 0)

        server.stop()
        await until(lambda: server.watch.is_stopping)
        writer.write(behind)

        assert len((await answer_of(reader))[2]) == size + 10
        if behind:
            _, headers, body = await answer_of(reader)
            assert (headers["connection"], json.loads(body)) == ("close", {"status": "ok"})
        assert await reader.read() == b""


async def test_before_it_is_ready_and_while_it_stops_the_service_refuses(things: Things) -> None:
    async with (
        serving(things.app, settings()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        things.app.readiness.not_ready("it is being tested")
        writer.write(said(b"x"))

        status, headers, body = await answer_of(reader)

        assert (status, json.loads(body)["code"]) == (503, "not-ready")
        assert headers["retry-after"] == "1"


@pytest.mark.parametrize("held_head", [b"", b"Origin: http://page\r\n"], ids=["hot", "uvicorn's"])
async def test_a_connection_that_nothing_is_asked_on_is_closed_and_a_busy_one_is_not(
    things: Things, held_head: bytes
) -> None:
    async with (
        serving(things.app, settings(keep_alive_seconds=1)) as (_, address),
        raw_connection(address) as (idle, idle_writer),
        raw_connection(address) as (held, held_writer),
    ):
        held_writer.write(LATE % 0 + LATE[:-2] % 1 + held_head + b"\r\n")
        await until(lambda: "0" in things.late)
        things.release("0")
        assert (await answer_of(held))[2] == b"0"
        idle_writer.write(said(b"x"))
        assert (await answer_of(idle))[2] == b"x"

        assert (
            await asyncio.wait_for(idle.read(), PATIENCE_SECONDS) == b""
        )  # closed, with nothing said

        things.release("1")
        assert (await answer_of(held))[2] == b"1"


@pytest.mark.parametrize("first", [said(b"x"), ORDINARY], ids=["hot", "ordinary"])
async def test_a_next_request_that_does_not_arrive_whole_is_refused(
    things: Things, first: bytes
) -> None:
    async with (
        serving(things.app, settings(request_seconds=0.5, keep_alive_seconds=60)) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(first + b"POST /v1/s")
        assert (await answer_of(reader))[0] == 200

        status, _, body = await answer_of(reader)

        assert (status, b"request_seconds" in body) == (408, True)
        assert await reader.read() == b""


async def test_hot_requests_are_counted_by_route_and_status_and_uvicorn_sees_none_of_them(
    things: Things,
) -> None:
    async with (
        serving(things.app, settings()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(said(b"x") * 3 + said(bytes(2 * MIB)))
        assert [(await answer_of(reader))[0] for _ in range(4)] == [200, 200, 200, 413]
        writer.write(ORDINARY)
        assert (await answer_of(reader))[0] == 200
        assert server.server_state.total_requests == 1

    for status, count in (("200", 3), ("413", 1)):
        labels = {"method": "POST", "route": "/v1/say", "status": status}
        found = things.app.registry.get_sample_value("eruca_http_requests_total", labels)
        assert found == count
