"""The SDK's unit tests need nothing but the SDK, because they also run where nothing else is.

``make floors`` runs them with the SDK's lowest dependencies. It takes minutes; this takes none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SUPPORT = TESTS / "support"
SDK_TESTS = sorted((TESTS / "unit/sdk").rglob("*.py"))
OURS = "eruca_", "pyspark_eruca", "demo"  # packages of the workspace that are not the SDK


@pytest.mark.parametrize(
    "path", SDK_TESTS, ids=[str(path.relative_to(TESTS)) for path in SDK_TESTS]
)
def test_a_unit_test_of_the_sdk_imports_no_other_package_of_ours(path: Path) -> None:
    assert [name for name in reached(path, set()) if name.startswith(OURS)] == []


def test_what_a_helper_imports_counts(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text("from support.in_process_cluster import in_process_cluster\n")

    assert "eruca_broker.app" in set(reached(path, set()))


def reached(path: Path, seen: set[Path]) -> Iterator[str]:
    """Yield the modules that a file imports, and those that its helpers import."""
    seen.add(path)
    for name in imported(path):
        yield name
        helper = TESTS.joinpath(*name.split(".")).with_suffix(".py")
        if helper.is_relative_to(SUPPORT) and helper.exists() and helper not in seen:
            yield from reached(helper, seen)


@cache
def imported(path: Path) -> list[str]:
    """Return the modules that a file itself imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
    return names
