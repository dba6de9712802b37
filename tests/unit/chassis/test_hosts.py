"""Hosts: addresses, localhost and a service's own names are taken, in whatever form they come."""

from __future__ import annotations

import pytest

from eruca.contract.errors import RequestError, UnknownHostError
from eruca_chassis.admission import hosts
from eruca_chassis.admission.hosts import AllowedHosts, hosts_of

NAMES = ("broker-a", "Events.example.com", "*.inside.example.com.")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:10911",
        "10.0.0.7:",
        "0.0.0.0:1",
        "[::1]",
        "[::1]:65535",
        "[::FFFF:127.0.0.1]:80",
        "[fe80::1%25eth0]:80",
        "localhost",
        "LOCALHOST:10911",
        "localhost.",
        "here.localhost:80",
        "broker-a:10911",
        "Broker-A.",
        "events.example.com",
        "EVENTS.EXAMPLE.COM.:443",
        "a.inside.example.com",
        "a.b.Inside.example.com:80",
    ],
)
def test_an_address_localhost_and_own_names_are_allowed(host: str) -> None:
    allowed = AllowedHosts(NAMES)

    for _ in range(2):  # the second time it is known
        allowed.check(host.encode(), "1.1")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:10911",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evillocalhost",
        "evil.example.com",
        "xevents.example.com",
        "inside.example.com",
        "x-inside.example.com",
        "broker-a.evil.example",
        "broker-a..",
        "broker-b",
        # What a resolver or a browser takes for an address, and is none as it is written.
        "127.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "127.0.0.256",
        "%6c%6fcalhost",
        "localhost%00",
    ],
)
def test_any_other_host_is_refused_with_the_setting_that_would_allow_it(host: str) -> None:
    allowed = AllowedHosts(NAMES, "ERUCA_THING_ALLOWED_HOSTS")

    for _ in range(2):
        with pytest.raises(UnknownHostError) as refused:
            allowed.check(host.encode(), "1.1")

        assert refused.value.status == 421
        assert "ERUCA_THING_ALLOWED_HOSTS" in str(refused.value)


@pytest.mark.parametrize("http_version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    "host",
    [
        b"",
        b":10911",
        b"a b/c",
        b"localhost/v1",
        b"localhost,localhost",
        b"localhost, evil.example",
        b"user@localhost",
        b"user:password@localhost",
        b"http://localhost",
        b"localhost:http",
        b"localhost:-1",
        b"localhost:65536",
        b"localhost:123456",
        b"localhost:80:80",
        b"localhost?",
        b"localhost#",
        b"local\thost",
        b"local\\host",
        b"::1",
        b"[::1",
        b"[::zz]",
        b"[1:2]",
        b"[::1]x",
        b"[127.0.0.1]",
        b"[v1.a]",
        b"%zz",
        b"caf\xc3\xa9",
    ],
)
def test_what_is_no_host_is_a_bad_request(host: bytes, http_version: str) -> None:
    with pytest.raises(RequestError) as refused:
        AllowedHosts(NAMES).check(host, http_version)

    assert refused.value.status == 400
    assert refused.value.fix


def test_the_error_for_a_host_has_no_key() -> None:
    with pytest.raises(RequestError) as refused:
        AllowedHosts().check(b"x:eruca_id_secret@localhost", "1.1")
    assert "eruca_id" not in str(refused.value)
    assert "'localhost'" in str(refused.value)


def test_only_http_1_0_may_leave_the_host_out() -> None:
    AllowedHosts().check(None, "1.0")
    with pytest.raises(RequestError):
        AllowedHosts().check(None, "1.1")


def test_a_client_cannot_fill_the_memory_with_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_KNOWN_MAX", 10)
    allowed = AllowedHosts()

    for port in range(100):
        allowed.check(b"localhost:%d" % port, "1.1")

    assert len(allowed._known) <= 10


def test_several_names_are_separated_by_semicolons() -> None:
    assert hosts_of(" Broker-A ;*.example.com; ") == ("broker-a", "*.example.com")
    assert hosts_of("") == ()


@pytest.mark.parametrize(
    "text", ["*", "http://broker-a", "broker-a:10911", "a b", "a.*.b", "a,b", "*.*", "a/b", "."]
)
def test_what_is_no_name_is_no_setting(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAME or"):
        hosts_of(text)
