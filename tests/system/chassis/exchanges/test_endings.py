"""Exchanges that end otherwise than by their answer, and what is left to uvicorn."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from eruca_chassis.admission.budget import RESERVE_SIZE
from support.exchanges import (
    LATE,
    MIB,
    OK,
    ORDINARY,
    Connection,
    Things,
    answer_of,
    said,
    settings,
)
from support.patience import PATIENCE_SECONDS
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio


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
