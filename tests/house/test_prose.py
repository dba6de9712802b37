"""The prose of the project keeps the rules that a program can check.

A docstring begins with an imperative or a noun, never with a clause ("What …", "Whether …").
Prose in Markdown wraps at 100 columns, except for tables, headings, code and links. Comments,
texts and pages use no word that readers would not search for.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLUMNS_MAX = 100
HEADLESS = re.compile(
    r"(What|Whatever|Who|Whoever|Whom|Whose|Where|Wherever|Which|How|That|Whether|When|Why)\b"
)
SELDOM = re.compile(  # words that are understood slowly; in each line, the field's word for it
    r"""\b(
        anew                                            # again
        | befell | befall(s|en|ing)?                    # happened to
        | lest                                          # so that … not
        | who(ever|mever|soever)                        # the actor
        | in\ vain                                      # without success
        | (come|comes|came|coming)\ again               # is redelivered
        | (is|are|was|were|be|been)\ told(?!\ to\b)     # receives
        | (is|are|was|were)\ to\ be                     # must be
        | (is|are|was|were)\ good\ for                  # is valid for
        | see(s|ing)?\ to\ it                           # ensures
        | mend(s|ing)?                                  # fixes
    )\b""",
    re.IGNORECASE | re.VERBOSE,
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


def prose_of(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield each piece of prose with its first line: comments and strings of Python, else all."""
    if not name.endswith(".py"):
        yield 1, text
        return
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield token.start[0], token.string


def seldom_words(name: str, text: str) -> Iterator[str]:
    for first_line, prose in prose_of(name, text):
        unwrapped = re.sub(r"\n[ >*]*", "\n", prose)  # a phrase may go over a line's end
        for found in SELDOM.finditer(unwrapped.replace("\n", " ")):
            line = first_line + unwrapped.count("\n", 0, found.start())
            yield f"{line}: {found[0]}"


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


HELD = [  # tests of chaos judge what a client was told, and this module has the words
    name
    for name in kept("*.py") + kept("*.md")
    if not is_under(name, "tests/house/test_prose.py", "tests/chaos")
]


@pytest.mark.parametrize("name", kept("*.py"))
def test_no_docstring_begins_with_a_headless_clause(name: str) -> None:
    assert list(headless_docstrings((ROOT / name).read_text())) == []


@pytest.mark.parametrize("name", kept("*.md"))
def test_prose_wraps_at_a_hundred_columns(name: str) -> None:
    assert list(long_lines((ROOT / name).read_text())) == []


@pytest.mark.parametrize("name", HELD)
def test_prose_uses_the_fields_words(name: str) -> None:
    assert list(seldom_words(name, (ROOT / name).read_text())) == []


def test_a_headless_docstring_is_found() -> None:
    source = 'def f():\n    """What is left."""\n\nclass A:\n    """Whatever."""\n\nx = "What"\n'
    assert list(headless_docstrings(source)) == ["What is left.", "Whatever."]


def test_seldom_words_are_found_in_prose_alone_and_over_the_end_of_a_line() -> None:
    code = 'told = is_told = 1  # read anew\n\n"""It comes\n  again."""\nx = f"{told} is told"\n'

    assert list(seldom_words("a.py", code)) == ["1: anew", "3: comes again", "5: is told"]
    assert list(seldom_words("a.md", "It is told to stop.\nWhoever\nwaits\n")) == ["2: Whoever"]


def test_only_long_prose_is_found() -> None:
    words = "word " * 30
    text = f"{words}\n| {words}|\n# {words}\n```\n{words}\n```\n{'x' * 120}\n- {words}\n中{words}\n"
    assert list(long_lines(text)) == [1, 8]
