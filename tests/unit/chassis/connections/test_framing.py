"""Framing: pieces end where heads do, and a limit is one, however the bytes arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import (
    ExpectationError,
    HttpVersionError,
    RequestError,
    TransferCodingError,
)
from eruca_chassis.connections.framing import HEAD_SIZE_MAX, Framing, check_framing

HEADS = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /b HTTP/1.1\r\nHost: x\r\nX:\r\n\r\n",
)


@given(st.lists(st.sampled_from(HEADS), min_size=1), st.data())
def test_every_head_ends_a_piece_however_the_bytes_arrive(
    heads: list[bytes], data: st.DataObject
) -> None:
    framing, stream = Framing(), b"".join(heads)
    head_ends = [sum(map(len, heads[: n + 1])) for n in range(len(heads))]
    piece_ends, position = set(), 0
    while position < len(stream):
        size = data.draw(st.integers(1, len(stream) - position))
        arrived, start = stream[position : position + size], 0
        while start < size:
            start = framing.next_end(arrived, start)
            piece_ends.add(position + start)
            if position + start in head_ends:
                framing.head_ended(0)
                framing.request_ended()
        position += size

    assert piece_ends.issuperset(head_ends)


@given(st.lists(st.integers(1, 40_000), min_size=1, max_size=8))
def test_a_head_without_end_gets_its_limit_and_not_a_byte_more(sizes: list[int]) -> None:
    framing, taken = Framing(), 0
    for size in sizes * 10:
        end = framing.next_end(bytes(size), 0)
        taken += end
        if end < size:
            break

    assert taken == min(HEAD_SIZE_MAX, sum(sizes) * 10)


def test_a_body_of_a_known_size_ends_its_piece_and_does_not_count() -> None:
    framing = Framing()
    framing.head_ended(3 * HEAD_SIZE_MAX)
    body = b"\r\n\r\n" * HEAD_SIZE_MAX

    assert framing.next_end(body, 0) == 3 * HEAD_SIZE_MAX

    framing.request_ended()
    assert framing.next_end(HEADS[0] + HEADS[1], 0) == len(HEADS[0])


@pytest.mark.parametrize("value", [b"chunked", b"Chunked", b" chunked ", b", chunked"])
def test_chunks_are_undone(value: bytes) -> None:
    check_framing("1.1", {b"transfer-encoding": value})


@pytest.mark.parametrize("value", [b"gzip, chunked", b"GZIP,chunked", b"identity, chunked"])
def test_other_codings_are_not_implemented(value: bytes) -> None:
    with pytest.raises(TransferCodingError) as refused:
        check_framing("1.1", {b"transfer-encoding": value})
    assert refused.value.status == 501


@pytest.mark.parametrize(
    "value",
    [b"", b"gzip", b"identity", b"chunked, gzip", b"chunked, chunked", b"xchunked", b"chunked;q=1"],
)
def test_a_body_whose_end_is_unknown_is_a_bad_request(value: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        check_framing("1.1", {b"transfer-encoding": value})
    assert refused.value.status == 400


def test_http_1_0_has_no_codings_and_other_versions_are_not_spoken() -> None:
    check_framing("1.0", {})
    with pytest.raises(RequestError, match=r"HTTP/1\.0 has no"):
        check_framing("1.0", {b"transfer-encoding": b"chunked"})
    for version in ("0.9", "2.0", "3.0"):
        with pytest.raises(HttpVersionError):
            check_framing(version, {})


@pytest.mark.parametrize(
    "value", [b"100-continue", b"100-Continue", b" 100-continue,, 100-continue ", b""]
)
def test_a_sender_may_wait_to_be_told_to_go_on(value: bytes) -> None:
    check_framing("1.1", {b"expect": value})


@pytest.mark.parametrize("value", [b"more", b"100-continue, more", b"100-continue;q=1"])
def test_a_sender_that_waits_for_anything_else_is_refused(value: bytes) -> None:
    with pytest.raises(ExpectationError) as refused:
        check_framing("1.1", {b"expect": value})
    assert refused.value.status == 417
    assert value.decode() in refused.value.detail


def test_what_http_1_0_expects_is_ignored() -> None:
    check_framing("1.0", {b"expect": b"more"})
