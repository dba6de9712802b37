"""The SDK's public names: all there, all alike everywhere, and importing does nothing else."""

from __future__ import annotations

import ast
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest

import eruca
from eruca import public_names
from eruca.contract.errors import every_error

SOURCE = Path(eruca.__file__)
PUBLIC: Final[list[str]] = vars(eruca)["__all__"]
HEAVY = ("httpx", "pydantic", "numpy", "uvloop", "typer", "rich", "fastapi")


def test_every_public_name_is_there() -> None:
    for name in PUBLIC:
        assert getattr(eruca, name) is not None
    assert set(PUBLIC) <= set(dir(eruca))


def test_help_tells_every_public_name() -> None:
    """Run ``help(eruca)``; it reads the types of every structure's fields."""
    told = pydoc.plain(pydoc.render_doc(eruca))

    assert [name for name in PUBLIC if name not in told] == []


def test_the_only_list_names_each_public_name_once() -> None:
    """Type checkers follow its imports; ``eruca`` reads their names and modules."""
    listed = ast.parse(Path(public_names.__file__).read_text()).body[1:]  # behind the docstring
    imported = [node for node in listed if isinstance(node, ast.ImportFrom)]
    names = [alias.asname for node in imported for alias in node.names]

    assert imported == listed
    assert sorted(filter(None, names)) == PUBLIC
    assert [name for name in PUBLIC if name not in vars(public_names)] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_the_one_that_type_checkers_see(name: str) -> None:
    assert getattr(eruca, name) is getattr(public_names, name)


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
    assert told - set(PUBLIC) == set()


@pytest.mark.parametrize("shell", ["sync", "aio"])
def test_every_class_that_a_method_takes_or_returns_can_be_named(shell: str) -> None:
    """Users need these names to annotate their own functions; only lists and texts need no name."""
    users = [getattr(eruca, name) for name in PUBLIC]
    users = [one for one in users if getattr(one, "__module__", "").startswith(f"eruca.{shell}.")]
    told = {
        part
        for user in users
        for method in methods_of(user)
        for annotation in annotations_of(method)
        for part in re.findall(r"\w+", annotation)
        if is_own_class(part, user)
    }

    assert len(told) > 30
    assert told - set(PUBLIC) <= {"ClientContext"}  # for those who build on the SDK


def methods_of(user: type) -> Iterator[FunctionType]:
    for name, member in vars(user).items():
        found = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and isinstance(found, FunctionType):
            yield found


def annotations_of(method: FunctionType) -> Iterator[str]:
    """Yield the annotations as they are written: the modules put off reading them."""
    yield from method.__annotations__.values()


def is_own_class(name: str, user: type) -> bool:
    home = imported_names(user.__module__).get(name, "")
    if not home.startswith("eruca"):
        return False
    return isinstance(getattr(import_module(home), name), type)


@cache
def imported_names(module: str) -> dict[str, str]:
    """Return where a module's names come from, those for type checkers included."""
    tree = ast.parse(Path(sys.modules[module].__file__ or "").read_text())
    return {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } | {node.name: module for node in tree.body if isinstance(node, ast.ClassDef)}


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


def test_a_first_send_has_its_time_for_sending() -> None:
    code = """
import asyncio, sys
import eruca

async def main():
    async with eruca.AsyncClient("http://127.0.0.1:1") as client, client.producer() as producer:
        known = set(sys.modules)
        try:
            await producer.send(eruca.Message("orders", "x"))
        except eruca.NameServersUnreachableError:
            print(sorted({n for n in set(sys.modules) - known if n.partition(".")[0] in HEAVY}))

asyncio.run(main())
"""

    assert after_import(f"HEAVY = {(*HEAVY, 'eruca')!r}{code}") == "[]"


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

    assert after_import(code) == "True True\n[]"
