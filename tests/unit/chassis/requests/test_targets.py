"""Targets: a path means one thing, or is refused with what to write instead."""

from __future__ import annotations

import pytest

from eruca.contract.errors import RequestError
from eruca_chassis.requests.targets import (
    check_path,
    check_query,
    escaped_slash,
    has_escaped_slash,
    host_of_target,
)


@pytest.mark.parametrize(
    ("target", "host"),
    [
        (b"/v1/topics?limit=1", None),
        (b"//evil/v1", None),
        (b"http://localhost/v1", b"localhost"),
        (b"HTTP://localhost:1", b"localhost:1"),
        (b"http://localhost?x=1", b"localhost"),
        (b"http://u@localhost/", b"u@localhost"),
        (b"http:///v1", b""),
    ],
)
def test_the_host_in_a_target_is_found(target: bytes, host: bytes | None) -> None:
    assert host_of_target("GET", target) == host


@pytest.mark.parametrize("target", [b"*", b"localhost:1", b"v1", b"https://localhost/", b"/v1#a"])
def test_another_target_is_refused(target: bytes) -> None:
    with pytest.raises(RequestError):
        host_of_target("GET", target)
    if target == b"*":
        assert host_of_target("OPTIONS", target) is None


@pytest.mark.parametrize(
    "text", [b"", b"a", b"%41", b"%e2%82%AC", b"%25zz", b"a%20b", b"%25RETRY%25g"]
)
def test_what_is_escaped_rightly_is_taken(text: bytes) -> None:
    check_path(b"/v1/" + text)
    check_query(b"name=" + text)


@pytest.mark.parametrize("text", [b"%", b"%z", b"%zz", b"%4", b"a%4/b", b"%-1", b"%ff", b"%c3/%a9"])
def test_what_is_not_escaped_rightly_is_a_bad_request(text: bytes) -> None:
    for check in (check_path, check_query):
        with pytest.raises(RequestError) as refused:
            check(text)
        assert refused.value.status == 400
        assert refused.value.fix


def test_an_escaped_slash_is_told_apart_from_a_slash() -> None:
    for path in (b"/v1/topics/a%2Fb", b"/v1/topics/a%2fb/queues"):
        assert has_escaped_slash(path)
        refused = escaped_slash(path)
        assert refused.status == 422
        assert "a%2" in refused.detail
        assert refused.fix
    for path in (b"/v1/topics/a/b", b"/v1/topics/%252F", b"/v1/topics/%2"):
        assert not has_escaped_slash(path)
