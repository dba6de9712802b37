"""Eruca: RocketMQ's model over HTTP. This package is the SDK's public interface, and nothing else.

::

    async with eruca.AsyncClient() as client, client.producer() as producer:
        result = await producer.send(eruca.Message("orders", "paid", keys="order-7"))

``eruca.Client`` is the same without async. Importing the package only defines names; each one is
loaded at its first use. So the services, which need only the contract, load nothing else.
"""

from __future__ import annotations

import ast
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eruca.public_names import *  # noqa: F403 - they are public here


def _homes_of_public_names() -> dict[str, str]:
    """Return the module of each public name: the imports of ``public_names.py``, read, not run."""
    loader, path = __spec__.loader, __file__.replace("__init__.py", "public_names.py")
    source = loader.get_data(path)  # type: ignore[union-attr] # archives have it, too
    return {
        name.name: node.module
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__" and node.module
        for name in node.names
    }


_HOMES: Final = _homes_of_public_names()

if not TYPE_CHECKING:  # type checkers know it from the import above
    __all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
