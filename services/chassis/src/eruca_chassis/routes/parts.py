"""The parts of a service: its endpoints declare by type which of them they work with.

The service's composition (``wiring.py``) makes each part, and adds it here. An ordinary endpoint
declares parts in its signature, a hot one in its constructor::

    async def get_thing(name: Name, shelf: Part[Shelf]) -> Thing: ...

    class PutThings(HotEndpoint):
        def __init__(self, shelf: Shelf, in_flight: Budget) -> None: ...

A service has one part of each type. :meth:`eruca_chassis.app.ServiceApp.open_routes` checks that
every declared part is there, so no request finds one missing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_origin

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

_T = TypeVar("_T")
_KIND: Final = "eruca_part"  # attribute of a dependency: the type of its part


class Parts:
    """The parts of one service, by type; it has none before its lifespan begins."""

    def __init__(self) -> None:
        self._parts: dict[type[Any], Any] = {}

    def add(self, part: _T, kind: type[_T] | None = None) -> _T:
        """Add *part* under its class, or under *kind* if that is a superclass; return it."""
        kind = kind or type(part)
        assert kind not in self._parts, f"expected one part of {kind}, found two"
        self._parts[kind] = part
        return part

    def __getitem__(self, kind: type[_T]) -> _T:
        """Return the part of a type; a generic type's arguments make no difference."""
        kind = get_origin(kind) or kind
        assert kind in self._parts, f"{kind} is missing; add it in the service's wiring.py"
        part: _T = self._parts[kind]
        return part

    def require(self, kinds: Iterable[type[Any]]) -> None:
        """Refuse to go on without a part of each of *kinds*."""
        for kind in kinds:
            self[kind]

    def make(self, kind: Callable[..., _T]) -> _T:
        """Return a new object of *kind*, made of the parts that its constructor declares."""
        declared = inspect.signature(kind, eval_str=True).parameters.values()
        return kind(**{parameter.name: self[parameter.annotation] for parameter in declared})


if TYPE_CHECKING:
    Part = Annotated[_T, "of the service"]
else:

    class Part:
        """An ordinary endpoint's annotation: ``Part[Shelf]`` is the service's ``Shelf``."""

        def __class_getitem__(cls, kind: type[Any]) -> Any:  # noqa: ANN401
            return Annotated[kind, Depends(_finder(kind))]


@cache
def _finder(kind: type[Any]) -> Callable[[Request], Any]:
    async def find(request: Request) -> Any:  # noqa: ANN401 - async: a def would run in a thread
        return request.app.parts[kind]

    setattr(find, _KIND, kind)
    return find


def part_of(call: Any) -> type[Any] | None:  # noqa: ANN401 - whatever a dependency calls
    """Return the type of the part that a dependency stands for; None: it is another dependency."""
    kind: type[Any] | None = getattr(call, _KIND, None)
    return kind


def declared_parts(routers: Iterable[APIRouter]) -> Iterator[type[Any]]:
    """Yield the types of the parts that ordinary endpoints declare."""
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute):
                # FastAPI would find them, too, but by working the whole route out.
                for annotation in inspect.get_annotations(route.endpoint, eval_str=True).values():
                    for declared in getattr(annotation, "__metadata__", ()):
                        kind = part_of(getattr(declared, "dependency", None))
                        if kind is not None:
                            yield kind
