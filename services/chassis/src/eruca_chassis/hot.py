"""Hot routes: the few requests that go straight to an ASGI handler, past FastAPI.

A FastAPI route costs several times what a raw handler costs, so the requests a service lives by are
found here by two dictionary look-ups and a comparison. Everything else falls through to FastAPI.

A GET route takes HEAD too: the server leaves the body out. A template is
``/v1/things/{thing}/parts``: fixed segments and named ones, which the handler finds decoded in
``scope["path_params"]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eruca_chassis.asgi import Handler, Scope


@dataclass(frozen=True, slots=True)
class HotRoute:
    """One method and path template, and who answers it."""

    method: str
    template: str
    handle: Handler
    fixed: tuple[tuple[int, str], ...] = field(init=False)  # (index of the segment, its text)
    named: tuple[tuple[int, str], ...] = field(init=False)  # (index of the segment, its name)
    segment_count: int = field(init=False)

    def __post_init__(self) -> None:
        segments = self.template.split("/")
        fixed = tuple((i, s) for i, s in enumerate(segments) if not s.startswith("{"))
        named = tuple((i, s[1:-1]) for i, s in enumerate(segments) if s.startswith("{"))
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "named", named)
        object.__setattr__(self, "segment_count", len(segments))

    def matches(self, segments: list[str]) -> bool:
        """Tell whether a path of this route's segment count is this route's."""
        return all(segments[i] == text for i, text in self.fixed) and all(
            segments[i] for i, _ in self.named
        )


class HotRoutes:
    """A service's hot routes, found by method and number of segments."""

    def __init__(self, *routes: HotRoute) -> None:
        self.routes = routes
        self._by_shape: dict[tuple[str, int], tuple[HotRoute, ...]] = {}
        for route in routes:
            for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
                shape = (method, route.segment_count)
                self._by_shape[shape] = (*self._by_shape.get(shape, ()), route)

    def find(self, scope: Scope) -> HotRoute | None:
        """Return the route of a request, its path parameters put into the scope, or None."""
        segments = scope["path"].split("/")
        for route in self._by_shape.get((scope["method"], len(segments)), ()):
            if route.matches(segments):
                scope["path_params"] = {name: segments[i] for i, name in route.named}
                return route
        return None

    def methods(self, path: str) -> set[str]:
        """Return the methods that some hot route takes at *path*."""
        segments = path.split("/")
        return {
            route.method
            for route in self.routes
            if route.segment_count == len(segments) and route.matches(segments)
        }
