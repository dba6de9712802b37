"""httpx makes a TLS context for every client that it is not given a transport for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for folder in ("sdk/src", "services", "deploy/src", "testing/src")
    for path in (ROOT / folder).rglob("*.py")
    if "httpx" in path.read_text()
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_client_of_httpx_loads_certificates_in_its_constructor(path: Path) -> None:
    loading = [
        call.lineno
        for call in _calls(ast.parse(path.read_text()))
        if call.func.attr in ("AsyncClient", "Client")  # type: ignore[attr-defined]
        and not any(keyword.arg == "transport" for keyword in call.keywords)
    ]

    assert not loading, "give it transport=Carrier(), of eruca.aio.http.httpx_carrier"


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of what is httpx's by its name."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "httpx"
        ):
            yield node
