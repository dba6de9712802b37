"""The addresses on which a service listens, and the one that it advertises."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from eruca_chassis.sockets import listening
from eruca_chassis.sockets.listening import (
    Address,
    addresses_of,
    bare_host,
    listen,
    reached_at,
    url_of,
)

BACKLOG = 8


@contextmanager
def listening_on(host: str, port: int = 0) -> Iterator[list[Address]]:
    listeners = listen(host, port, BACKLOG)
    try:
        yield addresses_of(listeners)
    finally:
        for listener in listeners:
            listener.close()


def resolving(monkeypatch: pytest.MonkeyPatch, *ips: str) -> None:
    """Let every name have these addresses: which those of real names are, is the machine's."""
    real = socket.getaddrinfo

    def resolve(host: str, port: int | None, **more: int) -> list[object]:
        names = ips if host.replace("-", "").isalpha() else (host,)
        return [entry for ip in names for entry in real(ip, port, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def is_reached(ip: str, port: int) -> bool:
    with closing(socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET)) as client:
        return client.connect_ex((ip, port)) == 0


def test_every_address_means_those_of_both_families() -> None:
    with listening_on("::") as addresses:
        [port] = {port for _, port in addresses}
        assert {ip for ip, _ in addresses} == {"::", "0.0.0.0"}
        assert is_reached("127.0.0.1", port)
        assert is_reached("127.0.0.2", port)
        assert is_reached("::1", port)


def test_every_ipv4_address_means_no_other() -> None:
    with listening_on("0.0.0.0") as [(_, port)]:
        assert is_reached("127.0.0.2", port)
        assert not is_reached("::1", port)


@pytest.mark.parametrize(
    ("text", "host"),
    [("[::1]", "::1"), ("[::]", "::"), ("::1", "::1"), ("127.0.0.1", "127.0.0.1")]
    + [(text, text) for text in ("[127.0.0.1]", "[::1", "::1]", "[]", "[localhost]")],
)
def test_an_ipv6_address_may_stand_in_brackets(text: str, host: str) -> None:
    assert bare_host(text) == host


def test_a_name_means_all_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.0.3", "::1", "127.0.0.2", "127.0.0.3")

    with listening_on("a-name") as addresses:
        [port] = {port for _, port in addresses}
        assert [ip for ip, _ in addresses] == ["127.0.0.3", "::1", "127.0.0.2"]
        assert all(is_reached(ip, port) for ip, _ in addresses)
        assert not is_reached("127.0.0.1", port)


def test_addresses_that_this_machine_does_not_have_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolving(monkeypatch, "203.0.113.1", "127.0.0.2")

    with listening_on("a-name") as [(ip, _)]:
        assert ip == "127.0.0.2"


def test_an_address_that_this_machine_does_not_have_is_an_error() -> None:
    with pytest.raises(OSError, match="Cannot assign") as raised:
        listen("203.0.113.1", 0, BACKLOG)

    assert raised.value.errno == errno.EADDRNOTAVAIL


def test_a_port_that_is_taken_at_one_address_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.0.2", "127.0.0.3")
    with listening_on("127.0.0.3") as [(_, port)]:
        with pytest.raises(OSError, match="in use"):
            listen("a-name", port, BACKLOG)

        assert not is_reached("127.0.0.2", port)


@pytest.mark.parametrize(
    ("listened", "own", "told"),
    [
        (["127.0.0.1"], ["10.0.0.7"], "http://127.0.0.1:80"),
        (["::1"], ["10.0.0.7"], "http://[::1]:80"),
        (["::1", "127.0.0.1"], [], "http://127.0.0.1:80"),
        (["2001:db8::7", "::1"], [], "http://[2001:db8::7]:80"),
        (["0.0.0.0"], ["10.0.0.7", "2001:db8::7"], "http://10.0.0.7:80"),
        (["0.0.0.0"], ["2001:db8::7"], "http://127.0.0.1:80"),
        (["::"], ["2001:db8::7"], "http://[2001:db8::7]:80"),
        (["::"], ["10.0.0.7"], "http://[::1]:80"),
        (["::", "0.0.0.0"], ["10.0.0.7", "2001:db8::7"], "http://10.0.0.7:80"),
        (["::", "0.0.0.0"], ["2001:db8::7"], "http://[2001:db8::7]:80"),
        (["::", "0.0.0.0"], [], "http://127.0.0.1:80"),
    ],
)
def test_others_are_told_an_address_that_is_listened_on(
    monkeypatch: pytest.MonkeyPatch, listened: Sequence[str], own: list[str], told: str
) -> None:
    monkeypatch.setattr(listening, "_own_addresses", lambda: own)

    assert url_of(reached_at([(ip, 80) for ip in listened]), "http") == told
