"""The routes of a service's API are worked out once by each process that runs tests.

FastAPI does that for each application: it makes models of what every route takes and gives. It is
most of what a broker in process costs, and tests open thousands. What it makes knows nothing of the
application but whether dependencies are overridden in it, and ours override none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from fastapi import routing

_MADE: Final = "made_for_tests"  # an attribute of a route: what was made of it, and for what


def share_routes() -> None:
    """Have the applications of this process share what FastAPI makes of a router they include."""
    context: Any = routing._EffectiveRouteContext
    make: Callable[..., Any] = context.from_api_route

    def make_once(*, original_route: Any, include_context: Any) -> Any:  # noqa: ANN401
        # Without the application, which would stay in memory as long as the route.
        include_context = replace(include_context, dependency_overrides_provider=None)
        here = replace(include_context, generate_unique_id_function=None)  # its name, for all
        made = vars(original_route).setdefault(_MADE, [])
        for there, shared in made:
            if there == here:
                return shared
        shared = make(original_route=original_route, include_context=include_context)
        made.append((here, shared))
        return shared

    context.from_api_route = staticmethod(make_once)
