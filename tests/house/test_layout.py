"""What the house style promises of every file, and no other tool checks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHASSIS = ROOT / "services/chassis/src/eruca_chassis"
PRODUCT = ("sdk/src", "services", "deploy", "demo", "bench", "interop", "examples")
DOMAIN_WORDS = re.compile(r"topic|broker|consumer|producer|offset|commit[ _]?log", re.IGNORECASE)
CATCHES_ALL = {  # the outermost frames, which log with context and count
    "sdk/src/eruca/aio/check_loop.py",  # around the program's own function
    "sdk/src/eruca/aio/push/calling.py",  # around the program's own functions
    "sdk/src/eruca/core/failure_text.py",  # around the __str__ of the program's own exceptions
    "sdk/src/eruca/aio/push/standby.py",  # a thread's; what it was is told to the event loop
    "services/broker/src/eruca_broker/processors/turns.py",  # whoever waited is told
    "services/chassis/src/eruca_chassis/app.py",
    "services/chassis/src/eruca_chassis/exchange.py",
    "services/chassis/src/eruca_chassis/loops.py",
    "services/query/src/eruca_query/exports/workers/worker.py",  # a step's; the service is told
}


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


PRODUCT_MODULES = [*modules(*PRODUCT)]
ALL_MODULES = [*PRODUCT_MODULES, *modules("tests")]


def test_the_modules_are_found() -> None:
    assert CHASSIS / "app.py" in PRODUCT_MODULES
    assert Path(__file__) in ALL_MODULES


@pytest.mark.parametrize("path", sorted(CHASSIS.rglob("*.py")), ids=name_of)
def test_the_chassis_knows_nothing_of_messaging(path: Path) -> None:
    """A word here means that something in the chassis belongs to one service."""
    lines = enumerate(path.read_text().splitlines(), start=1)

    assert [(number, line) for number, line in lines if DOMAIN_WORDS.search(line)] == []
    assert not DOMAIN_WORDS.search(path.name)


@pytest.mark.parametrize("path", ALL_MODULES, ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))

    assert docstring, "a module begins with what it is"
    assert len(docstring.splitlines()[0]) <= 100


@pytest.mark.parametrize("path", ALL_MODULES, ids=name_of)
def test_work_left_over_is_no_comment(path: Path) -> None:
    comments = re.findall(r"#\s*(?:TODO|FIXME|XXX|HACK)\b.*", path.read_text())

    assert comments == []


@pytest.mark.parametrize("path", PRODUCT_MODULES, ids=name_of)
def test_only_the_outermost_frames_catch_every_exception(path: Path) -> None:
    """Elsewhere a handler for everything must raise again: it cleans up and decides nothing."""
    silent = [
        handler.lineno
        for handler in ast.walk(ast.parse(path.read_text()))
        if isinstance(handler, ast.ExceptHandler)
        and _catches_all(handler)
        and not isinstance(handler.body[-1], ast.Raise)
    ]

    assert not silent or name_of(path) in CATCHES_ALL


def _catches_all(handler: ast.ExceptHandler) -> bool:
    kind = handler.type
    return kind is None or (
        isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")
    )


@pytest.mark.parametrize("path", PRODUCT_MODULES, ids=name_of)
def test_no_module_is_a_junk_drawer(path: Path) -> None:
    """Such names say nothing, and so attract everything."""
    words = set(re.split(r"[/._]", name_of(path)))

    assert not words & {"common", "utils", "util", "helpers", "helper", "misc", "shared"}
