"""The prose of the project keeps the rules that a program can check.

A docstring begins with an imperative or a noun, never with a clause ("What …", "Whether …").
Prose in Markdown wraps at 100 columns, except for tables, headings, code and links. Services and
documents use no word that readers would not search for.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLUMNS_MAX = 100
HEADLESS = re.compile(
    r"(What|Whatever|Who|Whoever|Whom|Whose|Where|Wherever|Which|How|That|Whether|When|Why)\b"
)
SELDOM = re.compile(  # words that are understood slowly, and that nobody searches for
    r"\b(anew|befall(s|en)?|befell|lest|whoever|in vain|is good for)\b", re.IGNORECASE
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NO_PROSE = re.compile(r"\s*(\||#|<|\[[^\]]+\]:|!\[)")  # tables, headings, HTML, links, pictures
_FENCE = re.compile(r"\s*(```|~~~)")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")  # it has no spaces at which a line could be broken


def kept(pattern: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", pattern], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return listed.splitlines()


def is_under(name: str, *places: str) -> bool:
    return any(name == place or name.startswith(f"{place}/") for place in places)


def headless_docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        docstring = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
        if docstring is not None and HEADLESS.match(docstring):
            yield docstring.partition("\n")[0]


def long_lines(text: str) -> Iterator[int]:
    """Yield the numbers of lines of prose that are too long and could be broken."""
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if _FENCE.match(line):
            is_code = not is_code
        could_be_broken = " " in line.lstrip(" -*>")[:COLUMNS_MAX]
        is_prose = not (is_code or _NO_PROSE.match(line) or line.startswith("    "))
        if _CHINESE.search(line):
            continue
        if is_prose and len(line) > COLUMNS_MAX and could_be_broken:
            yield number


PLAIN = [
    *kept("*.md"),
    *(name for name in kept("*.py") if is_under(name, "services", "docs")),
]


@pytest.mark.parametrize("name", kept("*.py"))
def test_no_docstring_begins_with_a_headless_clause(name: str) -> None:
    assert list(headless_docstrings((ROOT / name).read_text())) == []


@pytest.mark.parametrize("name", kept("*.md"))
def test_prose_wraps_at_a_hundred_columns(name: str) -> None:
    assert list(long_lines((ROOT / name).read_text())) == []


def test_documents_and_services_use_the_fields_words() -> None:
    found = [
        f"{name}: {match[0]}"
        for name in PLAIN
        for match in SELDOM.finditer((ROOT / name).read_text())
    ]
    assert found == []


def test_a_headless_docstring_is_found() -> None:
    source = 'def f():\n    """What is left."""\n\nclass A:\n    """Whatever."""\n\nx = "What"\n'
    assert list(headless_docstrings(source)) == ["What is left.", "Whatever."]


def test_only_long_prose_is_found() -> None:
    words = "word " * 30
    text = f"{words}\n| {words}|\n# {words}\n```\n{words}\n```\n{'x' * 120}\n- {words}\n中{words}\n"
    assert list(long_lines(text)) == [1, 8]
