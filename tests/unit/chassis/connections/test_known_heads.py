"""Known heads: only heads that always mean the same and may repeat are remembered."""

from __future__ import annotations

import pytest

from eruca_chassis.connections import known_heads
from eruca_chassis.connections.exchange import Exchange, Found, RequestHead
from eruca_chassis.connections.hot import HotRoute
from eruca_chassis.connections.known_heads import KnownHeads


def answer(_exchange: Exchange) -> None:
    pass


FOUND = Found(HotRoute("POST", "/v1/say", answer), {})
HEAD = b"POST /v1/say?x=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
HEADERS = {b"host": b"x", b"content-length": b"5"}


def test_a_head_is_found_by_its_bytes() -> None:
    heads = KnownHeads()
    request = RequestHead(FOUND, "POST", b"/v1/say?x=1", HEADERS)
    heads.learn(HEAD, request)

    assert heads.find(HEAD) is request
    assert heads.find(HEAD.replace(b"5", b"6")) is None
    assert len(heads) == 1


@pytest.mark.parametrize(
    ("head", "headers"),
    [
        pytest.param(HEAD.replace(b": 5", b": 0"), HEADERS | {b"content-length": b"0"}, id="none"),
        pytest.param(
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            {b"transfer-encoding": b"chunked"},
            id="chunked",
        ),
        pytest.param(b"\r\n" + HEAD, HEADERS, id="an empty line in front"),
        pytest.param(b"POST / HTTP/1.1\n\n" + HEAD, HEADERS, id="two heads"),
        pytest.param(HEAD.replace(b"Host: x", b"Host:\r\n x"), HEADERS, id="a folded line"),
        pytest.param(
            HEAD.replace(b"Host: x", b"A: 1\r\nA: 2\r\nHost: x"),
            HEADERS | {b"a": b"1,2"},
            id="one name twice",
        ),
        pytest.param(HEAD.replace(b"Host: x", b"Host: " + b"x" * 1_024), HEADERS, id="too large"),
        pytest.param(
            HEAD.replace(b"Host: x", b"Host: x\r\nIdempotency-Key: 17"),
            HEADERS | {b"idempotency-key": b"17"},
            id="under a key of its own",
        ),
        pytest.param(
            HEAD.replace(b"Host: x", b"Host: x\r\nX-Request-Id: 17"),
            HEADERS | {b"x-request-id": b"17"},
            id="with an id of its own",
        ),
        pytest.param(
            HEAD.replace(b"Host: x", b"Host: x\r\nTraceparent: 17"),
            HEADERS | {b"traceparent": b"17"},
            id="of a trace",
        ),
        pytest.param(HEAD.replace(b": 5", b": 5x"), HEADERS | {b"content-length": b"5x"}, id="5x"),
    ],
)
def test_other_heads_are_not_remembered(head: bytes, headers: dict[bytes, bytes]) -> None:
    heads = KnownHeads()
    heads.learn(head, RequestHead(FOUND, "POST", b"/v1/say", headers))

    assert len(heads) == 0


def test_there_are_never_more_than_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_heads, "KNOWN_HEADS_MAX", 3)
    heads = KnownHeads()

    for size in range(1, 6):
        sized = str(size).encode()
        head = HEAD.replace(b": 5", b": " + sized)
        headers = HEADERS | {b"content-length": sized}
        heads.learn(head, RequestHead(FOUND, "POST", b"/v1/say", headers))
        assert len(heads) <= 3
        assert heads.find(head) is not None
