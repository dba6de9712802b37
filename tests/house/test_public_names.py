"""The SDK's public names: all there, all alike everywhere, and importing does nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import eruca
from eruca.contract.errors import every_error

SOURCE = Path(eruca.__file__)
HEAVY = ("httpx", "pydantic", "numpy", "uvloop", "typer", "rich", "fastapi")


def test_every_public_name_is_there() -> None:
    for name in eruca.__all__:
        assert getattr(eruca, name) is not None
    assert set(eruca.__all__) <= set(dir(eruca))


def test_the_list_the_table_and_the_types_name_the_same() -> None:
    tree = ast.parse(SOURCE.read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    for_types = {
        alias.asname
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert set(eruca.__all__) == set(eruca._HOMES) == for_types
    assert eruca.__all__ == sorted(eruca.__all__)


def test_every_error_that_a_method_may_raise_can_be_caught_by_its_public_name() -> None:
    kinds = {kind.__name__ for kind in every_error()}
    told = {
        word
        for path in (SOURCE.parent / "sync").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        for word in re.findall(r"\w+", ast.get_docstring(node) or "")
        if word in kinds
    }

    assert len(told) > 20
    assert told - set(eruca.__all__) == set()


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Consumer'"):
        _ = eruca.Consumer


def after_import(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


EVERYTHING = "import eruca; [getattr(eruca, n) for n in ('Client', 'AsyncClient', 'Message')]; "


def test_importing_loads_nothing_heavy() -> None:
    code = EVERYTHING + f"import sys; print([n for n in {HEAVY!r} if n in sys.modules])"

    assert after_import(code) == "[]"


def test_importing_starts_opens_and_configures_nothing() -> None:
    code = """
import logging, os, signal, sys, threading
before = (len(os.listdir("/proc/self/fd")), threading.active_count(), signal.getsignal(2))
handlers = list(logging.getLogger().handlers)
import eruca
for name in ("Client", "AsyncClient", "Message", "AsyncAdmin", "Producer"):
    getattr(eruca, name)
after = (len(os.listdir("/proc/self/fd")), threading.active_count(), signal.getsignal(2))
print(before == after, handlers == logging.getLogger().handlers)
print([type(h).__name__ for h in logging.getLogger("eruca").handlers])
"""

    assert after_import(code) == "True True\n['NullHandler']"
