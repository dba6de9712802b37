"""Heads of answers that are known: the same answer as by the parser, or none."""

from __future__ import annotations

import asyncio

import pytest

from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.known_answers import KNOWN_ANSWERS_MAX, KNOWN_BODY_SIZE_MAX, KnownAnswers
from eruca.aio.http.transport import HttpResponse
from support.http_peers import answering, peer, read_request

HEAD = b"HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n"
HEADERS = {"content-type": "text/plain", "content-length": "2"}


def answer(body: bytes = b"ok", headers: dict[str, str] | None = None) -> HttpResponse:
    return HttpResponse(201, HEADERS if headers is None else headers, body)


def knowing() -> KnownAnswers:
    known = KnownAnswers()
    known.learn(HEAD + b"ok", answer())
    return known


def test_what_follows_a_known_head_is_the_next_answer() -> None:
    assert knowing().read(HEAD + b"no") == answer(b"no")


def test_the_id_of_a_request_may_differ_and_is_told() -> None:
    known = KnownAnswers()
    known.learn(with_id(b"12ab") + b"ok", answer(headers=HEADERS | {"x-request-id": "12ab"}))

    other = known.read(with_id(b"34cd") + b"no")

    assert other == answer(b"no", HEADERS | {"x-request-id": "34cd"})
    assert len(known) == 1


@pytest.mark.parametrize("identity", [b"a-b", b" a", b"", b"a\xff"])
def test_an_unusual_id_is_left_to_the_parser(identity: bytes) -> None:
    known = KnownAnswers()
    known.learn(with_id(b"12ab") + b"ok", answer(headers=HEADERS | {"x-request-id": "12ab"}))
    parsed = identity.strip().decode("latin-1")

    known.learn(with_id(identity) + b"ok", answer(headers=HEADERS | {"x-request-id": parsed}))

    assert known.read(with_id(identity) + b"no") is None
    assert len(known) == 1


def test_two_ids_are_left_to_the_parser() -> None:
    known = KnownAnswers()
    twice = with_id(b"12ab").replace(b"\r\n\r\n", b"\r\nx-request-id: 3\r\n\r\n")

    known.learn(twice + b"ok", answer(headers=HEADERS | {"x-request-id": "12ab, 3"}))

    assert len(known) == 0


def with_id(identity: bytes) -> bytes:
    return HEAD.replace(b"\r\n\r\n", b"\r\nx-request-id: " + identity + b"\r\n\r\n")


@pytest.mark.parametrize(
    "data",
    [
        HEAD,
        HEAD[:-1],
        HEAD + b"o",
        HEAD + b"okk",
        HEAD.replace(b"201", b"200") + b"ok",
        b"ok",
        b"",
    ],
)
def test_anything_else_is_left_to_the_parser(data: bytes) -> None:
    assert knowing().read(data) is None


@pytest.mark.parametrize(
    ("data", "parsed"),
    [
        pytest.param(b"\r\n" + HEAD + b"ok", answer(), id="an empty line in front"),
        pytest.param(
            HEAD.replace(b"text/plain", b"a\r\ncontent-type: b") + b"ok",
            answer(headers=HEADERS | {"content-type": "a, b"}),
            id="a header of two lines",
        ),
        pytest.param(
            HEAD.replace(b"content-length: 2", b"transfer-encoding: chunked")
            + b"2\r\nok\r\n0\r\n\r\n",
            answer(headers={"content-type": "text/plain", "transfer-encoding": "chunked"}),
            id="chunked",
        ),
        pytest.param(
            b"HTTP/1.1 201 Created\r\n\r\nok", answer(headers={}), id="until the connection ends"
        ),
        pytest.param(
            HEAD.replace(b": 2", b": %d" % (KNOWN_BODY_SIZE_MAX + 1))
            + bytes(KNOWN_BODY_SIZE_MAX + 1),
            answer(
                bytes(KNOWN_BODY_SIZE_MAX + 1),
                HEADERS | {"content-length": str(KNOWN_BODY_SIZE_MAX + 1)},
            ),
            id="long",
        ),
    ],
)
def test_an_answer_that_is_not_plain_is_not_remembered(data: bytes, parsed: HttpResponse) -> None:
    known = KnownAnswers()

    known.learn(data, parsed)

    assert len(known) == 0


def test_only_so_many_are_remembered() -> None:
    known = KnownAnswers()
    for number in range(3 * KNOWN_ANSWERS_MAX):
        head = HEAD.replace(b"plain", b"%d" % number)
        known.learn(head + b"ok", answer(headers=HEADERS | {"content-type": f"text/{number}"}))

        assert 0 < len(known) <= KNOWN_ANSWERS_MAX
        assert known.read(head + b"no") is not None


@pytest.mark.anyio
async def test_a_connection_with_two_answers_to_one_request_is_not_used_again() -> None:
    client = Http1Transport()
    async with peer(answering(HEAD + b"ok", HEAD + b"ok" + HEAD + b"no")) as server:
        for _ in range(3):
            got = await client.request("POST", server.url, "/", timeout=10)
            assert got == answer()
        assert server.connection_count == 2
    await client.close()


@pytest.mark.anyio
async def test_a_known_answer_in_pieces_is_put_together_and_its_connection_is_used_again() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            line, _, body = await read_request(reader)
            assert line == "POST / HTTP/1.1"
            cut = int(body)
            writer.write((HEAD + b"ok")[:cut])
            await writer.drain()
            await asyncio.sleep(0)  # a turn of the loop, so that two pieces may arrive
            writer.write((HEAD + b"ok")[cut:])

    client = Http1Transport()
    async with peer(script) as server:
        for cut in range(len(HEAD) + 2):
            got = await client.request("POST", server.url, "/", body=[b"%d" % cut], timeout=10)
            assert got == answer()
        assert server.connection_count == 1
        await client.close()
