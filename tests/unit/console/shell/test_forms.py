"""Targets that a form may lead to."""

from __future__ import annotations

import pytest

from eruca_console.shell.forms import local_path


@pytest.mark.parametrize("path", ["/topics", "/topics/a%20b?q=1", "/"])
def test_a_path_of_the_console_is_kept(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "elsewhere",
    ["", "topics", "https://evil.example", "//evil.example", "/\\evil.example", "/a\r\nb: c"],
)
def test_another_place_is_the_overview(elsewhere: str) -> None:
    assert local_path(elsewhere) == "/overview"
