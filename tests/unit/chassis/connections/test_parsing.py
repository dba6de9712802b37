"""Requests that the parser does not take, and their answers."""

from __future__ import annotations

from collections.abc import Sequence

import httptools
import pytest

from eruca.contract.errors import RequestError
from eruca_chassis.connections.parsing import new_parser, unreadable


def refusal_of(pieces: Sequence[bytes]) -> RequestError:
    """Return the answer to a request that comes in *pieces*, of which the last is refused."""
    parser = new_parser(object())
    *before, last = pieces
    for piece in before:
        parser.feed_data(piece)
    with pytest.raises(httptools.HttpParserError) as failed:
        parser.feed_data(last)
    return unreadable(failed.value, last, is_first=not before)


@pytest.mark.parametrize(
    ("pieces", "detail"),
    [
        ([b"FROB /healthz HTTP/1.1\r\n"], "the method FROB is unknown"),
        ([b"\r\nget /healthz HTTP/1.1\r\n"], "the method get is unknown"),
        ([b"GETS /healthz HTTP/1.1\r\n"], "the method GETS is unknown"),
        ([b"X" * 200 + b" / HTTP/1.1\r\n"], f"the method {'X' * 79}… is unknown"),
        ([b"FR"], "the request's method is unknown"),
        ([b"GE", b"M /healthz HTTP/1.1\r\n"], "the request's method is unknown"),
    ],
)
def test_a_method_that_is_unknown_is_not_implemented(pieces: list[bytes], detail: str) -> None:
    refusal = refusal_of(pieces)

    assert (refusal.status, refusal.detail) == (501, detail)


@pytest.mark.parametrize(
    "line", [b"G@T / HTTP/1.1", b"FROB", b"GET@ / HTTP/1.1", b"F\tB /", b"\x16\x03\x01"]
)
def test_what_is_no_method_at_all_is_a_bad_request(line: bytes) -> None:
    assert refusal_of([line + b"\r\n\r\n"]).status == 400
