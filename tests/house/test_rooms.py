"""The rooms of ARCHITECTURE, the linter's contracts and the packages are the same, row by row."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from grimp import ImportGraph

from support.may_import import DIVIDED, MayImport

ROOT = Path(__file__).parents[2]
LINTER: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]
ROWS: dict[str, dict[str, Any]] = {
    contract["name"]: contract
    for contract in LINTER["contracts"]
    if contract["type"] == MayImport.type_name
}
ROOMS = [room for row in ROWS.values() for room in row["rooms"]]
FREE = {"docs", "tests"}  # no packages; the linter does not see them


def test_the_table_lists_what_the_linter_checks() -> None:
    table = {folder: allowed for folder, allowed in rows_of_the_table() if folder not in FREE}

    assert table == {name: row["may_import"] for name, row in ROWS.items()}


def test_each_room_has_one_row() -> None:
    inside = {
        f"eruca.{path.stem}"
        for path in (ROOT / "sdk/src/eruca").iterdir()
        if (path.is_dir() or path.suffix == ".py") and path.stem not in ("__init__", "__pycache__")
    }

    assert sorted(ROOMS) == sorted({*LINTER["root_packages"], *inside} - {"eruca.py"})
    for folder, row in ROWS.items():
        assert (ROOT / folder).exists(), row


@pytest.mark.parametrize("folder", ROWS)
def test_a_room_imports_what_its_row_lists_and_nothing_else(folder: str) -> None:
    row = ROWS[folder]
    for importer in row["rooms"]:
        for imported in ROOMS:
            allowed = imported in (*row["rooms"], *row["may_import"])

            assert is_kept(row, inside(importer), inside(imported)) == allowed, (importer, imported)


def inside(room: str) -> str:
    """Return a module of *room*, which is not its first."""
    return room if room in DIVIDED else f"{room}.module"


def is_kept(row: dict[str, Any], importer: str, imported: str) -> bool:
    graph = ImportGraph()
    for module in {*ROOMS, importer, imported}:
        graph.add_module(module)
    graph.add_import(
        importer=importer, imported=imported, line_number=1, line_contents=f"import {imported}"
    )
    contract = MayImport(
        row["name"], {"root_packages": LINTER["root_packages"]}, {key: row[key] for key in OPTIONS}
    )
    return contract.check(graph, verbose=False).kept


OPTIONS = ("rooms", "may_import")


def rows_of_the_table() -> list[tuple[str, list[str]]]:
    """Return the folders of ARCHITECTURE's table, and what each may import."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("| May import |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = []
    for line in table.splitlines():
        folder, *_, allowed = (cell.strip() for cell in line.strip("|").split(" | "))
        rows.append((folder.strip("` "), re.findall(r"`([\w.]+)`", allowed)))
    return rows
