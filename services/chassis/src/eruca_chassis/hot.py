"""Hot routes: the few requests that go straight to an ASGI handler, past FastAPI.

A FastAPI route costs several times what a raw handler costs, so the requests a service lives by are
found here by one dictionary look-up and a comparison or two. All else falls through to FastAPI.

A GET route takes HEAD too: the server leaves the body out. A template is
``/v1/things/{thing}/parts``: fixed segments and named ones, which the handler finds decoded in
``scope["path_params"]``.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TypeAlias

from eruca_chassis.asgi import Handler, Scope
from eruca_chassis.metrics import RouteMetrics

_Shape: TypeAlias = tuple[str, int]  # method, number of segments


class HotRoute:
    """One method and path template, who answers it, and how often that has happened."""

    __slots__ = (
        "_fixed", "_named", "_pick", "handle", "method", "metrics", "segment_count", "template"
    )  # fmt: skip

    def __init__(self, method: str, template: str, handle: Handler) -> None:
        self.method = method
        self.template = template
        self.handle = handle
        self.metrics = RouteMetrics()
        segments = template.split("/")
        self.segment_count = len(segments)
        self._named = [(s[1:-1], i) for i, s in enumerate(segments) if s.startswith("{")]
        fixed = [i for i, segment in enumerate(segments) if not segment.startswith("{")]
        # Index 0 is the empty segment before the first slash: it stands here once more because an
        # itemgetter of a single index returns no tuple.
        self._pick = itemgetter(0, *fixed)
        self._fixed = self._pick(segments)

    def parameters(self, segments: list[str]) -> dict[str, str] | None:
        """Return the named segments of a path of this route's length; None if it is another's."""
        if self._pick(segments) != self._fixed or segments.count("") > 1:
            return None
        return {name: segments[i] for name, i in self._named}


class HotRoutes:
    """A service's hot routes, found by method and number of segments."""

    def __init__(self, *routes: HotRoute) -> None:
        self.routes = routes
        self._by_shape: dict[_Shape, tuple[HotRoute, ...]] = {}
        for route in routes:
            for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
                shape = (method, route.segment_count)
                self._by_shape[shape] = (*self._by_shape.get(shape, ()), route)

    def find(self, scope: Scope) -> HotRoute | None:
        """Return the route of a request, its path parameters put into the scope, or None."""
        segments = scope["path"].split("/")
        for route in self._by_shape.get((scope["method"], len(segments)), ()):
            parameters = route.parameters(segments)
            if parameters is not None:
                scope["path_params"] = parameters
                return route
        return None

    def methods(self, path: str) -> set[str]:
        """Return the methods that some hot route takes at *path*."""
        segments = path.split("/")
        return {
            route.method
            for route in self.routes
            if route.segment_count == len(segments) and route.parameters(segments) is not None
        }
