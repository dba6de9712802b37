"""No test sleeps in the hope that something has happened by then; each sleep says what for.

Waiting for a state is ``support/waiting.py``'s. What is left is time that is itself under test, the
pace of a load, a random moment: a comment on the line says which.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Final

TESTS: Final = Path(__file__).parent.parent
REASON: Final = re.compile(r"#(?! noqa: [A-Z0-9, ]+$).*\w")


def test_each_sleep_says_what_for() -> None:
    silent = [
        f"{path.relative_to(TESTS)}:{number}"
        for path in sorted(TESTS.rglob("*.py"))
        for number in silent_sleeps(path.read_text())
    ]
    assert not silent


def test_what_is_seen_as_a_silent_sleep() -> None:
    source = (
        "await asyncio.sleep(0)\n"
        "time.sleep(1)\n"
        "sleep(pause)  # noqa: ASYNC251\n"
        "await anyio.sleep(0.1)  # noqa: ASYNC110  (why)\n"
        "time.sleep(2)  # the slowness under test\n"
    )
    assert list(silent_sleeps(f"async def test():\n{indent(source, '  ')}")) == [3, 4]


def silent_sleeps(source: str) -> Iterator[int]:
    """Return the lines that sleep longer than a turn of the event loop, and do not say why."""
    if "sleep" not in source:
        return
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        is_turn = name == "sleep" and ast.unparse(node.args[0]) == "0"
        if name == "sleep" and not is_turn and not REASON.search(lines[node.lineno - 1]):
            yield node.lineno
