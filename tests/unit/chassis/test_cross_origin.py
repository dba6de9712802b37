"""Origins are written as browsers write them, and nothing else passes for one."""

from __future__ import annotations

import pytest

from eruca_chassis.admission.cross_origin import origin_of, origins_of


@pytest.mark.parametrize(
    ("written", "origin"),
    [
        ("http://127.0.0.1:10931", "http://127.0.0.1:10931"),
        ("http://LocalHost:10931/", "http://localhost:10931"),
        ("http://docs.example:80", "http://docs.example"),
        ("https://docs.example:443", "https://docs.example"),
        ("https://docs.example:80", "https://docs.example:80"),
        ("http://[::1]:09876", "http://[::1]:9876"),
    ],
)
def test_an_origin_is_written_as_browsers_write_it(written: str, origin: str) -> None:
    assert origin_of(written) == origin


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "null",
        "127.0.0.1:10931",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:999999",
        "http://host/path",
        "http://host?query",
        "http://user@host",
        "http://host script-src",
        "http://host;script-src *",
        "http://host\n",
    ],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected http"):
        origin_of(text)


def test_several_origins_are_separated_by_semicolons() -> None:
    assert origins_of(" http://a:1 ;http://b:2/; ") == {"http://a:1", "http://b:2"}
    assert origins_of("") == frozenset()
