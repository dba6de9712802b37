"""Files and modules that docs and docstrings name are where they say."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "sdk",
    "services",
    "spark",
    "deploy",
    "testing",
    "demo",
    "bench",
    "interop",
    "clients",
    "examples",
    "docs",
)
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
DOCS = [
    *sorted(ROOT.glob("*.md")),
    *(path for folder in (*FOLDERS, "tests") for path in sorted((ROOT / folder).rglob("*.md"))),
]
PATHS = [f"/{path.relative_to(ROOT)}" for path in (*SOURCES, *TESTS)]
PACKAGES = {path.parent.name: path.parent for path in SOURCES if path.parent.parent.name == "src"}
MODULE = re.compile(r":mod:`~?([.\w]+)`")
FILE = re.compile(r"[\w./…-]+/[\w.-]+\.py\b")


def exists(module: str, named_in: Path) -> bool:
    """Tell whether a module of ours is there; those of others are not looked for."""
    first, *further = module.split(".")
    if first:
        place = PACKAGES.get(first)
    else:  # one dot is the package it is named in, each further one the package around that
        place = named_in.parent
        while further[0] == "":
            place = place.parent
            further.pop(0)
    if place is None:
        return True
    place = place.joinpath(*further)
    return place.is_dir() or place.with_suffix(".py").exists()


def test_modules_that_are_named_exist() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in (*SOURCES, *TESTS)
        for module in MODULE.findall(path.read_text())
        if not exists(module, path)
    ]

    assert missing == []


def test_files_that_are_named_with_their_folder_exist() -> None:
    """An ellipsis stands for any folders between."""
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*DOCS, *SOURCES)
        for name in FILE.findall(path.read_text())
        if not any(
            fnmatchcase(known, f"*/{name.lstrip('./').replace('…', '*')}") for known in PATHS
        )
    ]

    assert missing == []
