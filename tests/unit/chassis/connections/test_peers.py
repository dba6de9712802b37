"""The client's address by the word of a proxy."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest

from eruca_chassis.connections.peers import HEAD_SIZE, Peer, forwarded_peer, peer_of, rest_size

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def head(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + struct.pack("!BBH", 0x20 | command, family, len(rest)) + rest


def addresses(source: str, port: int) -> bytes:
    packed = ip_address(source).packed
    return packed + packed + struct.pack("!HH", port, 443)


@pytest.mark.parametrize(
    ("data", "peer"),
    [
        (head(1, 0x11, addresses("192.0.2.7", 4711)), ("192.0.2.7", 4711)),
        (head(1, 0x21, addresses("2001:db8::7", 1)), ("2001:db8::7", 1)),
        (head(1, 0x11, addresses("192.0.2.7", 9) + b"\x04\x00\x01x"), ("192.0.2.7", 9)),
        (head(0, 0x00, b""), None),  # a health check of the proxy
        (head(1, 0x31, b"\0" * 216), None),  # from another Unix socket
    ],
)
def test_a_proxy_head_names_the_client(data: bytes, peer: Peer | None) -> None:
    assert rest_size(data[:HEAD_SIZE]) == len(data) - HEAD_SIZE
    assert peer_of(data[:HEAD_SIZE], data[HEAD_SIZE:]) == peer


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 1.2.3.4 5.6.7.8",  # version 1
        b"GET / HTTP/1.1\r\n",
        SIGNATURE + b"\x11\x11\x00\x0c",  # version 1 in the form of version 2
        SIGNATURE + b"\x21\x11\xff\xff",  # endless
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="PROXY protocol head"):
        rest_size(data[:HEAD_SIZE])


def test_a_head_that_is_too_short_or_unknown_is_refused() -> None:
    for data in (head(1, 0x21, b"\0" * 12), head(7, 0x11, b"\0" * 12)):
        with pytest.raises(ValueError, match="PROXY protocol head"):
            peer_of(data[:HEAD_SIZE], data[HEAD_SIZE:])


@pytest.mark.parametrize(
    ("values", "peer"),
    [
        ([b"for=192.0.2.43;proto=https"], ("192.0.2.43", 0)),
        ([b'for="[2001:db8:cafe::17]:4711"'], ("2001:db8:cafe::17", 4711)),
        ([b'For="192.0.2.43:47011"'], ("192.0.2.43", 47011)),
        ([b'for="2001:db8::1";proto=https'], ("2001:db8::1", 0)),
        ([b"for=10.0.0.1, for=192.0.2.9"], ("192.0.2.9", 0)),
        ([b"for=10.0.0.1", b"for=192.0.2.9"], ("192.0.2.9", 0)),
        ([b"for=192.0.2.9, for=unknown"], None),
        ([b"for=_hidden"], None),
        ([b"by=10.0.0.1"], None),
        ([], None),
    ],
)
def test_the_last_address_of_forwarded_counts(values: list[bytes], peer: Peer | None) -> None:
    assert forwarded_peer(values) == peer
