"""Texts to copy."""

from __future__ import annotations

import ast
import shlex

from eruca_console.core import recipes


def test_curl_asks_with_the_key_of_the_environment_if_the_caller_has_one() -> None:
    url = "http://127.0.0.1:10911/v1/groups?a=1&b=it's"

    assert shlex.split(recipes.curl(url, has_key=False)) == ["curl", url]
    assert recipes.curl(url, has_key=True).startswith('curl -u ":$ERUCA_API_KEY" ')


def test_the_program_is_python_and_the_command_is_quoted() -> None:
    program = recipes.python("http://a;http://b", "print(client.admin.list_topics())")

    ast.parse(program)
    assert "eruca.Client('http://a;http://b')" in program
    assert shlex.split(recipes.cli("group", "lag", "it's %DLQ%")) == [
        "eruca",
        "group",
        "lag",
        "it's %DLQ%",
    ]
