"""Eruca: RocketMQ's model over HTTP. This package is the SDK's public interface, and nothing else.

::

    async with eruca.AsyncClient() as client, client.producer() as producer:
        result = await producer.send(eruca.Message("orders", "paid", keys="order-7"))

``eruca.Client`` is the same without async. Importing the package only defines names; each one is
loaded at its first use. So the services, which need only the contract, load nothing else.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eruca.public_names import *  # noqa: F403 - they are public here


def _homes_of_public_names() -> dict[str, str]:
    """Return the module of each public name, without importing any of them.

    The imports in ``eruca.public_names`` run with an ``__import__`` that only records them.
    """
    homes: dict[str, str] = {}

    def record(
        module: str, _globals: object, _locals: object, names: tuple[str, ...], _level: int
    ) -> SimpleNamespace:
        homes.update(dict.fromkeys(names, module))
        return SimpleNamespace(**dict.fromkeys(names))

    spec = find_spec(f"{__name__}.public_names")
    assert spec is not None
    code = spec.loader.get_code(spec.name)  # type: ignore[union-attr] # all loaders of code have it
    exec(code, {"__builtins__": {"__import__": record}})
    return dict(sorted(homes.items()))


_HOMES: Final = _homes_of_public_names()

if not TYPE_CHECKING:  # type checkers know it from the import above
    __all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
