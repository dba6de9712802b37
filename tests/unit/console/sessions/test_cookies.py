"""The console's cookies."""

from __future__ import annotations

import pytest

from eruca_console.sessions.cookies import SessionCookie, cookies_of, is_this_machine


def test_over_https_the_cookie_belongs_to_the_host_alone() -> None:
    cookie = SessionCookie(is_secure=True, port=10941)

    assert cookie.set_to("abc") == (
        "__Host-eruca-console=abc; Path=/; HttpOnly; SameSite=Strict; Secure"
    )
    assert "Max-Age=0" in cookie.removed()
    assert "; Secure" in cookie.removed()


def test_over_plain_http_its_name_has_the_port() -> None:
    """A browser sends a cookie to every port of a host, and takes no __Host- without HTTPS."""
    cookie = SessionCookie(is_secure=False, port=10941)

    assert cookie.set_to("abc") == "eruca-console-10941=abc; Path=/; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("localhost", True),
        ("localhost:10941", True),
        ("console.localhost", True),
        ("127.0.0.1:10941", True),
        ("127.8.9.1", True),
        ("[::1]:10941", True),
        ("10.0.0.1:10941", False),
        ("console.example", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_a_key_over_plain_http_is_taken_from_this_machine_only(host: str, is_here: bool) -> None:
    assert is_this_machine(host) is is_here
    assert SessionCookie(is_secure=False, port=1).may_carry_keys(host) is is_here
    assert SessionCookie(is_secure=True, port=1).may_carry_keys(host) is True


def test_cookies_are_read() -> None:
    assert cookies_of({"cookie": "a=1; b=2"}) == {"a": "1", "b": "2"}
    assert cookies_of({}) == {}


@pytest.mark.parametrize(
    "other", ['seen={"a": 1}', "a[b]=1", "two words=1", 'open="a', "\xe9=1", "flag", "\x00=\x01;;"]
)
def test_a_cookie_of_another_program_on_this_host_hides_none(other: str) -> None:
    assert cookies_of({"cookie": f"{other}; ours=1"})["ours"] == "1"
