"""Hot routes: the few performance-critical requests, which bypass uvicorn's and FastAPI's layers.

A FastAPI route costs several times as much as a raw handler, and a task per request as much again.
So hot routes are found in a cache of earlier paths, or by one dictionary look-up and a comparison
or two. They are answered as exchanges (:mod:`.exchange`). All other requests go to FastAPI.
Services declare hot routes by :mod:`~eruca_chassis.routes.hot_router`; ordinary GET routes become
hot ones by :mod:`~eruca_chassis.routes.direct_reads`.

A GET route also takes HEAD; the body is left out. A template is ``/v1/things/{thing}/parts``: fixed
and named segments. The handler finds the named ones decoded in ``exchange.request.parameters``. The
last one may be ``{thing}:verb``: a named segment with a fixed end.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Final, TypeAlias
from urllib.parse import unquote

import httptools

from eruca_chassis.admission.needs import KNOWN, Needs
from eruca_chassis.connections.exchange import Exchange, Found
from eruca_chassis.metrics import RouteMetrics
from eruca_chassis.readiness import GATED_PREFIX
from eruca_chassis.requests.targets import has_escaped_slash

Step: TypeAlias = Callable[[Exchange], None]

KNOWN_PATHS_MAX: Final = 4096  # cached paths
KNOWN_PATH_SIZE_MAX: Final = 512  # bytes of a cached path; more than twice the longest name

_Shape: TypeAlias = tuple[str, int]  # method, number of segments


def _admit_without_body(_exchange: Exchange) -> None:
    pass


def unopened(_exchange: Exchange) -> None:
    """Stand for both functions of a route until the service is open."""
    raise AssertionError("the service was ready before its hot routes were open")


class HotRoute:
    """One method and path template, its handlers, and its metrics.

    Args:
        method: GET, POST ….
        template: The path.
        handle: Answers a request whose body is complete.
        admit: Sees a request's head first: raises to refuse it, or declares its body.
        operation: Its id in the OpenAPI document.
        needs: What it needs of its caller.
    """

    __slots__ = (
        "_fixed", "_named", "_pick", "_verb",
        "admit", "handle", "is_gated", "method", "metrics", "needs", "operation", "segment_count",
        "template",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        template: str,
        handle: Step,
        *,
        admit: Step = _admit_without_body,
        operation: str = "",
        needs: Needs = KNOWN,
    ) -> None:
        self.method = method
        self.operation = operation
        self.needs = needs
        self.template = template
        self.handle = handle
        self.admit = admit
        self.is_gated = template.startswith(GATED_PREFIX)
        self.metrics = RouteMetrics()
        plain, colon, verb = template.rpartition("}:")
        self._verb = f":{verb}" if colon else ""
        segments = (plain + "}" if colon else template).split("/")
        self.segment_count = len(segments)
        self._named = [(s[1:-1], i) for i, s in enumerate(segments) if s.startswith("{")]
        fixed = [i for i, segment in enumerate(segments) if not segment.startswith("{")]
        # Index 0, the empty segment before the first slash, is repeated here because an itemgetter
        # with a single index returns no tuple.
        self._pick = itemgetter(0, *fixed)
        self._fixed = self._pick(segments)

    @property
    def is_remembered(self) -> bool:
        """True if its paths are cached; the target of a verb is hardly ever requested again."""
        return not self._verb

    def open(self, *, admit: Step, handle: Step) -> None:
        """Let requests in: the service is open."""
        self.admit = admit
        self.handle = handle

    def parameters(self, segments: list[str]) -> dict[str, str] | None:
        """Match a path of this route's length; return its named segments, None if no match."""
        if verb := self._verb:
            last = segments[-1]
            if not last.endswith(verb):
                return None
            segments = [*segments[:-1], last[: -len(verb)]]
        if self._pick(segments) != self._fixed or segments.count("") > 1:
            return None
        return {name: segments[i] for name, i in self._named}


_Match: TypeAlias = tuple[HotRoute, dict[str, str]]  # and the path's named segments


class HotRoutes:
    """A service's hot routes, found by method and number of segments."""

    def __init__(self, *routes: HotRoute) -> None:
        self.routes = routes
        self._by_shape: dict[_Shape, tuple[HotRoute, ...]] = {}
        self._known: dict[tuple[bytes, bytes], Found] = {}  # (method, raw path) → route
        for route in routes:
            for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
                shape = (method, route.segment_count)
                self._by_shape[shape] = (*self._by_shape.get(shape, ()), route)

    def find(self, method: str, path: str) -> Found | None:
        """Return the route of a request, or None."""
        matched = self._match(method, path)
        return None if matched is None else Found(*matched)

    def find_raw(self, method: bytes, path: bytes) -> Found | None:
        """Return the route for the raw *path* without its query, or None.

        A path in an unusual form, or with a fragment, is not found here.
        """
        known = self._known.get((method, path))
        if known is not None or len(path) > KNOWN_PATH_SIZE_MAX:
            return known
        matched = self._match_raw(method, path)
        if matched is None:
            return None
        found = Found(*matched)
        if matched[0].is_remembered:
            if len(self._known) >= KNOWN_PATHS_MAX:
                self._known.clear()
            self._known[method, path] = found
        return found

    def _match_raw(self, method: bytes, path: bytes) -> _Match | None:
        if (method.decode(), path.count(b"/") + 1) not in self._by_shape and b"%" not in path:
            return None
        try:
            is_plain = httptools.parse_url(path).path == path and path.isascii()
            is_plain = is_plain and not has_escaped_slash(path)
        except httptools.HttpParserInvalidURLError:
            return None
        return self._match(method.decode(), unquote(path.decode())) if is_plain else None

    def _match(self, method: str, path: str) -> _Match | None:
        segments = path.split("/")
        for route in self._by_shape.get((method, len(segments)), ()):
            parameters = route.parameters(segments)
            if parameters is not None:
                return route, parameters
        return None
