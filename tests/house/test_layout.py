"""Rules of the house style for every file that no other tool checks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHASSIS = ROOT / "services/chassis/src/eruca_chassis"
PRODUCT = (
    "sdk/src",
    "services",
    "deploy",
    "testing",
    "demo",
    "bench",
    "interop",
    "clients",
    "examples",
)
DOMAIN_WORDS = re.compile(r"topic|broker|consumer|producer|offset|commit[ _]?log", re.IGNORECASE)
CATCHES_ALL = {  # the outermost frames, which log with context and count
    "sdk/src/eruca/aio/http/credentials.py",  # around the program's own function
    "sdk/src/eruca/aio/intercepting/blocks.py",  # around the program's own interceptors
    "sdk/src/eruca/aio/transactions/check_loop.py",  # around the program's own function
    "sdk/src/eruca/aio/push/calling.py",  # around the program's own functions
    "sdk/src/eruca/cli/stoppable.py",  # a thread's; the event loop receives it
    "sdk/src/eruca/core/failure_text.py",  # around the __str__ of the program's own exceptions
    "sdk/src/eruca/aio/push/standby.py",  # a thread's; the event loop receives it
    "services/broker/src/eruca_broker/processors/idempotent_send.py",  # waiting callers receive it
    "services/broker/src/eruca_broker/processors/replication/follower.py",  # a puller raises it
    "services/broker/src/eruca_broker/processors/transactions/outcomes.py",  # an answer's part
    "services/broker/src/eruca_broker/processors/turns.py",  # waiting callers receive it
    "services/chassis/src/eruca_chassis/app.py",
    "services/chassis/src/eruca_chassis/connections/exchange.py",
    "services/chassis/src/eruca_chassis/loops.py",
    "services/chassis/src/eruca_chassis/running/serving.py",  # a farewell's; the stop goes on
    "services/chassis/src/eruca_chassis/spans/otel.py",  # around another library; the write goes on
    "services/query/src/eruca_query/exports/workers/worker.py",  # a step's; the service receives it
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


def test_the_chassis_knows_nothing_of_messaging() -> None:
    """A word here means that something in the chassis belongs to one service."""
    for path in modules(str(CHASSIS)):
        lines = enumerate([path.name, *path.read_text().splitlines()])

        known = [f"{name_of(path)}:{n}: {line}" for n, line in lines if DOMAIN_WORDS.search(line)]
        assert known == []


def test_every_module_says_what_it_is() -> None:
    for path in ALL_MODULES:
        docstring = ast.get_docstring(ast.parse(path.read_text()))

        assert docstring, f"{name_of(path)} begins with what it is"
        assert len(docstring.splitlines()[0]) <= 100, name_of(path)


def test_work_left_over_is_no_comment() -> None:
    for path in ALL_MODULES:
        comments = re.findall(r"#\s*(?:TODO|FIXME|XXX|HACK)\b.*", path.read_text())

        assert comments == [], name_of(path)


def test_only_the_outermost_frames_catch_every_exception() -> None:
    """Elsewhere a handler for everything must raise again: it cleans up and decides nothing."""
    for path in PRODUCT_MODULES:
        silent = [
            handler.lineno
            for handler in ast.walk(ast.parse(path.read_text()))
            if isinstance(handler, ast.ExceptHandler)
            and _catches_all(handler)
            and not isinstance(handler.body[-1], ast.Raise)
        ]

        assert not silent or name_of(path) in CATCHES_ALL, f"{name_of(path)}, lines {silent}"


def _catches_all(handler: ast.ExceptHandler) -> bool:
    kind = handler.type
    return kind is None or (
        isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")
    )


def test_no_module_is_a_junk_drawer() -> None:
    """Such names say nothing, and so attract everything."""
    words = {word for path in PRODUCT_MODULES for word in re.split(r"[/._]", name_of(path))}

    assert not words & {"common", "utils", "util", "helpers", "helper", "misc", "shared"}
