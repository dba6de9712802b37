"""The table of scenarios names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROWS = [
    line.strip("|").split("|")
    for line in (TESTS / "SCENARIOS.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| Scenario ")
]
NAMED = sorted({named for row in ROWS for named in re.findall(r"`(\S+\.py)::(\w+)`", row[1])})


@cache
def functions_of(path: str) -> frozenset[str]:
    folder, _, rest = path.partition("/")
    file = TESTS / ("contract/sdk" if folder == "sdk" else folder) / rest
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_the_table_is_read() -> None:
    assert len(ROWS) > 50
    assert len(NAMED) > 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:60])
def test_each_scenario_is_said_to_be_covered_or_why_not(row: list[str]) -> None:
    assert len(row) == 2
    assert row[1].strip()


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_each_test_named_exists(path: str, name: str) -> None:
    assert name in functions_of(path)
