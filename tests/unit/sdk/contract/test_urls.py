"""URLs of servers: which could be connected to."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.urls import URL_PATTERN, checked_url

UNSOUND = [
    "http://h:99999",
    "http://h:65536",
    "http://h:0",
    "http://h:0x",
    "http://h:",
    "http://h:٣",
    "http://[::1",
    "http://[::1]1",
    "http://[1::2::3]",
    "http://[127.0.0.1]:1",
    "http://::1",
    "http://a..b",
    "http://.a",
    "http://" + "a" * 64,
    "http://" + ".".join(["a" * 63] * 4),
    "http://256.0.0.1:1",
    "http://127.1",
    "http://user@h",
    "http://h/path",
    "http://h/",
    "http://h\n",
    "http://b\0",
    "http://",
    "ftp://h",
    "h:1",
]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:10911",
        "http://10.0.0.1",
        "http://[::1]:10911",
        "http://[2001:DB8::1]",
        "http://[::ffff:10.0.0.1]:1",
        "https://broker-a.example.com:65535",
        "https://broker-a.example.com.:443",
        "http://broker_a:1",
        "http://localhost",
        "http://xn--bcher-kva.example",
        "http://" + ".".join(["a" * 62] * 4),
    ],
)
def test_what_could_be_connected_to_is_taken(url: str) -> None:
    assert checked_url(url) == url
    assert re.search(URL_PATTERN, url)


@pytest.mark.parametrize("url", UNSOUND)
def test_what_nobody_could_connect_to_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected|at most"):
        checked_url(url)


@given(st.ip_addresses(), st.none() | st.integers(1, 65_535))
def test_every_address_and_port_is_taken(address: object, port: int | None) -> None:
    host = f"[{address}]" if ":" in str(address) else str(address)

    assert checked_url(f"http://{host}" if port is None else f"http://{host}:{port}")
